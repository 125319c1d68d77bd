"""Count words, symbols, bullets, ellipses and repeated n-grams in one pass over the words.

Words are the segments of ``etl.kernels.words.spacy``, words found elsewhere (``given_words``), or the text
between white space. Segments are read in blocks, and each block is counted before the next one overwrites
it. The quality rules are from Rae et al. 2021, appendix A.1.1; ``etl.kernels.signals.repeated_ngrams``
defines the repeated n-grams.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.simd import CONTINUED, SIZE, count_ones, low_bits, make_byte_finder
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import allocator, inner, kernel
from etl.kernels.signals import repeated_ngrams
from etl.kernels.signals.repeated_ngrams import NgramBuffers, double_buffers, new_ngram_buffers
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
from etl.kernels.words.spacy import ChunkBuffers, new_chunk_buffers, next_chunks, next_words
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
# The columns before are defined in ``segment_counts``; until ``_finish_counts``, stop_words is STOP_BITS.


class WordCounts(NamedTuple):
    """The counts of documents."""

    quality: QualityCounts
    repeated_chars: NDArray[np.int64]  # (n-grams, n): repeated_ngrams.TOP, then DUPLICATE
    lines: pa.Array | None = None  # the counts of each line, see ``segment_counts.to_arrow``


class _Documents(NamedTuple):
    """Documents, their words if these are given, their lines, and the parts whose words are counted."""

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    given: GivenWords
    lines: Lines
    parts: Lines


class _Options(NamedTuple):
    """What to count."""

    by_space: bool
    with_words: bool
    marks: bool
    repeated: bool
    is_cut: bool


class _Results(NamedTuple):
    """The counts of documents and of their parts, and the code points in repeated n-grams."""

    counts: NDArray[np.int64]  # (n, COUNTS)
    of_parts: NDArray[np.int64]  # (parts, NUM_COUNTS)
    repeated_chars: NDArray[np.int64]  # (n, n-grams)


class _Task(NamedTuple):
    """What is counted, and where the counts go."""

    documents: _Documents
    tables: SpacyTables
    options: _Options
    results: _Results


class _Position(NamedTuple):
    """A position in a document."""

    document: int
    at: int  # the byte
    given: int  # the next word, if they are given
    part: int
    words: int  # the number of words before it, if n-grams are counted


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
    task = _Task(
        _Documents(texts.offsets, texts.data, no_words() if given is None else given, lines, parts),
        tables(rules),
        _Options(by_space, with_words, marks, repeated, known is None),
        _Results(counts, of_parts, repeated_chars),
    )
    _count(task)
    of_lines = to_arrow(lines.first, of_parts) if by_line else None
    return WordCounts(QualityCounts(*counts.T), repeated_chars.T, of_lines)


@allocator
def _count(task: _Task) -> None:
    buffers, num = new_chunk_buffers(), len(task.results.counts)
    ngrams = new_ngram_buffers(2 * len(buffers.block) if task.options.repeated else 0)
    position = _start(task, 0)
    while position.document < num:
        position = _count_documents(task, buffers, ngrams, position)
        if position.document < num:
            # A kernel cannot replace its buffers, so it returns its position, and continues there with
            # larger ones.
            ngrams = double_buffers(ngrams, position.words)


@kernel
def _count_documents(
    task: _Task, buffers: ChunkBuffers, ngrams: NgramBuffers, position: _Position
) -> _Position:
    """Count from a position on, and return where the buffers of n-grams may not have room for more."""
    while position.document < len(task.results.counts):
        position = _count_blocks(task, buffers, ngrams, position)
        if position.at < task.documents.offsets[position.document + 1]:
            break
        _finish_document(task, position.document)
        if task.options.repeated:
            repeated_chars = task.results.repeated_chars[position.document]
            repeated_ngrams.repeated_chars(ngrams, position.words, repeated_chars)
        position = _start(task, position.document + 1)
    return position


@inner
def _start(task: _Task, k: int) -> _Position:
    """Return the position before the first word of document ``k``, or behind its words if they are known."""
    documents = task.documents
    given = documents.given.first[k] if len(documents.given.first) else np.int64(0)
    at = documents.offsets[k if task.options.is_cut else min(k + 1, len(documents.offsets) - 1)]
    return _Position(k, at, given, documents.parts.first[k], 0)


@inner
def _count_blocks(
    task: _Task, buffers: ChunkBuffers, ngrams: NgramBuffers, position: _Position
) -> _Position:
    """Count the words of the position's document, as long as there is room for the n-grams of a block."""
    documents, tables, options, results = task
    k, at, word, part, words = position
    data, given, end = documents.data, documents.given, documents.offsets[k + 1]
    # Stop before a block that may not fit into the buffers of n-grams.
    while at < end and not (options.repeated and words + len(buffers.block) > len(ngrams.firsts)):
        if len(given.first):
            after = given.first[k + 1]
            word, num = next_given_words(data, given, word, after, tables, buffers)
            at = end if word == after else at
        elif options.by_space:
            at, num = next_chunks(data, at, end, tables, buffers)
        else:
            at, num = next_words(data, at, end, tables, buffers, options.with_words)
        if options.with_words:
            part = add_block(data, buffers.block, num, documents.parts.ends, results.of_parts, part)
        else:
            results.counts[k, SEGMENTS] += num
        if options.repeated:
            repeated_ngrams.add_words(data, buffers.block, num, ngrams, words)
            words += num
    return _Position(k, at, word, part, words)


@inner
def _finish_document(task: _Task, k: int) -> None:
    """Complete the counts of document ``k`` after its last block, except its n-grams."""
    documents, tables, options, results = task
    data, first, end = documents.data, documents.offsets[k], documents.offsets[k + 1]
    row, parts = results.counts[k], documents.parts.first
    add_lines(results.of_parts, parts[k], parts[k + 1], results.counts, k)
    _finish_counts(data, first, end, row)
    if options.marks:
        _count_marks(data, first, end, documents.lines, k, tables.classes, row)


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
        # Three dots are an ellipsis: bit n of all three masks is set if dots are at n, n + 1 and n + 2.
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
