"""The lines and paragraphs of a document: which are there twice, how the lines end, how short they are.

Lines end at a line feed (and a carriage return before it), paragraphs at an empty line; both are compared
as they stand, by 64 bits. They are those of datatrove 0.10.1's filters. One pass over the bytes, then two
look-ups per line; about 55 bytes of memory per line of the longest document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import CONTINUED, SIZE, hashed, kinds, low_bits, num_set
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.hashing.equal_keys import TABLE_ROOM, number
from etl.kernels.jit import inner, kernel
from etl.kernels.words.spacy_english import SENTENCE_END, SPACE, tables

COUNTS: Final = (
    "lines",  # that are not empty, and an empty one where the text begins or ends with a line feed
    "duplicate_lines",  # equal to one before
    "duplicate_line_chars",  # code points in them
    "paragraphs",
    "duplicate_paragraphs",  # equal, line by line, to one before
    "duplicate_paragraph_chars",  # code points in them, line breaks as one each
    "full_lines",  # that are not blank
    "terminal_lines",  # full lines that end in a character that ends a sentence
    "quoted_lines",  # full lines that end in such a character or in a quotation mark, " or '
    "short_lines",  # full lines of at most SHORT_CHARS
    "duplicate_full_line_chars",  # code points in full lines equal to one before
    "chars",  # code points of the document
    "feeds",  # line feeds
)
"""The rows of ``count``, in order."""

SHORT_CHARS: Final = 30
"""Penedo et al. 2024, section 3.6; in code points."""

_FEED: Final = ord("\n")
_RETURN: Final = ord("\r")
_QUOTES: Final = (ord('"'), ord("'"))
_find_feeds = kinds(b"\n", CONTINUED)
_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits


class _Room(NamedTuple):
    """Arrays for a document of n lines, used again for the next one."""

    keys: NDArray[np.int64]  # (n,) what is equal where the lines are
    chars: NDArray[np.int32]  # (n,) code points
    opens: NDArray[np.bool_]  # (n,) whether a paragraph begins
    blank: NDArray[np.bool_]  # (n,) whether there is nothing but white space
    firsts: NDArray[np.int32]  # (n,) the first line that is equal
    counts: NDArray[np.int32]  # (n,) how many are equal, at the first one
    table: NDArray[np.int32]  # (TABLE_ROOM * n,) for ``number``


def count(texts: Texts, *, paragraphs: bool = True) -> NDArray[np.int64]:
    """The counts of each document: int64 (len(COUNTS), n); whatever a null holds is counted too.

    Without ``paragraphs`` what is counted of them is left at 0.
    """
    out = np.zeros((len(texts.offsets) - 1, len(COUNTS)), np.int64)
    _count(texts.offsets, texts.data, tables().flags, paragraphs, out)
    return out.T


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    flags: NDArray[np.uint32],
    folds: bool,
    out: NDArray[np.int64],
) -> None:
    room = _new_room(1024)
    for k in range(len(offsets) - 1):
        at, end, found = offsets[k], offsets[k + 1], out[k]
        lines = 0
        is_open = True
        while at < end:
            if lines == len(room.keys):
                room = _grown(room)
            first = at
            feed, chars = _find_feed(data, at, end)
            last, at = _bare_end(data, first, feed, end), feed + 1
            found[11] += chars + (feed < end)
            found[12] += feed < end
            if first == last:
                is_open = True
                continue
            room.chars[lines] = chars = chars - (feed - last)
            key = hashed(data, first, last)
            room.keys[lines] = (key ^ (key >> 32) ^ chars) * _PRIME
            room.opens[lines], is_open = is_open, False
            _judge_line(data, first, last, flags, room, lines, found)
            lines += 1
        empty = _empty_ends(data, offsets[k], end)
        found[0] = lines + empty
        found[1], found[2] = _duplicates(room, lines)
        found[1] += empty == 2
        found[10] = _full_duplicate_chars(room, lines)
        if folds:
            found[3] = paragraphs = _fold(room, lines)
            found[4], found[5] = _duplicates(room, paragraphs)


@inner
def _find_feed(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Where the next line feed is, or ``end``, and the code points before it."""
    chars = 0
    while at < end:
        feeds, continued = _find_feeds(data, at)
        size = min(simd.first_bit(feeds), end - at)
        chars += size - num_set(continued & low_bits(size))
        at += size
        if size < SIZE:
            return at, chars
    return end, chars


@inner
def _empty_ends(data: NDArray[np.uint8], first: int, end: int) -> int:
    """How many ends of a text are line feeds."""
    if first == end:
        return 0
    return int(data[first] == _FEED) + int(data[end - 1] == _FEED)


@inner
def _bare_end(data: NDArray[np.uint8], first: int, feed: int, end: int) -> int:
    """Where a line ends without a carriage return before its line feed."""
    has_return = first < feed < end and data[feed - 1] == _RETURN
    return feed - 1 if has_return else feed


@inner
def _judge_line(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    flags: NDArray[np.uint32],
    room: _Room,
    line: int,
    found: NDArray[np.int64],
) -> None:
    """Count a line that has been read, if it is not blank."""
    chars = room.chars[line]
    at = first
    while at < last:
        point, width = point_at(data, at, last)
        if not flags[point] & SPACE:
            break
        at += width
    room.blank[line] = at >= last
    if at >= last:
        return
    at = last - 1
    while at > first and data[at] & 0xC0 == 0x80:
        at -= 1
    point, _ = point_at(data, at, last)
    ends = (flags[point] & SENTENCE_END) > 0
    found[6] += 1
    found[7] += ends
    found[8] += ends or point == _QUOTES[0] or point == _QUOTES[1]
    found[9] += chars <= SHORT_CHARS


@kernel
def _new_room(lines: int) -> _Room:
    return _Room(
        np.empty(lines, np.int64),
        np.empty(lines, np.int32),
        np.empty(lines, np.bool_),
        np.empty(lines, np.bool_),
        np.empty(lines, np.int32),
        np.empty(lines, np.int32),
        np.empty(TABLE_ROOM * lines, np.int32),
    )


@kernel
def _grown(room: _Room) -> _Room:
    """Twice the room, with all lines so far."""
    lines = len(room.keys)
    larger = _new_room(2 * lines)
    larger.keys[:lines] = room.keys
    larger.chars[:lines] = room.chars
    larger.opens[:lines] = room.opens
    larger.blank[:lines] = room.blank
    return larger


@kernel
def _duplicates(room: _Room, size: int) -> tuple[int, int]:
    """How many have an equal before them, and their code points."""
    number(room.keys, size, room.firsts, room.counts, room.table)
    firsts, lengths = room.firsts, room.chars
    duplicates = chars = 0
    for k in range(size):
        if firsts[k] != k:
            duplicates += 1
            chars += lengths[k]
    return duplicates, chars


@inner
def _full_duplicate_chars(room: _Room, size: int) -> int:
    """Code points in lines that have an equal before them and are not blank, as numbered before."""
    chars = 0
    for k in range(size):
        if room.firsts[k] != k and not room.blank[k]:
            chars += room.chars[k]
    return chars


@kernel
def _fold(room: _Room, lines: int) -> int:
    """Put the paragraphs in the place of the lines."""
    keys, chars, opens = room.keys, room.chars, room.opens
    last = -1
    for k in range(lines):
        key, length = keys[k], chars[k]
        if opens[k]:
            last += 1
            keys[last], chars[last] = _SEED, -1
        key = (keys[last] ^ key) * _PRIME
        keys[last] = key ^ (key >> 32 & 0xFFFFFFFF)
        chars[last] += length + 1
    return last + 1
