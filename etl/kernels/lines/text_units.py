"""The paragraphs, lines or sentences of documents: when they are equal, and the rest without some.

Paragraphs and lines are those of ``etl.kernels.lines.repeated``. A sentence ends where ``etl.kernels.words.sentences``
says so, or with its line; punctuation before its first word belongs to it if white space stands before
that. It is compared together with those that follow it, ``span`` in all, within its document. Two are
equal if 64 bits of them are.

One pass over the bytes; sentences are cut into words besides. About 80 bytes of memory per line of the
longest document, and 36 per unit of all.
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
    Room,
    Search,
    hash_of,
    joined,
    keep_lines,
    longer,
    new_room,
    read_lines,
)
from etl.kernels.words.spacy import Room as WordRoom
from etl.kernels.words.spacy import new_room as new_word_room
from etl.kernels.words.spacy import next_words
from etl.kernels.words.spacy_english import PUNCTUATION, SENTENCE_END, Tables, tables
from etl.kernels.words.uax29 import END, START

PARAGRAPHS, LINES, SENTENCES = range(3)

NOT_COMPARED: Final = 0
"""The hash of a unit that is too short, or not followed by enough others."""


class Cutting(NamedTuple):
    """How documents are cut into units, and which of these are compared."""

    unit: int  # PARAGRAPHS, LINES or SENTENCES
    min_chars: int  # code points of what is compared, without white space at the ends of lines
    span: int  # sentences that are compared together
    ignore: int  # bits of ``repeats``


class Units(NamedTuple):
    """The units of documents, flat; those of document ``k`` begin at ``first_unit[k]``."""

    first_unit: NDArray[np.int64]  # (n + 1,)
    hashes: NDArray[np.int64]  # (m,), NOT_COMPARED for what is not compared
    chars: NDArray[np.int32]  # (m,) code points, without white space at the ends of lines


class _Pieces(NamedTuple):
    """Units as they are found, and where."""

    lines: NDArray[np.int64]  # (m,) the line of its document that holds it, or with which it begins
    starts: NDArray[np.int64]  # (m,) the first byte
    stops: NDArray[np.int64]  # (m,) the byte after the last
    hashes: NDArray[np.int64]  # (m,)
    chars: NDArray[np.int64]  # (m,)


class _Tools(NamedTuple):
    """What is used again from document to document."""

    search: Search
    tables: Tables
    words: WordRoom


def units(texts: Texts, cutting: Cutting) -> Units:
    """The units of each document, in order; whatever a null holds is cut, too."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    found = _every(texts.offsets, texts.data, _tools(cutting), cutting, first_unit)
    _compare(found, first_unit, cutting)
    num = first_unit[-1]
    return Units(first_unit, found.hashes[:num], found.chars[:num].astype(np.int32))


def pieces(texts: Texts, cutting: Cutting) -> Spans:
    """The bytes of each unit, from its first character to its last."""
    first_unit = np.zeros(len(texts.offsets), np.int64)
    found = _every(texts.offsets, texts.data, _tools(cutting), cutting, first_unit)
    num = first_unit[-1]
    return Spans(found.starts[:num], found.stops[:num], first_unit)


def without(
    texts: Texts, cutting: Cutting, first_cut: NDArray[np.int64], ordinals: NDArray[np.int32]
) -> Spans:
    """What stays of each document without the units of these ordinals.

    Those of document ``k`` are ``ordinals[first_cut[k] : first_cut[k + 1]]``. No gap grows where something
    is cut: see ``etl.kernels.lines.repeated``; white space goes with the sentence before it.
    """
    first_span = np.zeros(len(texts.offsets), np.int64)
    starts, ends, missing = _without(
        texts.offsets, texts.data, _tools(cutting), cutting, (first_cut, ordinals), first_span
    )
    assert missing == 0, "a document has fewer units than it had"
    return Spans(starts, ends, first_span)


def _tools(cutting: Cutting) -> _Tools:
    folds = character_classes.folds() if cutting.ignore & CASE else np.zeros(0, np.int32)
    is_paragraph = cutting.unit == PARAGRAPHS
    search = Search(
        is_paragraph, cutting.min_chars, cutting.ignore, character_classes.classes(), folds
    )
    return _Tools(search, tables(), new_word_room())


@kernel
def _every(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: _Tools,
    cutting: Cutting,
    first_unit: NDArray[np.int64],
) -> _Pieces:
    """The units of all documents, of which those of document ``k`` begin at ``first_unit[k]``."""
    room, found, num = new_room(1024), _new_pieces(1024), 0
    for k in range(len(offsets) - 1):
        room, _, found, num = _cut(
            data, offsets[k], offsets[k + 1], tools, cutting, room, found, num
        )
        first_unit[k + 1] = num
    return found


@kernel
def _without(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: _Tools,
    cutting: Cutting,
    cuts: tuple[NDArray[np.int64], NDArray[np.int32]],
    first_span: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    first_cut, ordinals = cuts
    room, found = new_room(1024), _new_pieces(1024)
    starts, ends = np.empty(1024, np.int64), np.empty(1024, np.int64)
    num = missing = 0
    for k in range(len(offsets) - 1):
        mine = ordinals[first_cut[k] : first_cut[k + 1]]
        lines = size = 0
        if len(mine):
            room, lines, found, size = _cut(
                data, offsets[k], offsets[k + 1], tools, cutting, room, found, 0
            )
        if num + lines + size + 1 > len(starts):
            more = num + lines + size + 1
            starts, ends = longer(starts, more), longer(ends, more)
        if len(mine) == 0:
            starts[num], ends[num] = offsets[k], offsets[k + 1]
            num += 1
        else:
            goes = np.zeros(size, np.bool_)
            for ordinal in mine:
                if ordinal < size:
                    goes[ordinal] = True
                else:
                    missing += 1
            holes = _mark(room, lines, found, goes, cutting)
            kept = keep_lines(room, lines, offsets[k + 1], starts[num:], ends[num:])
            num += _punch(starts[num:], ends[num:], kept, holes)
        first_span[k + 1] = num
    return starts[:num], ends[:num], missing


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
def _grown(found: _Pieces) -> _Pieces:
    """Twice the room, with all units so far."""
    size = len(found.lines)
    return _Pieces(
        longer(found.lines, size),
        longer(found.starts, size),
        longer(found.stops, size),
        longer(found.hashes, size),
        longer(found.chars, size),
    )


@kernel
def _cut(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tools: _Tools,
    cutting: Cutting,
    room: Room,
    found: _Pieces,
    num: int,
) -> tuple[Room, int, _Pieces, int]:
    """Read a document into the room, and put its units behind the first ``num`` that were found."""
    classes = tools.search.classes
    room, lines = read_lines(data, at, end, tools.search, room)
    is_open = False
    for line in range(lines):
        if room.chars[line] == 0:
            is_open = False
            continue
        first, last = strip(data, room.starts[line], room.stops[line], classes)
        if cutting.unit == SENTENCES:
            found, num = _sentences(data, first, last, tools, line, found, num)
        elif is_open and cutting.unit == PARAGRAPHS:
            found.stops[num - 1] = last
            found.hashes[num - 1] = joined(found.hashes[num - 1], room.hashes[line])
            found.chars[num - 1] += room.chars[line] + 1
        else:
            if num == len(found.lines):
                found = _grown(found)
            found.lines[num], found.starts[num], found.stops[num] = line, first, last
            found.hashes[num] = joined(np.int64(SEED), room.hashes[line])
            found.chars[num] = room.chars[line]
            num += 1
        is_open = True
    return room, lines, found, num


@kernel
def _sentences(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tools: _Tools,
    line: int,
    found: _Pieces,
    num: int,
) -> tuple[_Pieces, int]:
    """Put the sentences of a line behind those that were found."""
    block, flags = tools.words.block, tools.tables.flags
    at, ended = first, False
    begin, before = -1, first  # where the next one may begin; the end of the last segment
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
                    found, num = _add(data, first, begin, tools.search, line, found, num)
                    first, ended = begin, False
            before = stop
    return _add(data, first, last, tools.search, line, found, num)


@inner
def _is_punctuation(data: NDArray[np.uint8], at: int, end: int, flags: NDArray[np.uint32]) -> bool:
    common = np.uint32(PUNCTUATION)
    while at < end:
        point, width = point_at(data, at, end)
        common &= flags[point]
        at += width
    return common > 0


@kernel
def _add(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    search: Search,
    line: int,
    found: _Pieces,
    num: int,
) -> tuple[_Pieces, int]:
    """One more sentence."""
    if num == len(found.lines):
        found = _grown(found)
    first, last = strip(data, first, last, search.classes)
    found.lines[num], found.starts[num], found.stops[num] = line, first, last
    found.hashes[num], found.chars[num] = hash_of(data, first, last, search)
    return found, num + 1


@kernel
def _compare(found: _Pieces, first_unit: NDArray[np.int64], cutting: Cutting) -> None:
    """Make hashes of sentences those of what they begin; of what is not compared, ``NOT_COMPARED``."""
    for k in range(len(first_unit) - 1):
        _compare_document(found, first_unit[k], first_unit[k + 1], cutting)


@kernel
def _compare_document(found: _Pieces, first: int, last: int, cutting: Cutting) -> None:
    span = cutting.span if cutting.unit == SENTENCES else 1
    for unit in range(first, last):
        chars, key = np.int64(0), found.hashes[unit]
        if unit + span > last:
            chars = np.int64(-1)
        else:
            for k in range(unit, unit + span):
                chars += found.chars[k]
            if span > 1:
                key = np.int64(SEED)
                for k in range(unit, unit + span):
                    key = joined(key, found.hashes[k])
        is_compared = chars >= max(cutting.min_chars, 1)
        # One of 2^64 hashes stands in for another one.
        found.hashes[unit] = (key if key != NOT_COMPARED else 1) if is_compared else NOT_COMPARED


@kernel
def _mark(
    room: Room, lines: int, found: _Pieces, goes: NDArray[np.bool_], cutting: Cutting
) -> NDArray[np.int64]:
    """Say of each line whether it is to be cut; the bytes (m, 2) to cut from those that stay."""
    room.cut[:lines] = False
    holes = np.empty((len(goes), 2), np.int64)
    num = unit = 0
    while unit < len(goes):
        line, after, stays = found.lines[unit], unit, False
        while after < len(goes) and found.lines[after] == line:
            stays |= not goes[after]
            after += 1
        if not stays:
            room.cut[line] = True
            while cutting.unit == PARAGRAPHS and line + 1 < lines and room.chars[line + 1] > 0:
                line += 1
                room.cut[line] = True
        for k in range(unit, after):
            if stays and goes[k]:
                is_last = k + 1 == after
                holes[num, 0] = found.stops[k - 1] if is_last else found.starts[k]
                holes[num, 1] = found.stops[k] if is_last else found.starts[k + 1]
                if num > 0 and holes[num, 0] <= holes[num - 1, 1]:
                    holes[num - 1, 1] = holes[num, 1]
                else:
                    num += 1
        unit = after
    return holes[:num]


@kernel
def _punch(
    starts: NDArray[np.int64], ends: NDArray[np.int64], num: int, holes: NDArray[np.int64]
) -> int:
    """Cut holes into spans, both in order; how many spans there are then."""
    at = num + len(holes)  # from the last one on, so that nothing is overwritten that is needed
    hole = len(holes) - 1
    for span in range(num - 1, -1, -1):
        start, end = starts[span], ends[span]
        while hole >= 0 and holes[hole, 0] >= start:
            if holes[hole, 1] < end:
                at -= 1
                starts[at], ends[at] = holes[hole, 1], end
            end = holes[hole, 0]
            hole -= 1
        if start < end:
            at -= 1
            starts[at], ends[at] = start, end
    size = num + len(holes) - at
    for k in range(size):
        starts[k], ends[k] = starts[at + k], ends[at + k]
    return size
