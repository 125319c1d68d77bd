"""Count words, symbols, bullets, ellipses and repeated n-grams in one pass over the words.

Words are the segments of ``etl.kernels.words.spacy``, words found elsewhere (``given_words``), or the text
between white space. They are read in
blocks, and each block is counted before the next one overwrites it. The quality rules are those of Rae et
al. 2021, appendix A.1.1; the repeated n-grams those of ``etl.kernels.signals.repeated_ngrams``.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.simd import CONTINUED, SIZE, count_ones, low_bits, make_byte_finder
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import inner, kernel
from etl.kernels.signals import repeated_ngrams
from etl.kernels.words.given_words import GivenWords, next_given_words, no_words
from etl.kernels.words.segment_counts import (
    NUM_COUNTS,
    SEGMENTS,
    STOP_BITS,
    Lines,
    add_block,
    add_lines,
    find_lines,
    to_arrow,
)
from etl.kernels.words.spacy import new_chunk_buffers, next_chunks, next_words
from etl.kernels.words.spacy_tables import UNKNOWN, SpacyTables, tables

_DASH, _DOT = (ord(char) for char in "-.")
_BULLET, _ELLIPSIS = 0xA2, 0xA6  # the last byte of '•' and '…', after E2 80
_find_symbols = make_byte_finder(b"#", b".", b"\xe2")
_find_feeds = make_byte_finder(b"\n", CONTINUED)


class QualityCounts(NamedTuple):
    """The counts of documents: arrays of int64 (n,)."""

    segments: NDArray[np.int64]  # words, numbers, punctuation marks
    words: NDArray[np.int64]  # segments with a character that is not punctuation
    alpha_words: NDArray[np.int64]  # segments with a letter
    word_chars: NDArray[np.int64]  # code points in words
    stop_words: NDArray[np.int64]  # distinct ones of ``segment_counts.STOP_WORDS``
    hashes: NDArray[np.int64]  # '#'
    ellipses: NDArray[np.int64]  # '...' (without overlap) and '…'
    chars: NDArray[np.int64]  # code points
    newlines: NDArray[np.int64]  # line feeds
    lines: NDArray[np.int64]  # as str.splitlines, blank ones included
    bullet_lines: NDArray[np.int64]  # begin, after white space, with '-' or '•'
    ellipsis_lines: NDArray[np.int64]  # end, before white space, in '...' or '…'


COUNTS: Final = QualityCounts._fields
"""The names of the counts, in order."""

(
    _HASHES, _ELLIPSES, _CHARS, _NEWLINES, _LINES, _BULLET_LINES, _ELLIPSIS_LINES
) = range(NUM_COUNTS, len(COUNTS))  # fmt: skip
# The columns before are those of ``segment_counts``; until ``_finish_counts``, stop_words is STOP_BITS.


class WordCounts(NamedTuple):
    """The counts of documents."""

    quality: QualityCounts
    repeated_chars: NDArray[np.int64]  # (n-grams, n): repeated_ngrams.TOP, then DUPLICATE
    lines: pa.Array | None = None  # the counts of each line, see ``segment_counts.to_arrow``


def count_words(
    texts: Texts,
    *,
    rules: str = UNKNOWN,
    given: GivenWords | None = None,
    by_space: bool = False,
    words: bool = True,
    marks: bool = True,
    repeated: bool = False,
    by_line: bool = False,
    known: NDArray[np.int64] | None = None,
) -> WordCounts:
    """Count the words of each document, and the code points in repeated n-grams if ``repeated``.

    Words are the segments of ``etl.kernels.words.spacy`` by the rules of a language (``rules_of``), or those
    given, or with ``by_space`` the text between white space.
    Bytes of nulls are counted too. Without ``words`` segments are counted but not examined: the counts
    of words remain 0. Without ``marks`` the counts of symbols and lines remain 0, and without ``repeated``
    ``repeated_chars`` has no rows. With ``by_line`` the words of each line are counted, too. If the counts of
    words of each document are ``known``, (n, NUM_COUNTS), the words are not counted again.
    """
    num = len(texts.offsets) - 1
    counts = np.zeros((num, len(COUNTS)), np.int64)
    if known is not None:
        counts[:, :NUM_COUNTS] = known
    num_grams = len(repeated_ngrams.TOP) + len(repeated_ngrams.DUPLICATE) if repeated else 0
    repeated_chars = np.zeros((num, num_grams), np.int64)
    with_words = words or repeated or by_space or by_line or given is not None
    documents = Lines(np.arange(num + 1), texts.offsets[1:].copy())
    lines = find_lines(texts) if marks or by_line else documents
    parts = lines if by_line else documents
    of_parts = np.zeros((len(parts.ends), NUM_COUNTS), np.int64)
    _count(
        texts.offsets,
        texts.data,
        tables(rules),
        no_words() if given is None else given,
        lines,
        parts,
        counts,
        of_parts,
        repeated_chars,
        by_space,
        with_words,
        marks,
        known is None,
    )
    of_lines = to_arrow(lines.first, of_parts) if by_line else None
    return WordCounts(QualityCounts(*counts.T), repeated_chars.T, of_lines)


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: SpacyTables,
    given: GivenWords,
    lines: Lines,
    parts: Lines,
    counts: NDArray[np.int64],
    of_parts: NDArray[np.int64],
    repeated_chars: NDArray[np.int64],
    by_space: bool,
    with_words: bool,
    marks: bool,
    is_cut: bool,
) -> None:
    buffers = new_chunk_buffers()
    repeated = repeated_chars.shape[1] > 0
    words = repeated_ngrams.new_ngram_buffers(len(buffers.block) if repeated else 0)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words, part = 0, parts.first[k]
        word, after_words = (given.first[k], given.first[k + 1]) if len(given.first) else (0, 0)
        while at < end and is_cut:
            if len(given.first):
                word, num = next_given_words(data, given, word, after_words, tables, buffers)
                at = end if word == after_words else at
            elif by_space:
                at, num = next_chunks(data, at, end, tables, buffers)
            else:
                at, num = next_words(data, at, end, tables, buffers, with_words)
            if with_words:
                part = add_block(data, buffers.block, num, parts.ends, of_parts, part)
            else:
                counts[k, SEGMENTS] += num
            if repeated:
                if num_words + num > len(words.firsts):
                    words = repeated_ngrams.double_buffers(words, num_words)
                repeated_ngrams.add_words(data, buffers.block, num, words, num_words)
                num_words += num
        add_lines(of_parts, parts.first[k], parts.first[k + 1], counts, k)
        _finish_counts(data, offsets[k], end, counts[k])
        if marks:
            _count_marks(data, offsets[k], end, lines, k, tables.classes, counts[k])
        if repeated:
            repeated_ngrams.repeated_chars(words, num_words, repeated_chars[k])


@inner
def _finish_counts(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    out: NDArray[np.int64],
) -> None:
    """Complete the counts of a document after its last block, except symbols and lines."""
    out[STOP_BITS] = count_ones(out[STOP_BITS])
    chars = end - first
    while first < end:
        feeds, continued = _find_feeds(data, first)
        out[_NEWLINES] += count_ones(feeds & low_bits(end - first))
        chars -= count_ones(continued & low_bits(end - first))
        first += SIZE
    out[_CHARS] = chars


@inner
def _count_marks(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    lines: Lines,
    k: int,
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Count the symbols and lines of document ``k``."""
    out[_HASHES], out[_ELLIPSES] = _count_symbols(data, first, end)
    out[_LINES] = lines.first[k + 1] - lines.first[k]
    out[_BULLET_LINES], out[_ELLIPSIS_LINES] = _count_kinds_of_lines(data, first, lines, k, classes)


@inner
def _count_symbols(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Count the hashes and the ellipses."""
    hashes = ellipses = 0
    while at < end:
        signs, dots, leads = _find_symbols(data, at)
        dots &= low_bits(end - at)
        size = min(end - at, SIZE - 2)  # the mask shows whether two dots follow these bytes
        candidates = (dots & dots >> 1 & dots >> 2 | leads) & low_bits(size)
        if candidates:
            size = simd.first_bit(candidates)
        hashes += count_ones(signs & low_bits(size))
        at += size
        if candidates and data[at] == _DOT:
            ellipses += 1
            at += 3
        elif candidates:
            ellipses += _is_general(data, at, end, _ELLIPSIS)
            at += 1
    return hashes, ellipses


@inner
def _count_kinds_of_lines(
    data: NDArray[np.uint8], at: int, lines: Lines, k: int, classes: NDArray[np.uint8]
) -> tuple[int, int]:
    """Count the lines of document ``k`` with a bullet, and those that end in an ellipsis."""
    bullet_lines = ellipsis_lines = 0
    for line in range(lines.first[k], lines.first[k + 1]):
        first, last = strip(data, at, lines.ends[line], classes)  # a line break is white space
        bullet_lines += first < last and (
            data[first] == _DASH or _is_general(data, first, last, _BULLET)
        )
        ellipsis_lines += last - first >= 3 and (
            (data[last - 1] == _DOT and data[last - 2] == _DOT and data[last - 3] == _DOT)
            or _is_general(data, last - 3, last, _ELLIPSIS)
        )
        at = lines.ends[line]
    return bullet_lines, ellipsis_lines


@inner
def _is_general(data: NDArray[np.uint8], at: int, end: int, last: int) -> bool:
    """Return whether the character at a byte is the one of U+2000 to U+203F whose UTF-8 ends in ``last``."""
    return at + 3 <= end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == last
