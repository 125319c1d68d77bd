"""Decode character references such as ``&eacute;``, ``&#233;`` and ``&#xE9;`` as browsers do.

The text of a reference is never longer than 6/5 of it, so a page's text fits into that much of its size.
"""

from html.entities import html5
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.letters import AND, HASH, LOWER_A, LOWER_F, LOWER_X, NINE, SEMICOLON, ZERO
from etl.kernels.html.tags import IS_LETTER, LOWER
from etl.kernels.jit import rare

_FACTOR: Final = 0x9E3779B97F4A7C15
_SLOTS: Final = 8192
_SHIFT: Final = 51  # 64 - 13
_LONGEST: Final = max(map(len, html5))
# Where a row of `_TEXTS` has the length, and whether the semicolon may be missing.
_SIZE, _BARE = 6, 7


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value ^ byte) * _FACTOR & 2**64 - 1
        value ^= value >> 29
    return value


def _make_tables() -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return a hash table of the names in HTML 5, and the UTF-8 of each."""
    hashes, texts = np.zeros(_SLOTS, np.uint64), np.zeros((_SLOTS, 8), np.uint8)
    for name in sorted({name.rstrip(";") for name in html5}):
        raw = html5[name + ";"].encode()
        assert len(raw) <= _SIZE
        assert len(raw) * 5 <= (len(name) + 2) * 6
        value = _hash(name)
        slot = value >> _SHIFT
        while hashes[slot]:
            slot = (slot + 1) % _SLOTS
        hashes[slot] = value
        texts[slot, : len(raw)] = list(raw)
        texts[slot, _SIZE:] = len(raw), name in html5
    return hashes, texts


_HASHES, _TEXTS = _make_tables()
_LONGEST_BARE: Final = max(len(name) for name in html5 if not name.endswith(";"))
# 128 to 159 are the characters of Windows-1252.
_WINDOWS: Final = np.array(
    [ord(bytes([byte]).decode("cp1252", "ignore") or chr(byte)) for byte in range(128, 160)],
    np.int64,
)


@rare
def decode(
    data: NDArray[np.uint8], at: int, stop: int, text: NDArray[np.uint8], end: int
) -> tuple[int, int]:
    """Write the character of the reference at an ampersand; return the offsets after both.

    An ampersand that begins no reference is written as it is.
    """
    if at + 1 < stop and data[at + 1] == HASH:
        after, code = _read_number(data, at + 2, stop)
        if after > 0:
            return after, write_point(code, text, end)
    else:
        slot, after = _find_name(data, at + 1, stop)
        if slot >= 0:
            for k in range(_TEXTS[slot, _SIZE]):
                text[end + k] = _TEXTS[slot, k]
            return after, end + np.int64(_TEXTS[slot, _SIZE])
    text[end] = AND
    return at + 1, end + 1


@rare
def _read_number(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    """Return the offset after a numeric reference, given that of its digits, and its code point; 0: none."""
    is_hex = at < stop and LOWER[data[at]] == LOWER_X
    at += is_hex
    first, code, base = at, 0, 16 if is_hex else 10
    while at < stop:
        byte = np.int64(LOWER[data[at]])
        digit = byte - ZERO
        if is_hex and LOWER_A <= byte <= LOWER_F:
            digit = byte - LOWER_A + 10
        elif digit > 9:
            digit = -1
        if digit < 0:
            break
        code = min(code * base + digit, 0x110000)
        at += 1
    if at == first:
        return 0, 0
    if at < stop and data[at] == SEMICOLON:
        at += 1
    if 128 <= code < 160:
        code = _WINDOWS[code - 128]
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        code = 0xFFFD
    return at, code


@rare
def _find_name(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    """Return the slot of the longest name at an offset, -1 if there is none, and the offset after it."""
    first, found, after, value = at, -1, at, np.uint64(0)
    while at < min(stop, first + _LONGEST):
        byte = data[at]
        if not (IS_LETTER[byte] or ZERO <= byte <= NINE):
            break
        value = (value ^ np.uint64(byte)) * np.uint64(_FACTOR)
        value ^= value >> np.uint64(29)
        at += 1
        has_semicolon = at < stop and data[at] == SEMICOLON
        if has_semicolon or at - first <= _LONGEST_BARE:
            slot = np.int64(value >> np.uint64(_SHIFT))
            while _HASHES[slot] != np.uint64(0) and _HASHES[slot] != value:
                slot = (slot + 1) % _SLOTS
            if _HASHES[slot] == value and (has_semicolon or _TEXTS[slot, _BARE]):
                found, after = slot, at + has_semicolon
    return found, after


@rare
def write_point(code: int, text: NDArray[np.uint8], end: int) -> int:
    """Write a code point as UTF-8 and return the offset after it."""
    if code < 0x80:
        text[end] = code
        return end + 1
    if code < 0x800:
        text[end], text[end + 1] = 0xC0 | code >> 6, 0x80 | code & 63
        return end + 2
    if code < 0x10000:
        text[end], text[end + 1] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63
        text[end + 2] = 0x80 | code & 63
        return end + 3
    text[end], text[end + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
    text[end + 2], text[end + 3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
    return end + 4
