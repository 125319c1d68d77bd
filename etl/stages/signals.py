"""TODO."""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import polars as pl
import pyarrow as pa

from etl.kernels.signals import stop_words
from etl.text import language_id

num_chars = pl.col("num_chars")
"""Code points. Group: words."""


num_lines = pl.col("num_lines")
"""Lines as ``str.splitlines`` splits them, blank ones included. Group: words."""


num_segments = pl.col("num_segments")
"""Words, numbers, punctuation marks and symbols, as ``etl.kernels.words.spacy`` cuts them. Group: words."""


num_words = pl.col("num_words")
"""Segments that are not just punctuation. Group: words."""


mean_word_length = pl.col("mean_word_length")
"""Code points per word. Group: words."""


symbol_word_ratio = pl.col("symbol_word_ratio")
"""'#' per segment. Group: words."""


ellipsis_word_ratio = pl.col("ellipsis_word_ratio")
"""'...' and '…' per segment. Group: words."""


bullet_line_ratio = pl.col("bullet_line_ratio")
"""Lines that begin, after white space, with '-' or '•', per line. Group: words."""


ellipsis_line_ratio = pl.col("ellipsis_line_ratio")
"""Lines that end, before white space, in '...' or '…', per line. Group: words."""


alpha_word_ratio = pl.col("alpha_word_ratio")
"""Words with a letter, per segment. Group: words."""


newline_word_ratio = pl.col("newline_word_ratio")
"""Line feeds per segment. Group: words."""


num_stop_words = pl.col("num_stop_words")
"""Distinct ones among the, be, to, of, and, that, have, with, as they stand. Group: words."""


duplicate_line_ratio = pl.col("duplicate_line_ratio")
"""Lines equal to one before, per line that is not empty. Group: lines."""


duplicate_line_char_ratio = pl.col("duplicate_line_char_ratio")
"""Code points in lines equal to one before, per code point. Group: lines."""


duplicate_paragraph_ratio = pl.col("duplicate_paragraph_ratio")
"""Paragraphs (between blank lines) equal to one before, per paragraph. Group: lines."""


duplicate_paragraph_char_ratio = pl.col("duplicate_paragraph_char_ratio")
"""Code points in paragraphs equal to one before, per code point. Group: lines."""


terminal_line_ratio = pl.col("terminal_line_ratio")
"""Lines that end in a character which ends a sentence, per line that is not blank. Group: lines."""


quoted_line_ratio = pl.col("quoted_line_ratio")
"""Lines that end in such a character, or in \" or ', per line that is not blank. Group: lines."""


short_line_ratio = pl.col("short_line_ratio")
"""Lines of at most 30 code points, per line that is not blank. Group: lines."""


duplicate_text_ratio = pl.col("duplicate_text_ratio")
"""Code points in full lines equal to one before, per code point that is no line feed. Group: lines."""


top_2gram_char_ratio = pl.col("top_2gram_char_ratio")
"""Code points in the most frequent run of 2 segments, per code point. Group: words."""


top_3gram_char_ratio = pl.col("top_3gram_char_ratio")
"""Code points in the most frequent run of 3 segments, per code point. Group: words."""


top_4gram_char_ratio = pl.col("top_4gram_char_ratio")
"""Code points in the most frequent run of 4 segments, per code point. Group: words."""


duplicate_5gram_char_ratio = pl.col("duplicate_5gram_char_ratio")
"""Code points in runs of 5 segments seen before, per code point. Group: words."""


duplicate_6gram_char_ratio = pl.col("duplicate_6gram_char_ratio")
"""Code points in runs of 6 segments seen before, per code point. Group: words."""


duplicate_7gram_char_ratio = pl.col("duplicate_7gram_char_ratio")
"""Code points in runs of 7 segments seen before, per code point. Group: words."""


duplicate_8gram_char_ratio = pl.col("duplicate_8gram_char_ratio")
"""Code points in runs of 8 segments seen before, per code point. Group: words."""


duplicate_9gram_char_ratio = pl.col("duplicate_9gram_char_ratio")
"""Code points in runs of 9 segments seen before, per code point. Group: words."""


duplicate_10gram_char_ratio = pl.col("duplicate_10gram_char_ratio")
"""Code points in runs of 10 segments seen before, per code point. Group: words."""


lang = pl.col("lang")
"""The most likely language, a code of lid.176 (ISO 639-1, else -3); a string. Group: language."""


lang_score = pl.col("lang_score")
"""The probability of ``lang``, 0 to 1. Group: language."""


num_lang_stop_words = pl.col("num_lang_stop_words")
"""Distinct stop words of the document's language (``etl.kernels.signals.stop_words``); 0 if it has no list. Group:
stop_words."""


Columns = dict[str, pa.Array | pa.ChunkedArray]
"""Columns of documents by name: ``text``, and signals."""


class Signal(NamedTuple):
    """Which pass computes a signal, and what its number counts."""

    group: str
    unit: str
    needs: tuple[str, ...] = ()  # the signals that are computed before


_WORDS: Final[dict[str, Signal]] = {
    "num_chars": Signal("words", "code points"),
    "num_lines": Signal("words", "lines"),
    "num_segments": Signal("words", "segments"),
    "num_words": Signal("words", "words"),
    "mean_word_length": Signal("words", "code points per word"),
    "symbol_word_ratio": Signal("words", "'#' per segment"),
    "ellipsis_word_ratio": Signal("words", "ellipses per segment"),
    "bullet_line_ratio": Signal("words", "share of lines"),
    "ellipsis_line_ratio": Signal("words", "share of lines"),
    "alpha_word_ratio": Signal("words", "words with a letter per segment"),
    "newline_word_ratio": Signal("words", "line feeds per segment"),
    "num_stop_words": Signal("words", "distinct words of 8"),
    "top_2gram_char_ratio": Signal("words", "share of code points"),
    "top_3gram_char_ratio": Signal("words", "share of code points"),
    "top_4gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_5gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_6gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_7gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_8gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_9gram_char_ratio": Signal("words", "share of code points"),
    "duplicate_10gram_char_ratio": Signal("words", "share of code points"),
}


SPACED: Final = "spaced_"
"""The prefix of a signal whose words are what stands between white space."""


SIGNALS: Final[dict[str, Signal]] = {
    **_WORDS,
    "duplicate_line_ratio": Signal("lines", "share of lines"),
    "duplicate_line_char_ratio": Signal("lines", "share of code points"),
    "duplicate_paragraph_ratio": Signal("lines", "share of paragraphs"),
    "duplicate_paragraph_char_ratio": Signal("lines", "share of code points"),
    "terminal_line_ratio": Signal("lines", "share of lines"),
    "quoted_line_ratio": Signal("lines", "share of lines"),
    "short_line_ratio": Signal("lines", "share of lines"),
    "duplicate_text_ratio": Signal("lines", "share of code points"),
    "lang": Signal("language", "language code"),
    "lang_score": Signal("language", "probability"),
    "num_lang_stop_words": Signal("stop_words", "distinct words", needs=("lang",)),
    **{SPACED + name: Signal("spaced", signal.unit) for name, signal in _WORDS.items()},
}
"""All signals in the order of their columns."""


Words = Literal["segments", "spaces"]
"""What a word is: a segment, as spaCy and datatrove have it, or whatever stands between white space."""


def of_words(signal: pl.Expr, words: Words) -> pl.Expr:
    """A signal of group words, or its like over what stands between white space.

    >>> of_words(num_words, "spaces").meta.output_name()
    'spaced_num_words'
    """
    return signal if words == "segments" else pl.col(SPACED + signal.meta.output_name())


def with_needs(names: Iterable[str]) -> list[str]:
    """The signals among some names, each after those that it needs.

    >>> with_needs(["url", "num_lang_stop_words", "num_chars"])
    ['lang', 'num_lang_stop_words', 'num_chars']
    """
    signals = (name for name in names if name in SIGNALS)
    return [*dict.fromkeys(one for name in signals for one in (*SIGNALS[name].needs, name))]


def identity(names: Iterable[str]) -> dict[str, Any]:
    """What decides these signals besides the code: a model, or lists of words, by their sha256."""
    groups = {SIGNALS[name].group for name in with_needs(names)}
    found = language_id.identity() if "language" in groups else {}
    return found | stop_words.identity() if "stop_words" in groups else found


COSTLY: Final = frozenset({"language", "stop_words"})
"""Groups that are worth waiting for the verdicts before: they are computed for what is still kept."""
