"""The GopherRepetition stage: the repetition rules of Gopher."""

from typing import Literal

import polars as pl

from etl.stages.base import Rules, above
from etl.stages.limits_by_language import ByLanguage
from etl.stages.signals import (
    duplicate_5gram_char_ratio,
    duplicate_6gram_char_ratio,
    duplicate_7gram_char_ratio,
    duplicate_8gram_char_ratio,
    duplicate_9gram_char_ratio,
    duplicate_10gram_char_ratio,
    duplicate_line_char_ratio,
    duplicate_line_ratio,
    duplicate_paragraph_char_ratio,
    duplicate_paragraph_ratio,
    of_words,
    top_2gram_char_ratio,
    top_3gram_char_ratio,
    top_4gram_char_ratio,
)

_LINE_SIGNALS = {
    "duplicate_paragraphs": duplicate_paragraph_ratio,
    "duplicate_paragraph_chars": duplicate_paragraph_char_ratio,
    "duplicate_lines": duplicate_line_ratio,
    "duplicate_line_chars": duplicate_line_char_ratio,
}
_WORD_SIGNALS = {
    "top_2gram": top_2gram_char_ratio,
    "top_3gram": top_3gram_char_ratio,
    "top_4gram": top_4gram_char_ratio,
    "duplicate_5grams": duplicate_5gram_char_ratio,
    "duplicate_6grams": duplicate_6gram_char_ratio,
    "duplicate_7grams": duplicate_7gram_char_ratio,
    "duplicate_8grams": duplicate_8gram_char_ratio,
    "duplicate_9grams": duplicate_9gram_char_ratio,
    "duplicate_10grams": duplicate_10gram_char_ratio,
}


class GopherRepetition(ByLanguage):
    """Keep documents with little repetition: the repetition rules of Gopher.

    All thresholds are from the paper (Rae et al. 2021, arXiv 2112.11446, table A1); None disables a rule.
    ``languages`` sets limits per language, as in ``{ja: {max_duplicate_5gram_char_ratio: 0.33}}``, or names a
    table of limits: ``fineweb2``.

    N-grams are runs of segments: words, numbers and punctuation marks as spaCy splits the document's
    language, or English if the language is unknown. datatrove 0.10.1 counts these, and each rule gives the
    same verdict (``benchmarks/filters_vs_peers.py``). ``words: dictionary`` does so in Chinese, Japanese and
    Korean too, with the extra ``segmenters``. ``words: spaces`` splits at white space, a literal reading of
    the paper. Lines and paragraphs are compared without normalization.
    """

    kind: Literal["gopher_repetition"] = "gopher_repetition"
    max_duplicate_paragraph_ratio: float | None = 0.3
    """Largest share of paragraphs that repeat an earlier one."""
    max_duplicate_paragraph_char_ratio: float | None = 0.2
    """Largest share of characters in such paragraphs."""
    max_duplicate_line_ratio: float | None = 0.3
    """Largest share of lines that repeat an earlier one."""
    max_duplicate_line_char_ratio: float | None = 0.2
    """Largest share of characters in such lines."""
    max_top_2gram_char_ratio: float | None = 0.2
    """Largest share of characters in the most frequent run of 2 words."""
    max_top_3gram_char_ratio: float | None = 0.18
    """Largest share of characters in the most frequent run of 3 words."""
    max_top_4gram_char_ratio: float | None = 0.16
    """Largest share of characters in the most frequent run of 4 words."""
    max_duplicate_5gram_char_ratio: float | None = 0.15
    """Largest share of characters in runs of 5 words that occur before."""
    max_duplicate_6gram_char_ratio: float | None = 0.14
    """Largest share of characters in runs of 6 words that occur before."""
    max_duplicate_7gram_char_ratio: float | None = 0.13
    """Largest share of characters in runs of 7 words that occur before."""
    max_duplicate_8gram_char_ratio: float | None = 0.12
    """Largest share of characters in runs of 8 words that occur before."""
    max_duplicate_9gram_char_ratio: float | None = 0.11
    """Largest share of characters in runs of 9 words that occur before."""
    max_duplicate_10gram_char_ratio: float | None = 0.1
    """Largest share of characters in runs of 10 words that occur before."""

    def rules(self) -> Rules:
        """Return the rules; the first that holds rejects the document as ``gopher_repetition.<name>``."""
        limit = self.limits()
        of_lines = {
            name: above(signal, limit[_limit_field(signal)])
            for name, signal in _LINE_SIGNALS.items()
        }
        return of_lines | {
            name: above(of_words(signal, self.words), limit[_limit_field(signal)])
            for name, signal in _WORD_SIGNALS.items()
        }


def _limit_field(signal: pl.Expr) -> str:
    """Return the field with the limit of a signal."""
    return f"max_{signal.meta.output_name()}"
