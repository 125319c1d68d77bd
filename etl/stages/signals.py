"""The signals: numbers computed from a text, as Polars columns, with their groups and units."""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import polars as pl
import pyarrow as pa

from etl.kernels.signals import stop_word_lists
from etl.text import language_id, segmenters

num_chars = pl.col("num_chars")
"""Code points. Group: words."""

num_lines = pl.col("num_lines")
"""Lines as ``str.splitlines`` splits them, blank ones included. Group: words."""

num_segments = pl.col("num_segments")
"""Words, numbers, punctuation marks and symbols, as ``etl.kernels.words.spacy`` splits them by the rules of
the document's language; if it is unknown, by the rules of English, but with a segment for each character of
Chinese, Japanese and other scripts without spaces. Group: words."""

num_words = pl.col("num_words")
"""Segments that are not only punctuation. Group: words."""

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
"""Distinct words among the, be, to, of, and, that, have, with; case-sensitive. Group: words."""

duplicate_line_ratio = pl.col("duplicate_line_ratio")
"""Lines that repeat an earlier line, per line that is not empty. Group: lines."""

duplicate_line_char_ratio = pl.col("duplicate_line_char_ratio")
"""Code points in lines that repeat an earlier line, per code point. Group: lines."""

duplicate_paragraph_ratio = pl.col("duplicate_paragraph_ratio")
"""Paragraphs (between blank lines) that repeat an earlier one, per paragraph. Group: lines."""

duplicate_paragraph_char_ratio = pl.col("duplicate_paragraph_char_ratio")
"""Code points in paragraphs that repeat an earlier one, per code point. Group: lines."""

terminal_line_ratio = pl.col("terminal_line_ratio")
"""Lines that end in a character that ends a sentence, per line that is not blank. Group: lines."""

quoted_line_ratio = pl.col("quoted_line_ratio")
"""Lines that end in such a character or in \" or ', per line that is not blank. Group: lines."""

short_line_ratio = pl.col("short_line_ratio")
"""Lines of at most 30 code points, per line that is not blank. Group: lines."""

duplicate_text_ratio = pl.col("duplicate_text_ratio")
"""Code points in non-blank lines that repeat an earlier one, per code point except line feeds. Group:
lines."""

top_2gram_char_ratio = pl.col("top_2gram_char_ratio")
"""Code points in the most frequent run of 2 segments, per code point. Group: words."""

top_3gram_char_ratio = pl.col("top_3gram_char_ratio")
"""Code points in the most frequent run of 3 segments, per code point. Group: words."""

top_4gram_char_ratio = pl.col("top_4gram_char_ratio")
"""Code points in the most frequent run of 4 segments, per code point. Group: words."""

duplicate_5gram_char_ratio = pl.col("duplicate_5gram_char_ratio")
"""Code points in runs of 5 segments that repeat an earlier run, per code point. Group: words."""

duplicate_6gram_char_ratio = pl.col("duplicate_6gram_char_ratio")
"""Code points in runs of 6 segments that repeat an earlier run, per code point. Group: words."""

duplicate_7gram_char_ratio = pl.col("duplicate_7gram_char_ratio")
"""Code points in runs of 7 segments that repeat an earlier run, per code point. Group: words."""

duplicate_8gram_char_ratio = pl.col("duplicate_8gram_char_ratio")
"""Code points in runs of 8 segments that repeat an earlier run, per code point. Group: words."""

duplicate_9gram_char_ratio = pl.col("duplicate_9gram_char_ratio")
"""Code points in runs of 9 segments that repeat an earlier run, per code point. Group: words."""

duplicate_10gram_char_ratio = pl.col("duplicate_10gram_char_ratio")
"""Code points in runs of 10 segments that repeat an earlier run, per code point. Group: words."""

lang = pl.col("lang")
"""The most likely language, a code of lid.176 (ISO 639-1 or -3); a string. With ``labels: letters`` in the
stage ``language``, null if the text has no letter. Group: language."""

lang_score = pl.col("lang_score")
"""The probability of ``lang``, 0 to 1. Group: language."""

num_lang_stop_words = pl.col("num_lang_stop_words")
"""Distinct stop words of the document's language, 0 without a list for it in
``etl.kernels.signals.stop_word_lists``. Group: stop_words."""

Columns = dict[str, pa.Array | pa.ChunkedArray]
"""Columns of documents by name: ``text`` and signals."""


class Signal(NamedTuple):
    """The group that computes a signal, its unit, and the signals that it needs."""

    group: str
    unit: str
    needs: tuple[str, ...] = ()  # signals that are computed before it


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
"""The prefix of signals for which a word is the text between white space."""

DICTIONARY: Final = "dictionary_"
"""The prefix of signals for which the words of Chinese, Japanese and Korean come from a dictionary."""

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
    **{
        DICTIONARY + name: Signal("dictionary", signal.unit, needs=("lang",))
        for name, signal in _WORDS.items()
    },
}
"""All signals in the order of their columns."""

Words = Literal["segments", "spaces", "dictionary"]
"""The definition of a word: a segment, as in spaCy; the text between white space; or a segment, but in
Chinese, Japanese and Korean a word or morpheme of a dictionary (``etl.text.segmenters``), as in datatrove."""

_PREFIXES: Final[dict[Words, str]] = {"segments": "", "spaces": SPACED, "dictionary": DICTIONARY}


def of_words(signal: pl.Expr, words: Words) -> pl.Expr:
    """Return a signal of the group words, or its variant for another definition of a word.

    >>> of_words(num_words, "spaces").meta.output_name()
    'spaced_num_words'
    """
    return pl.col(_PREFIXES[words] + signal.meta.output_name())


def with_needs(names: Iterable[str]) -> list[str]:
    """Return the signals among some names, each after those that it needs.

    >>> with_needs(["url", "num_lang_stop_words", "num_chars"])
    ['lang', 'num_lang_stop_words', 'num_chars']
    """
    signals = (name for name in names if name in SIGNALS)
    return [*dict.fromkeys(needed for name in signals for needed in (*SIGNALS[name].needs, name))]


def signals_identity(names: Iterable[str]) -> dict[str, Any]:
    """Return what determines these signals besides the code: models, word lists, dictionaries.

    Raises RecipeError if a dictionary is not installed.
    """
    groups = {SIGNALS[name].group for name in with_needs(names)}
    return {
        **(language_id.model_identity() if "language" in groups else {}),
        **(stop_word_lists.identity() if "stop_words" in groups else {}),
        **(segmenters.identity() if "dictionary" in groups else {}),
    }


COSTLY: Final = frozenset({"language", "stop_words", "dictionary"})
"""Groups that are computed only before the first filter that reads them, not at the start of a run."""
