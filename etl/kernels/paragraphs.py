"""The lines and paragraphs of a document: which are there twice, how the lines end, how short they are.

A line here has no white space at its ends, and at least one character; a paragraph is a run of lines
without a blank one between. Two lines are equal if 64 bits of them are. One pass over the bytes, then
two look-ups per line; about 40 bytes of memory per line of the longest document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels import unicode
from etl.kernels.jit import kernel
from etl.kernels.lines import next_line, strip
from etl.kernels.numbering import TABLE_ROOM, number
from etl.kernels.utf8 import Texts

COUNTS: Final = (
    "lines",  # that are not blank
    "terminal_lines",  # end in a character of TERMINAL
    "short_lines",  # of at most SHORT_CHARS
    "duplicate_lines",  # equal to one before
    "duplicate_line_chars",  # code points in them
    "paragraphs",
    "duplicate_paragraphs",  # equal, line by line, to one before
    "duplicate_paragraph_chars",  # code points in them, line breaks as one each
)
"""The rows of ``count``, in order."""

SHORT_CHARS: Final = 30
"""Penedo et al. 2024, section 3.6; in code points."""

TERMINAL: Final = ".!?\"'…’”»。．！？｡։؟۔।॥။።፧។"
"""Raffel et al. 2020 have the first five; the others are their like in other scripts and typesetting."""

_TERMINALS: Final = tuple(sorted(map(ord, TERMINAL)))
_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits


class _Room(NamedTuple):
    """Arrays for a document of n lines, used again for the next one."""

    keys: NDArray[np.int64]  # (n,) what is equal where the lines are
    chars: NDArray[np.int32]  # (n,) code points
    opens: NDArray[np.bool_]  # (n,) whether a paragraph begins
    firsts: NDArray[np.int32]  # (n,) the first line that is equal
    counts: NDArray[np.int32]  # (n,) how many are equal, at the first one
    table: NDArray[np.int32]  # (TABLE_ROOM * n,) for ``number``


def count(texts: Texts) -> NDArray[np.int64]:
    """The counts of each document: int64 (len(COUNTS), n); whatever a null holds is counted too."""
    out = np.zeros((len(COUNTS), len(texts.offsets) - 1), np.int64)
    _count(texts.offsets, texts.data, unicode.classes(), out)
    return out


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    room = _new_room(1024)
    for k in range(len(offsets) - 1):
        keys, chars, opens = room.keys, room.chars, room.opens
        at, end = offsets[k], offsets[k + 1]
        lines = terminal = short = 0
        is_open = True
        while at < end:
            line_end, after = next_line(data, at, end)
            first, last = strip(data, at, line_end, classes)
            at = after
            if first == last:
                is_open = True
                continue
            if lines == len(keys):
                room = _grown(room)
                keys, chars, opens = room.keys, room.chars, room.opens
            keys[lines], chars[lines] = _read(data, first, last)
            opens[lines], is_open = is_open, False
            terminal += _is_terminal(data, first, last)
            short += chars[lines] <= SHORT_CHARS
            lines += 1
        out[0, k], out[1, k], out[2, k] = lines, terminal, short
        out[3, k], out[4, k] = _duplicates(room, lines)
        out[5, k] = paragraphs = _fold(room, lines)
        out[6, k], out[7, k] = _duplicates(room, paragraphs)


@kernel
def _new_room(lines: int) -> _Room:
    return _Room(
        np.empty(lines, np.int64),
        np.empty(lines, np.int32),
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
    return larger


@kernel
def _read(data: NDArray[np.uint8], first: int, last: int) -> tuple[int, int]:
    """The key of a line, and its code points."""
    key, chars = np.int64(_SEED), 0
    for at in range(first, last):
        key = (key ^ np.int64(data[at])) * _PRIME
        chars += data[at] & 0xC0 != 0x80
    return key, chars


@kernel
def _is_terminal(data: NDArray[np.uint8], first: int, last: int) -> bool:
    at = last - 1
    while at > first and data[at] & 0xC0 == 0x80:
        at -= 1
    point = np.int64(data[at])
    if last - at == 2:
        point = (point & 0x1F) << 6 | np.int64(data[at + 1]) & 0x3F
    elif last - at == 3:
        point = (point & 0x0F) << 12 | (np.int64(data[at + 1]) & 0x3F) << 6
        point |= np.int64(data[at + 2]) & 0x3F
    for k in range(len(_TERMINALS)):
        if point <= _TERMINALS[k]:
            return bool(point == _TERMINALS[k])
    return False


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
