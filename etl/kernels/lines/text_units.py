"""Split documents into paragraphs, lines or sentences, and hash these.

Paragraphs and lines are defined in ``etl.kernels.lines.repeated``. A sentence ends where
``etl.kernels.words.sentences`` ends it, or with its line. Punctuation before the first word of a sentence
belongs to it if white space precedes that punctuation. A sentence is compared together with those that
follow it in its document, ``span`` in all. Two units are equal if their 64-bit hashes are.

One pass over the bytes; sentences are also split into words, and paragraphs of several lines are hashed
again if the amount of white space is ignored. About 84 bytes of memory per line of the longest document, and
44 per unit of all documents.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.hash64 import SEED, fold_hash
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import allocator, inner, kernel
from etl.kernels.lines.repeated import (
    CASE,
    LineBuffers,
    Search,
    extend_array,
    hash_line,
    hash_lines,
    new_line_buffers,
    read_lines,
)
from etl.kernels.words.spacy import ChunkBuffers, new_chunk_buffers, next_words
from etl.kernels.words.spacy_tables import PUNCTUATION, SENTENCE_END, SpacyTables, tables
from etl.kernels.words.uax29 import END, START

PARAGRAPHS, LINES, SENTENCES = range(3)

NOT_COMPARED: Final = 0
"""The hash of a unit that is too short, or that too few others follow."""


class Cutting(NamedTuple):
    """How to split documents into units, and which units to compare."""

    unit: int  # PARAGRAPHS, LINES or SENTENCES
    min_chars: int  # code points of a unit or span, as compared
    span: int  # number of sentences to compare together
    ignore: int  # bits of ``etl.kernels.lines.repeated``


class Units(NamedTuple):
    """The units of all documents; document ``k`` begins at unit ``first_unit[k]``."""

    first_unit: NDArray[np.int64]  # (n + 1,)
    hashes: NDArray[np.int64]  # (m,), or NOT_COMPARED
    chars: NDArray[np.int32]  # (m,) code points, without white space at the ends of lines


class UnitBuffers(NamedTuple):
    """Units and their positions, in arrays with spare capacity."""

    lines: NDArray[np.int64]  # (m,) the line that contains the unit, or its first line
    starts: NDArray[np.int64]  # (m,) the first byte
    stops: NDArray[np.int64]  # (m,) the byte after the last
    hashes: NDArray[np.int64]  # (m,)
    chars: NDArray[np.int64]  # (m,)
    compared: NDArray[np.int64]  # (m,) code points without the differences to ignore


class Tools(NamedTuple):
    """Tables and buffers, reused from document to document."""

    search: Search
    tables: SpacyTables
    words: ChunkBuffers


def hash_units(texts: Texts, cutting: Cutting) -> Units:
    """Return the units of each document, in order; the bytes of a null are split, too."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    units = _split_all(texts.offsets, texts.data, new_tools(cutting), cutting, first_unit)
    _hash_spans(units, first_unit, cutting)
    num = first_unit[-1]
    return Units(first_unit, units.hashes[:num], units.chars[:num].astype(np.int32))


def locate_units(texts: Texts, cutting: Cutting) -> Spans:
    """Return the bytes of each unit, from its first character to its last."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    units = _split_all(texts.offsets, texts.data, new_tools(cutting), cutting, first_unit)
    num = first_unit[-1]
    return Spans(units.starts[:num], units.stops[:num], first_unit)


def new_tools(cutting: Cutting) -> Tools:
    """Return the tables and buffers to split documents with."""
    folds = character_classes.folds() if cutting.ignore & CASE else np.zeros(0, np.int32)
    is_paragraph = cutting.unit == PARAGRAPHS
    search = Search(
        is_paragraph, cutting.min_chars, cutting.ignore, character_classes.classes(), folds
    )
    return Tools(search, tables(), new_chunk_buffers())


@allocator
def _split_all(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: Tools,
    cutting: Cutting,
    first_unit: NDArray[np.int64],
) -> UnitBuffers:
    """Return the units of all documents; document ``k`` begins at unit ``first_unit[k]``."""
    buffers, units, num = new_line_buffers(1024), new_unit_buffers(1024), 0
    for k in range(len(offsets) - 1):
        buffers, _, units, num = split_document(
            data, offsets[k], offsets[k + 1], tools, cutting, buffers, units, num
        )
        first_unit[k + 1] = num
    return units


@allocator
def new_unit_buffers(size: int) -> UnitBuffers:
    """Return arrays for ``size`` units."""
    return UnitBuffers(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )


@allocator
def _double(units: UnitBuffers) -> UnitBuffers:
    """Return units of twice the size that hold all units so far."""
    size = len(units.lines)
    return UnitBuffers(
        extend_array(units.lines, size),
        extend_array(units.starts, size),
        extend_array(units.stops, size),
        extend_array(units.hashes, size),
        extend_array(units.chars, size),
        extend_array(units.compared, size),
    )


@allocator
def split_document(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tools: Tools,
    cutting: Cutting,
    buffers: LineBuffers,
    units: UnitBuffers,
    num: int,
) -> tuple[LineBuffers, int, UnitBuffers, int]:
    """Split a document, and append its units to the first ``num`` units.

    Returns the buffers, the number of lines, the units, and the new number of units.
    """
    classes = tools.search.classes
    buffers, lines = read_lines(data, at, end, tools.search, buffers)
    line = 0
    while line < lines:
        if buffers.chars[line] == 0:
            line += 1
            continue
        first, last = strip(data, buffers.starts[line], buffers.stops[line], classes)
        if cutting.unit == SENTENCES:
            units, num = _split_sentences(data, first, last, tools, line, units, num)
            line += 1
            continue
        stop, chars = line + 1, np.int64(buffers.chars[line])
        # A paragraph goes on to the next blank line; a line break between its lines counts as a
        # character.
        while cutting.unit == PARAGRAPHS and stop < lines and buffers.chars[stop] > 0:
            chars += buffers.chars[stop] + 1
            stop += 1
        _, last = strip(data, buffers.starts[stop - 1], buffers.stops[stop - 1], classes)
        if num == len(units.lines):
            units = _double(units)
        units.lines[num], units.starts[num], units.stops[num] = line, first, last
        key, compared = hash_lines(data, buffers, line, stop, tools.search)
        units.hashes[num], units.chars[num], units.compared[num] = key, chars, compared
        num += 1
        line = stop
    return buffers, lines, units, num


@allocator
def _split_sentences(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tools: Tools,
    line: int,
    units: UnitBuffers,
    num: int,
) -> tuple[UnitBuffers, int]:
    """Append the sentences of a line to the units."""
    block, flags = tools.words.block, tools.tables.flags
    # A sentence ends with a mark, and with the punctuation that follows without a space: the quote of
    # ``he said." Then``. The next one begins at the next segment after a space, or with the next word.
    at, ended = first, False
    begin, before = -1, first  # where the next sentence may begin; the end of the last segment
    while at < last:
        at, segments = next_words(data, at, last, tools.tables, tools.words, True)
        for k in range(segments):
            start, stop = block[k, START], block[k, END]
            point, width = point_at(data, start, stop)
            if width == stop - start and flags[point] & SENTENCE_END:
                ended, begin = True, -1
            elif ended:
                if begin < 0 and start > before:
                    begin = start
                if not _is_punctuation(data, start, stop, flags):
                    begin = start if begin < 0 else begin
                    units, num = _append_sentence(
                        data, first, begin, tools.search, line, units, num
                    )
                    first, ended = begin, False
            before = stop
    return _append_sentence(data, first, last, tools.search, line, units, num)


@inner
def _is_punctuation(data: NDArray[np.uint8], at: int, end: int, flags: NDArray[np.uint32]) -> bool:
    """Return whether all characters of a segment are punctuation."""
    common = np.uint32(PUNCTUATION)
    while at < end:
        point, width = point_at(data, at, end)
        common &= flags[point]
        at += width
    return common > 0


@allocator
def _append_sentence(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    search: Search,
    line: int,
    units: UnitBuffers,
    num: int,
) -> tuple[UnitBuffers, int]:
    if num == len(units.lines):
        units = _double(units)
    first, last = strip(data, first, last, search.classes)
    units.lines[num], units.starts[num], units.stops[num] = line, first, last
    key, chars, compared = hash_line(data, first, last, search)
    units.hashes[num], units.chars[num], units.compared[num] = key, chars, compared
    return units, num + 1


@kernel
def _hash_spans(units: UnitBuffers, first_unit: NDArray[np.int64], cutting: Cutting) -> None:
    """Replace hashes of sentences by hashes of their spans, and of units not compared by NOT_COMPARED."""
    for k in range(len(first_unit) - 1):
        _hash_spans_of(units, first_unit[k], first_unit[k + 1], cutting)


@kernel
def _hash_spans_of(units: UnitBuffers, first: int, last: int, cutting: Cutting) -> None:
    span = cutting.span if cutting.unit == SENTENCES else 1
    for unit in range(first, last):
        compared, key = np.int64(0), units.hashes[unit]
        # The last units of a document begin no span: a span of 3 needs two more.
        if unit + span > last:
            compared = np.int64(-1)
        else:
            for k in range(unit, unit + span):
                compared += units.compared[k]
            if span > 1:
                key = np.int64(SEED)
                for k in range(unit, unit + span):
                    key = fold_hash(key, units.hashes[k])
        is_compared = compared >= max(cutting.min_chars, 1)
        # NOT_COMPARED is reserved: a unit with this hash, one of 2^64, gets another one.
        units.hashes[unit] = (key if key != NOT_COMPARED else 1) if is_compared else NOT_COMPARED
