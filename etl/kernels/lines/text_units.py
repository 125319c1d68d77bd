"""Split documents into paragraphs, lines or sentences, hash these, and remove some of them.

Paragraphs and lines are those of ``etl.kernels.lines.repeated``. A sentence ends where ``etl.kernels.words.sentences``
ends it, or with its line. Punctuation before the first word of a sentence belongs to it if white space
precedes that punctuation. A sentence is compared together with those that follow it in its document, ``span``
in all. Two units are equal if their 64-bit hashes are.

One pass over the bytes; sentences are also split into words. About 80 bytes of memory per line of the
longest document, and 36 per unit of all documents.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import inner, kernel
from etl.kernels.lines.repeated import (
    CASE,
    SEED,
    LineBuffers,
    Search,
    cut_unit,
    hash_of,
    joined,
    keep_lines,
    longer,
    new_line_buffers,
    read_lines,
)
from etl.kernels.words.spacy import ChunkBuffers, new_chunk_buffers, next_words
from etl.kernels.words.spacy_english import PUNCTUATION, SENTENCE_END, Tables, tables
from etl.kernels.words.uax29 import END, START

PARAGRAPHS, LINES, SENTENCES = range(3)

NOT_COMPARED: Final = 0
"""The hash of a unit that is too short, or that too few others follow."""


class Cutting(NamedTuple):
    """How to split documents into units, and which units to compare."""

    unit: int  # PARAGRAPHS, LINES or SENTENCES
    min_chars: int  # code points of a unit or span, without white space at the ends of lines
    span: int  # number of sentences to compare together
    ignore: int  # bits of ``repeats``


class Units(NamedTuple):
    """The units of all documents; those of document ``k`` begin at ``first_unit[k]``."""

    first_unit: NDArray[np.int64]  # (n + 1,)
    hashes: NDArray[np.int64]  # (m,), or NOT_COMPARED
    chars: NDArray[np.int32]  # (m,) code points, without white space at the ends of lines


class _Pieces(NamedTuple):
    """Units and their positions, in arrays with spare capacity."""

    lines: NDArray[np.int64]  # (m,) the line that contains the unit, or its first line
    starts: NDArray[np.int64]  # (m,) the first byte
    stops: NDArray[np.int64]  # (m,) the byte after the last
    hashes: NDArray[np.int64]  # (m,)
    chars: NDArray[np.int64]  # (m,)


class _Ranges(NamedTuple):
    """Ranges of bytes, in order and without overlap."""

    starts: NDArray[np.int64]  # (m,) the first byte
    ends: NDArray[np.int64]  # (m,) the byte after the last


class _Tools(NamedTuple):
    """Tables and buffers, reused from document to document."""

    search: Search
    tables: Tables
    words: ChunkBuffers


def units(texts: Texts, cutting: Cutting) -> Units:
    """Return the units of each document, in order; the bytes of a null are split, too."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    pieces = _split_all(texts.offsets, texts.data, _tools(cutting), cutting, first_unit)
    _hash_spans(pieces, first_unit, cutting)
    num = first_unit[-1]
    return Units(first_unit, pieces.hashes[:num], pieces.chars[:num].astype(np.int32))


def pieces(texts: Texts, cutting: Cutting) -> Spans:
    """Return the bytes of each unit, from its first character to its last."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    pieces = _split_all(texts.offsets, texts.data, _tools(cutting), cutting, first_unit)
    num = first_unit[-1]
    return Spans(pieces.starts[:num], pieces.stops[:num], first_unit)


def without(
    texts: Texts, cutting: Cutting, first_cut: NDArray[np.int64], ordinals: NDArray[np.int32]
) -> Spans:
    """Return the spans of each document that remain without the units of some ordinals.

    The ordinals of document ``k`` are ``ordinals[first_cut[k] : first_cut[k + 1]]``. Cuts leave no larger
    gaps, as in ``etl.kernels.lines.repeated``. White space is removed with the sentence before it.
    """
    first_span = np.zeros(len(texts.offsets), np.int64)
    rest, missing = _without(
        texts.offsets, texts.data, _tools(cutting), cutting, (first_cut, ordinals), first_span
    )
    assert missing == 0, "a document has fewer units than the ordinals to remove"
    return Spans(rest.starts, rest.ends, first_span)


def _tools(cutting: Cutting) -> _Tools:
    folds = character_classes.folds() if cutting.ignore & CASE else np.zeros(0, np.int32)
    is_paragraph = cutting.unit == PARAGRAPHS
    search = Search(
        is_paragraph, cutting.min_chars, cutting.ignore, character_classes.classes(), folds
    )
    return _Tools(search, tables(), new_chunk_buffers())


@kernel
def _split_all(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: _Tools,
    cutting: Cutting,
    first_unit: NDArray[np.int64],
) -> _Pieces:
    """Return the units of all documents; those of document ``k`` begin at ``first_unit[k]``."""
    buffers, pieces, num = new_line_buffers(1024), _new_pieces(1024), 0
    for k in range(len(offsets) - 1):
        buffers, _, pieces, num = _split(
            data, offsets[k], offsets[k + 1], tools, cutting, buffers, pieces, num
        )
        first_unit[k + 1] = num
    return pieces


@kernel
def _without(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: _Tools,
    cutting: Cutting,
    cuts: tuple[NDArray[np.int64], NDArray[np.int32]],
    first_span: NDArray[np.int64],
) -> tuple[_Ranges, int]:
    """Return the ranges that remain, and the number of ordinals without a unit."""
    first_cut, ordinals = cuts
    buffers, pieces = new_line_buffers(1024), _new_pieces(1024)
    rest, kept = _new_ranges(1024), _new_ranges(1024)
    num = missing = 0
    for k in range(len(offsets) - 1):
        to_remove = ordinals[first_cut[k] : first_cut[k + 1]]
        if len(to_remove) == 0:
            rest = _with_capacity(rest, num + 1)
            rest.starts[num], rest.ends[num] = offsets[k], offsets[k + 1]
            num += 1
        else:
            buffers, lines, pieces, size = _split(
                data, offsets[k], offsets[k + 1], tools, cutting, buffers, pieces, 0
            )
            removed = np.zeros(size, np.bool_)
            for ordinal in to_remove:
                if ordinal < size:
                    removed[ordinal] = True
                else:
                    missing += 1
            holes = _cut_units(buffers, lines, pieces, removed, cutting)
            kept = _with_capacity(kept, lines + 1)
            num_kept = keep_lines(buffers, lines, offsets[k + 1], kept.starts, kept.ends)
            rest = _with_capacity(rest, num + num_kept + len(holes.starts))
            num = _subtract(kept, num_kept, holes, rest, num)
        first_span[k + 1] = num
    return _Ranges(rest.starts[:num], rest.ends[:num]), missing


@kernel
def _new_pieces(size: int) -> _Pieces:
    return _Pieces(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )


@kernel
def _grown(pieces: _Pieces) -> _Pieces:
    """Return pieces of twice the size that hold all units so far."""
    size = len(pieces.lines)
    return _Pieces(
        longer(pieces.lines, size),
        longer(pieces.starts, size),
        longer(pieces.stops, size),
        longer(pieces.hashes, size),
        longer(pieces.chars, size),
    )


@kernel
def _new_ranges(size: int) -> _Ranges:
    return _Ranges(np.empty(size, np.int64), np.empty(size, np.int64))


@kernel
def _with_capacity(ranges: _Ranges, size: int) -> _Ranges:
    """Return the ranges, extended unless they can hold ``size`` of them."""
    if size <= len(ranges.starts):
        return ranges
    return _Ranges(longer(ranges.starts, size), longer(ranges.ends, size))


@kernel
def _split(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tools: _Tools,
    cutting: Cutting,
    buffers: LineBuffers,
    pieces: _Pieces,
    num: int,
) -> tuple[LineBuffers, int, _Pieces, int]:
    """Split a document, and append its units to the first ``num`` pieces.

    Returns the buffers, the number of lines, the pieces, and the new number of pieces.
    """
    classes = tools.search.classes
    buffers, lines = read_lines(data, at, end, tools.search, buffers)
    is_open = False
    for line in range(lines):
        if buffers.chars[line] == 0:
            is_open = False
            continue
        first, last = strip(data, buffers.starts[line], buffers.stops[line], classes)
        if cutting.unit == SENTENCES:
            pieces, num = _split_sentences(data, first, last, tools, line, pieces, num)
        elif is_open and cutting.unit == PARAGRAPHS:
            pieces.stops[num - 1] = last
            pieces.hashes[num - 1] = joined(pieces.hashes[num - 1], buffers.hashes[line])
            pieces.chars[num - 1] += buffers.chars[line] + 1
        else:
            if num == len(pieces.lines):
                pieces = _grown(pieces)
            pieces.lines[num], pieces.starts[num], pieces.stops[num] = line, first, last
            pieces.hashes[num] = joined(np.int64(SEED), buffers.hashes[line])
            pieces.chars[num] = buffers.chars[line]
            num += 1
        is_open = True
    return buffers, lines, pieces, num


@kernel
def _split_sentences(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tools: _Tools,
    line: int,
    pieces: _Pieces,
    num: int,
) -> tuple[_Pieces, int]:
    """Append the sentences of a line to the pieces."""
    block, flags = tools.words.block, tools.tables.flags
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
                    pieces, num = _append_sentence(
                        data, first, begin, tools.search, line, pieces, num
                    )
                    first, ended = begin, False
            before = stop
    return _append_sentence(data, first, last, tools.search, line, pieces, num)


@inner
def _is_punctuation(data: NDArray[np.uint8], at: int, end: int, flags: NDArray[np.uint32]) -> bool:
    """Return whether all characters of a segment are punctuation."""
    common = np.uint32(PUNCTUATION)
    while at < end:
        point, width = point_at(data, at, end)
        common &= flags[point]
        at += width
    return common > 0


@kernel
def _append_sentence(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    search: Search,
    line: int,
    pieces: _Pieces,
    num: int,
) -> tuple[_Pieces, int]:
    if num == len(pieces.lines):
        pieces = _grown(pieces)
    first, last = strip(data, first, last, search.classes)
    pieces.lines[num], pieces.starts[num], pieces.stops[num] = line, first, last
    pieces.hashes[num], pieces.chars[num] = hash_of(data, first, last, search)
    return pieces, num + 1


@kernel
def _hash_spans(pieces: _Pieces, first_unit: NDArray[np.int64], cutting: Cutting) -> None:
    """Replace hashes of sentences by those of their spans, and of units not compared by NOT_COMPARED."""
    for k in range(len(first_unit) - 1):
        _hash_spans_of(pieces, first_unit[k], first_unit[k + 1], cutting)


@kernel
def _hash_spans_of(pieces: _Pieces, first: int, last: int, cutting: Cutting) -> None:
    span = cutting.span if cutting.unit == SENTENCES else 1
    for unit in range(first, last):
        chars, key = np.int64(0), pieces.hashes[unit]
        if unit + span > last:
            chars = np.int64(-1)
        else:
            for k in range(unit, unit + span):
                chars += pieces.chars[k]
            if span > 1:
                key = np.int64(SEED)
                for k in range(unit, unit + span):
                    key = joined(key, pieces.hashes[k])
        is_compared = chars >= max(cutting.min_chars, 1)
        # NOT_COMPARED is reserved: a unit with this hash, one of 2^64, gets another one.
        pieces.hashes[unit] = (key if key != NOT_COMPARED else 1) if is_compared else NOT_COMPARED


@kernel
def _cut_units(
    buffers: LineBuffers, lines: int, pieces: _Pieces, removed: NDArray[np.bool_], cutting: Cutting
) -> _Ranges:
    """Remove units of a document: mark lines of which nothing remains as cut.

    Returns the holes: the ranges to remove from lines of which some sentences remain.
    """
    buffers.cut[:lines] = False
    holes = _new_ranges(len(removed))
    num = unit = 0
    while unit < len(removed):
        line, after, all_removed = pieces.lines[unit], unit, True
        while (
            after < len(removed) and pieces.lines[after] == line
        ):  # a line can have several sentences
            all_removed &= removed[after]
            after += 1
        if all_removed:
            cut_unit(buffers, line, lines, cutting.unit == PARAGRAPHS)
        else:
            num = _append_holes(pieces, removed, unit, after, holes, num)
        unit = after
    return _Ranges(holes.starts[:num], holes.ends[:num])


@inner
def _append_holes(
    pieces: _Pieces, removed: NDArray[np.bool_], unit: int, after: int, holes: _Ranges, num: int
) -> int:
    """Append the holes of the units of a line, from ``unit`` up to ``after``; return the number of holes.

    A hole includes the white space after a sentence or, for the last sentence of the line, before it.
    """
    for k in range(unit, after):
        if not removed[k]:
            continue
        is_last = k + 1 == after
        start = pieces.stops[k - 1] if is_last else pieces.starts[k]
        end = pieces.stops[k] if is_last else pieces.starts[k + 1]
        if num > 0 and start <= holes.ends[num - 1]:
            holes.ends[num - 1] = end
        else:
            holes.starts[num], holes.ends[num] = start, end
            num += 1
    return num


@kernel
def _subtract(kept: _Ranges, num_kept: int, holes: _Ranges, rest: _Ranges, num: int) -> int:
    """Append the first ``num_kept`` ranges without the holes to ``rest``; return the new number of ranges.

    Each hole lies within one of the ranges.
    """
    hole = 0
    for k in range(num_kept):
        start, end = kept.starts[k], kept.ends[k]
        while hole < len(holes.starts) and holes.starts[hole] < end:
            if start < holes.starts[hole]:
                rest.starts[num], rest.ends[num] = start, holes.starts[hole]
                num += 1
            start = holes.ends[hole]
            hole += 1
        if start < end:
            rest.starts[num], rest.ends[num] = start, end
            num += 1
    return num
