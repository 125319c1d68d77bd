"""Gopher's quality rules."""

from typing import Literal

from etl.kernels.signals.stop_words import STOP_WORDS
from etl.stages.base import Rules, above, below
from etl.stages.limits_by_language import ByLanguage
from etl.stages.signals import (
    Words,
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

    All thresholds are the paper's; None switches a rule off. Lengths, in code points, and stop words fit
    English. ``languages`` gives others limits of their own, as ``{de: {max_mean_word_length: 15}}``, or
    names a table of them: ``fineweb2`` has 32 languages. With it the stop words are those of the document's
    language (``etl.kernels.signals.stop_words``); in a language without a list that rule rejects nothing.

    Words are segments: words, numbers and punctuation marks as spaCy cuts English, which datatrove 0.10.1
    counts; each rule gives its verdict (``benchmarks/filters_vs_peers.py``). ``words: spaces`` takes what
    stands between white space, as the paper reads. ``min_alpha_word_ratio`` is what rejects most: prose is a
    sixth punctuation, so that 0.8 of the segments leaves little room, and of technical pages nine in ten
    fall.
    """

    kind: Literal["gopher_quality"] = "gopher_quality"
    words: Words = "segments"
    min_words: int | None = 50
    max_words: int | None = 100_000
    min_mean_word_length: float | None = 3.0
    max_mean_word_length: float | None = 10.0
    max_symbol_word_ratio: float | None = 0.1  # '#' per word
    max_ellipsis_word_ratio: float | None = 0.1  # '...' and '…' per word
    max_bullet_line_ratio: float | None = 0.9
    max_ellipsis_line_ratio: float | None = 0.3
    min_alpha_word_ratio: float | None = 0.8  # words with a letter, per word
    min_stop_words: int | None = 2  # distinct ones of the, be, to, of, and, that, have, with

    def rules(self) -> Rules:
        """The first rule that holds rejects the document, as ``gopher_quality.<name>``."""
        limit, words = self.limits(), self.words
        few_stops = below(of_words(num_stop_words, words), limit["min_stop_words"])
        if self.languages is not None:
            of_its_own = below(num_lang_stop_words, limit["min_stop_words"])
            few_stops = lang.is_in([*STOP_WORDS]) & of_its_own
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
            "few_stop_words": few_stops,
        }
