"""Lines and paragraphs that a document has twice, cut out of it.

A line is what ``str.splitlines`` gives, without white space at its ends; a paragraph is a run of lines
without a blank one between. Two are equal if 64 bits of them are, after what is to be ignored has been
made the same. The first of equal ones stays. Where something is cut no gap grows: of the blank lines
before and after it only one run stays, and none at the beginning or the end of the text.

One pass over the bytes, two look-ups per line, then the spans that stay; about 80 bytes of memory per
line of the longest document.

Reading lines, and keeping some of them, is for ``etl.kernels.lines.text_units``, too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import DIGIT, LINE
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.hashing.equal_keys import TABLE_ROOM, number
from etl.kernels.jit import inner, kernel

CASE, SPACE, DIGITS = 1, 2, 4
"""What may be ignored, as bits: upper case; how much white space; which number."""

SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits


class Room(NamedTuple):
    """Arrays for a document of n lines, used again for the next one."""

    starts: NDArray[np.int64]  # (n,) the first byte
    stops: NDArray[np.int64]  # (n,) the byte where the line end begins
    chars: NDArray[np.int32]  # (n,) code points without white space at the ends; 0: a blank line
    hashes: NDArray[np.int64]  # (n,) what is equal where the lines are
    cut: NDArray[np.bool_]  # (n,)
    keys: NDArray[np.int64]  # (n,) what is equal where the units are
    places: NDArray[np.int32]  # (n,) the line with which a unit begins
    firsts: NDArray[np.int32]  # (n,) the first unit that is equal
    counts: NDArray[np.int32]  # (n,) how many are equal, at the first one
    table: NDArray[np.int32]  # (TABLE_ROOM * n,) for ``number``


class Search(NamedTuple):
    """What is looked for, and the tables for it."""

    paragraphs: bool  # or else lines
    min_chars: int
    ignore: int
    classes: NDArray[np.uint8]
    folds: NDArray[np.int32]


def without_repeats(
    texts: Texts, *, paragraphs: bool, min_chars: int, ignore: int
) -> tuple[Spans, NDArray[np.int64]]:
    """What stays of each document without repeated lines or paragraphs, and how many of them went.

    Those of less than ``min_chars`` code points, counted without white space at the ends of lines, are
    left alone. ``ignore``: bits. The numbers are int64 (n,). Line ends stay as they are; the last line
    has one if it had one before.
    """
    folds = character_classes.folds() if ignore & CASE else np.zeros(0, np.int32)
    search = Search(paragraphs, min_chars, ignore, character_classes.classes(), folds)
    numbers = np.zeros(len(texts.offsets) - 1, np.int64)
    first_span = np.zeros(len(texts.offsets), np.int64)
    starts, ends = _without_repeats(texts.offsets, texts.data, search, numbers, first_span)
    return Spans(starts, ends, first_span), numbers


@kernel
def _without_repeats(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    search: Search,
    numbers: NDArray[np.int64],
    first_span: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    room = new_room(1024)
    starts, ends = np.empty(1024, np.int64), np.empty(1024, np.int64)
    num = 0
    for k in range(len(offsets) - 1):
        room, lines = read_lines(data, offsets[k], offsets[k + 1], search, room)
        numbers[k] = _mark(room, lines, search)
        if num + lines + 1 > len(starts):
            starts, ends = longer(starts, num + lines + 1), longer(ends, num + lines + 1)
        if numbers[k] > 0:
            num += keep_lines(room, lines, offsets[k + 1], starts[num:], ends[num:])
        else:
            starts[num], ends[num] = offsets[k], offsets[k + 1]
            num += 1
        first_span[k + 1] = num
    return starts[:num], ends[:num]


@kernel
def new_room(lines: int) -> Room:
    """Room for a document of so many lines."""
    return Room(
        np.empty(lines, np.int64),
        np.empty(lines, np.int64),
        np.empty(lines, np.int32),
        np.empty(lines, np.int64),
        np.empty(lines, np.bool_),
        np.empty(lines, np.int64),
        np.empty(lines, np.int32),
        np.empty(lines, np.int32),
        np.empty(lines, np.int32),
        np.empty(TABLE_ROOM * lines, np.int32),
    )


@kernel
def _grown(room: Room) -> Room:
    """Twice the room, with all lines so far."""
    lines = len(room.starts)
    larger = new_room(2 * lines)
    larger.starts[:lines] = room.starts
    larger.stops[:lines] = room.stops
    larger.chars[:lines] = room.chars
    larger.hashes[:lines] = room.hashes
    return larger


@kernel
def longer(array: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The array with room for twice so many; what is new is not set."""
    longer = np.empty(2 * size, np.int64)
    longer[: len(array)] = array
    return longer


@kernel
def read_lines(
    data: NDArray[np.uint8], at: int, end: int, search: Search, room: Room
) -> tuple[Room, int]:
    """Put the lines of a document into the room; how many they are."""
    lines = 0
    while at < end:
        if lines == len(room.starts):
            room = _grown(room)
        stop, after = next_line(data, at, end)
        first, last = strip(data, at, stop, search.classes)
        room.starts[lines], room.stops[lines] = at, stop
        room.hashes[lines], room.chars[lines] = hash_of(data, first, last, search)
        lines += 1
        at = after
    return room, lines


@kernel
def hash_of(data: NDArray[np.uint8], first: int, last: int, search: Search) -> tuple[int, int]:
    """The hash of some bytes after what is to be ignored has been made the same, and their code points."""
    if search.ignore == 0:
        return _hash(data, first, last)
    return _loose_hash(data, first, last, search)


@kernel
def _hash(data: NDArray[np.uint8], first: int, last: int) -> tuple[int, int]:
    value, chars = np.int64(SEED), 0
    for at in range(first, last):
        value = (value ^ np.int64(data[at])) * _PRIME
        chars += data[at] & 0xC0 != 0x80
    return value, chars


@kernel
def _loose_hash(data: NDArray[np.uint8], first: int, last: int, search: Search) -> tuple[int, int]:
    """The same where a run of white space is one blank, of digits a zero, a capital a small letter."""
    classes, folds, ignore = search.classes, search.folds, search.ignore
    value, chars, before = np.int64(SEED), 0, np.int64(-1)
    at = first
    while at < last:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, last)
        at += width
        chars += 1
        kind = classes[point]
        if kind <= LINE and ignore & SPACE:
            point = np.int64(0x20)
        elif kind == DIGIT and ignore & DIGITS:
            point = np.int64(0x30)
        else:
            if ignore & CASE and point < len(folds):
                point = np.int64(folds[point])
            value = (value ^ point) * _PRIME
            before = np.int64(-1)
            continue
        if point != before:
            value = (value ^ point) * _PRIME
        before = point
    return value, chars


@inner
def joined(key: np.int64 | int, of_line: int) -> int:
    """The key of what has been joined so far (at first ``SEED``), with one more hash."""
    key = (key ^ of_line) * _PRIME
    return key ^ (key >> 32 & 0xFFFFFFFF)


@kernel
def _mark(room: Room, lines: int, search: Search) -> int:
    """Say of each line whether it is to be cut; the number of units that are."""
    chars, keys, places, cut = room.chars, room.keys, room.places, room.cut
    units, at = 0, 0
    while at < lines:
        first, length, key = at, -1, np.int64(SEED)
        while at < lines and chars[at] > 0 and (at == first or search.paragraphs):
            key = joined(key, room.hashes[at])
            length += chars[at] + 1
            at += 1
        if length > 0 and length >= search.min_chars:
            keys[units], places[units] = key, first
            units += 1
        at += at == first  # a blank line
    number(keys, units, room.firsts, room.counts, room.table)
    cut[:lines] = False
    repeated = 0
    for unit in range(units):
        if room.firsts[unit] != unit:
            repeated += 1
            at = np.int64(places[unit])
            cut[at] = True
            while search.paragraphs and at + 1 < lines and chars[at + 1] > 0:
                at += 1
                cut[at] = True
    return repeated


@kernel
def keep_lines(
    room: Room, lines: int, end: int, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> int:
    """Write the spans of a document of which something is cut; how many they are."""
    num, begin = 0, 0  # begin: the line after the last one that was kept
    blank, blank_end = 0, 0  # the first run of blank lines since then
    is_cut = False  # whether anything was cut since then
    for line in range(lines):
        if room.cut[line]:
            is_cut = True
        elif room.chars[line] == 0:
            if blank == blank_end:
                blank, blank_end = line, line + 1
            elif blank_end == line:
                blank_end += 1
        else:
            if is_cut and num > 0 and blank < blank_end:
                num = _add(room.starts[blank], room.starts[blank_end], num, starts, ends)
            after = room.starts[line + 1] if line + 1 < lines else end
            num = _add(room.starts[line if is_cut else begin], after, num, starts, ends)
            begin, is_cut = line + 1, False
            blank = blank_end = begin
    if not is_cut and begin < lines:
        num = _add(room.starts[begin], end, num, starts, ends)
    elif num > 0 and is_cut and room.stops[lines - 1] == end:  # the last line had no line end
        ends[num - 1] = room.stops[begin - 1]
    return num


@kernel
def _add(start: int, end: int, num: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    if num > 0 and ends[num - 1] == start:
        ends[num - 1] = end
        return num
    starts[num], ends[num] = start, end
    return num + 1
