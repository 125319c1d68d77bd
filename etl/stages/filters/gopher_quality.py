"""The GopherQuality stage: the quality rules of Gopher."""

from typing import Literal

from etl.kernels.signals.stop_word_lists import STOP_WORDS
from etl.stages.base import Rules, above, below
from etl.stages.limits_by_language import ByLanguage
from etl.stages.signals import (
    alpha_word_ratio,
    bullet_line_ratio,
    ellipsis_line_ratio,
    ellipsis_word_ratio,
    lang,
    mean_word_length,
    num_lang_stop_words,
    num_stop_words,
    num_words,
    of_words,
    symbol_word_ratio,
)


class GopherQuality(ByLanguage):
    """Keep prose: the quality rules of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1).

    All thresholds are from the paper; None disables a rule. Word lengths (in code points) and stop words
    are for English. ``languages`` sets limits per language, as in ``{de: {max_mean_word_length: 15}}``, or
    names a table of limits: ``fineweb2`` has 32 languages. If it is set, the stop words belong to the
    document's language (``etl.kernels.signals.stop_words``), and a language without a list has no such
    rule.

    Words are segments: words, numbers and punctuation marks as spaCy splits the document's language, or
    English if the language is unknown. datatrove 0.10.1 counts these, and each rule gives the same verdict
    (``benchmarks/filters_vs_peers.py``). ``words: dictionary`` does so in Chinese, Japanese and Korean too,
    with the extra ``segmenters`` (``benchmarks/filters_by_language.py``); otherwise, a character is a word in
    scripts without spaces. ``words: spaces`` splits at white space, a literal reading of the paper.

    ``min_alpha_word_ratio`` rejects most documents: a sixth of the segments of prose are punctuation, so 0.8
    is strict, and nine in ten technical pages are rejected.
    """

    kind: Literal["gopher_quality"] = "gopher_quality"
    example = "gopher_quality: {min_words: 100, min_alpha_word_ratio: 0.7}"
    min_words: int | None = 50
    """Fewest words of a document."""
    max_words: int | None = 100_000
    """Most words of a document."""
    min_mean_word_length: float | None = 3.0
    """Lowest mean length of its words."""
    max_mean_word_length: float | None = 10.0
    """Highest mean length of its words."""
    max_symbol_word_ratio: float | None = 0.1
    """Most ``#`` per word."""
    max_ellipsis_word_ratio: float | None = 0.1
    """Most ``...`` and ``…`` per word."""
    max_bullet_line_ratio: float | None = 0.9
    """Largest share of lines that begin with a bullet."""
    max_ellipsis_line_ratio: float | None = 0.3
    """Largest share of lines that end in an ellipsis."""
    min_alpha_word_ratio: float | None = 0.8
    """Smallest share of words that contain a letter."""
    min_stop_words: int | None = 2
    """Fewest distinct stop words: the, be, to, of, and, that, have, with; with ``languages``, the stop
    words of the document's language."""

    def rules(self) -> Rules:
        """Return the rules; the first that holds rejects the document as ``gopher_quality.<name>``."""
        limit, words = self.limits(), self.words
        few_stop_words = below(of_words(num_stop_words, words), limit["min_stop_words"])
        if self.languages is not None:
            few_in_language = below(num_lang_stop_words, limit["min_stop_words"])
            few_stop_words = lang.is_in([*STOP_WORDS]) & few_in_language
        return {
            "short": below(of_words(num_words, words), limit["min_words"]),
            "long": above(of_words(num_words, words), limit["max_words"]),
            "short_words": below(of_words(mean_word_length, words), limit["min_mean_word_length"]),
            "long_words": above(of_words(mean_word_length, words), limit["max_mean_word_length"]),
            "symbols": above(of_words(symbol_word_ratio, words), limit["max_symbol_word_ratio"]),
            "ellipses": above(
                of_words(ellipsis_word_ratio, words), limit["max_ellipsis_word_ratio"]
            ),
            "bullet_lines": above(bullet_line_ratio, limit["max_bullet_line_ratio"]),
            "ellipsis_lines": above(ellipsis_line_ratio, limit["max_ellipsis_line_ratio"]),
            "few_alpha_words": below(
                of_words(alpha_word_ratio, words), limit["min_alpha_word_ratio"]
            ),
            "few_stop_words": few_stop_words,
        }
