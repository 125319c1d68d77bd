"""Signals: the numbers about a document that rules compare with thresholds.

Each is a column of ``documents``; in rules it is a Polars column: ``num_words < 50``. A group of signals
is computed in one pass over the text.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels import paragraphs, quality, repetition
from etl.kernels.utf8 import Texts, count_chars, texts
from etl.stages import lid

num_chars = pl.col("num_chars")
"""Code points. Kernel: quality."""

num_lines = pl.col("num_lines")
"""Lines as ``str.splitlines`` splits them, blank ones included. Kernel: quality."""

num_segments = pl.col("num_segments")
"""Words, numbers, punctuation marks and symbols between word boundaries (UAX #29). Kernel: quality."""

num_words = pl.col("num_words")
"""Segments with a letter or a digit. Kernel: quality."""

mean_word_length = pl.col("mean_word_length")
"""Code points per word. Kernel: quality."""

symbol_word_ratio = pl.col("symbol_word_ratio")
"""'#' per segment. Kernel: quality."""

ellipsis_word_ratio = pl.col("ellipsis_word_ratio")
"""'...' and '…' per segment. Kernel: quality."""

bullet_line_ratio = pl.col("bullet_line_ratio")
"""Lines that begin, after white space, with '-' or '•', per line. Kernel: quality."""

ellipsis_line_ratio = pl.col("ellipsis_line_ratio")
"""Lines that end, before white space, in '...' or '…', per line. Kernel: quality."""

alpha_word_ratio = pl.col("alpha_word_ratio")
"""Words with a letter, per segment. Kernel: quality."""

num_stop_words = pl.col("num_stop_words")
"""Distinct ones among the, be, to, of, and, that, have, with, as they stand. Kernel: quality."""

duplicate_line_ratio = pl.col("duplicate_line_ratio")
"""Lines equal to one before, per line; here lines are stripped, blank ones left out. Kernel: paragraphs."""

duplicate_line_char_ratio = pl.col("duplicate_line_char_ratio")
"""Code points in lines equal to one before, per code point. Kernel: paragraphs."""

duplicate_paragraph_ratio = pl.col("duplicate_paragraph_ratio")
"""Paragraphs (between blank lines) equal to one before, per paragraph. Kernel: paragraphs."""

duplicate_paragraph_char_ratio = pl.col("duplicate_paragraph_char_ratio")
"""Code points in paragraphs equal to one before, per code point. Kernel: paragraphs."""

terminal_line_ratio = pl.col("terminal_line_ratio")
"""Lines that end in one of ``paragraphs.TERMINAL``, per line that is not blank. Kernel: paragraphs."""

short_line_ratio = pl.col("short_line_ratio")
"""Lines of at most 30 code points, per line that is not blank. Kernel: paragraphs."""

top_2gram_char_ratio = pl.col("top_2gram_char_ratio")
"""Code points in the most frequent run of 2 segments, per code point. Kernel: repetition."""

top_3gram_char_ratio = pl.col("top_3gram_char_ratio")
"""Code points in the most frequent run of 3 segments, per code point. Kernel: repetition."""

top_4gram_char_ratio = pl.col("top_4gram_char_ratio")
"""Code points in the most frequent run of 4 segments, per code point. Kernel: repetition."""

duplicate_5gram_char_ratio = pl.col("duplicate_5gram_char_ratio")
"""Code points in runs of 5 segments seen before, per code point. Kernel: repetition."""

duplicate_6gram_char_ratio = pl.col("duplicate_6gram_char_ratio")
"""Code points in runs of 6 segments seen before, per code point. Kernel: repetition."""

duplicate_7gram_char_ratio = pl.col("duplicate_7gram_char_ratio")
"""Code points in runs of 7 segments seen before, per code point. Kernel: repetition."""

duplicate_8gram_char_ratio = pl.col("duplicate_8gram_char_ratio")
"""Code points in runs of 8 segments seen before, per code point. Kernel: repetition."""

duplicate_9gram_char_ratio = pl.col("duplicate_9gram_char_ratio")
"""Code points in runs of 9 segments seen before, per code point. Kernel: repetition."""

duplicate_10gram_char_ratio = pl.col("duplicate_10gram_char_ratio")
"""Code points in runs of 10 segments seen before, per code point. Kernel: repetition."""

lang = pl.col("lang")
"""The most likely language, a code of lid.176 (ISO 639-1, else -3); a string. Model: language."""

lang_score = pl.col("lang_score")
"""The probability of ``lang``, 0 to 1. Model: language."""


class Signal(NamedTuple):
    """Which pass computes a signal, and what its number counts."""

    group: str
    unit: str


SIGNALS: Final[dict[str, Signal]] = {
    "num_chars": Signal("quality", "code points"),
    "num_lines": Signal("quality", "lines"),
    "num_segments": Signal("quality", "segments"),
    "num_words": Signal("quality", "words"),
    "mean_word_length": Signal("quality", "code points per word"),
    "symbol_word_ratio": Signal("quality", "'#' per segment"),
    "ellipsis_word_ratio": Signal("quality", "ellipses per segment"),
    "bullet_line_ratio": Signal("quality", "share of lines"),
    "ellipsis_line_ratio": Signal("quality", "share of lines"),
    "alpha_word_ratio": Signal("quality", "words with a letter per segment"),
    "num_stop_words": Signal("quality", "distinct words of 8"),
    "duplicate_line_ratio": Signal("lines", "share of lines"),
    "duplicate_line_char_ratio": Signal("lines", "share of code points"),
    "duplicate_paragraph_ratio": Signal("lines", "share of paragraphs"),
    "duplicate_paragraph_char_ratio": Signal("lines", "share of code points"),
    "terminal_line_ratio": Signal("lines", "share of lines"),
    "short_line_ratio": Signal("lines", "share of lines"),
    "top_2gram_char_ratio": Signal("repetition", "share of code points"),
    "top_3gram_char_ratio": Signal("repetition", "share of code points"),
    "top_4gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_5gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_6gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_7gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_8gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_9gram_char_ratio": Signal("repetition", "share of code points"),
    "duplicate_10gram_char_ratio": Signal("repetition", "share of code points"),
    "lang": Signal("language", "language code"),
    "lang_score": Signal("language", "probability"),
}
"""All signals in the order of their columns."""


def compute(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with the named signals of its column ``text`` appended, or put in place of old ones.

    Signals are float64, ``lang`` a string; null where the text is null. Each group is computed once.

    >>> table = pa.table({"text": ["To be, or not to be?", None]})
    >>> compute(table, ["num_words", "num_stop_words"]).select([1, 2]).to_pylist()[0]
    {'num_words': 6.0, 'num_stop_words': 2.0}
    """
    groups = dict.fromkeys(SIGNALS[name].group for name in names)
    found: dict[str, pa.Array] = {}
    for group in groups:
        found |= GROUPS[group](table["text"])
    for name in names:
        at = table.column_names.index(name) if name in table.column_names else None
        if at is None:
            table = table.append_column(name, found[name])
        else:
            table = table.set_column(at, name, found[name])
    return table


def _quality(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    documents = texts(column)
    counts = dict(zip(quality.COUNTS, quality.count(documents).astype(np.float64), strict=True))
    segments, lines = counts["segments"], counts["lines"]
    values = {
        "num_chars": counts["chars"],
        "num_lines": lines,
        "num_segments": segments,
        "num_words": counts["words"],
        "mean_word_length": _per(counts["word_chars"], counts["words"]),
        "symbol_word_ratio": _per(counts["hashes"], segments),
        "ellipsis_word_ratio": _per(counts["ellipses"], segments),
        "bullet_line_ratio": _per(counts["bullet_lines"], lines),
        "ellipsis_line_ratio": _per(counts["ellipsis_lines"], lines),
        "alpha_word_ratio": _per(counts["alpha_words"], segments),
        "num_stop_words": counts["stop_words"],
    }
    return _columns(values, documents)


def _lines(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    documents = texts(column)
    found = paragraphs.count(documents).astype(np.float64)
    counts = dict(zip(paragraphs.COUNTS, found, strict=True))
    lines, chars = counts["lines"], count_chars(documents).astype(np.float64)
    values = {
        "duplicate_line_ratio": _per(counts["duplicate_lines"], lines),
        "duplicate_line_char_ratio": _per(counts["duplicate_line_chars"], chars),
        "duplicate_paragraph_ratio": _per(counts["duplicate_paragraphs"], counts["paragraphs"]),
        "duplicate_paragraph_char_ratio": _per(counts["duplicate_paragraph_chars"], chars),
        "terminal_line_ratio": _per(counts["terminal_lines"], lines),
        "short_line_ratio": _per(counts["short_lines"], lines),
    }
    return _columns(values, documents)


def _repetition(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    documents = texts(column)
    chars = count_chars(documents).astype(np.float64)
    names = [
        *(f"top_{n}gram_char_ratio" for n in repetition.TOP),
        *(f"duplicate_{n}gram_char_ratio" for n in repetition.DUPLICATE),
    ]
    found = repetition.repeated_chars(documents).astype(np.float64)
    return _columns(dict(zip(names, _per(found, chars), strict=True)), documents)


def _columns(values: dict[str, NDArray[np.float64]], documents: Texts) -> dict[str, pa.Array]:
    null = None if documents.valid is None else ~documents.valid
    return {name: pa.array(array, pa.float64(), mask=null) for name, array in values.items()}


def _per(count: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """A ratio, which is 0 where the whole is."""
    return count / np.maximum(whole, 1)


def _language(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    labels, scores = lid.identify(column)
    return {"lang": labels, "lang_score": scores}


GROUPS: Final[dict[str, Callable[[pa.ChunkedArray], dict[str, pa.Array]]]] = {
    "quality": _quality,
    "lines": _lines,
    "repetition": _repetition,
    "language": _language,
}
"""Group -> the one pass over a column of texts that gives all its signals."""

COSTLY: Final = frozenset({"language"})
"""Groups that are worth waiting for the verdicts before: they are computed for what is still kept."""
