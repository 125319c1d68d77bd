"""Eight bytes of a text at once, in one register (SWAR).

A *mask* is an int64 with the highest bit of each of its eight bytes set or not: of the byte that stands first
in the text lowest. The tests on bytes are exact; they are those of Warren, Hacker's Delight (2nd ed., 2012),
chapter 6.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner
from etl.kernels.machine import leading_zeros, load, num_set, trailing_zeros

HIGH: Final = np.int64(-0x7F7F7F7F7F7F7F80)  # the highest bit of each byte: the mask of all bytes
HIGH_LAST: Final = np.int64(-1 << 63)  # that of the last byte
# Sums are of unsigned numbers: LLVM takes it that those of signed ones never overflow.
_LOW: Final = np.uint64(0x0101010101010101)
_REST: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_CASE: Final = np.uint64(0x2020202020202020)
_TO_A: Final = np.uint64(0x1F1F1F1F1F1F1F1F)  # 0x80 - ord("a")
_TO_Z: Final = np.uint64(0x0505050505050505)  # 0x80 - ord("z") - 1
_SEED, _PRIME = -3750763034362895579, 1099511628211  # of FNV-1a, 64 bits


@inner
def first(mask: int) -> int:
    """The first byte of a mask, 0 to 7, or 8 if there is none."""
    return trailing_zeros(mask) >> 3


@inner
def behind(mask: int) -> int:
    """How many bytes stand behind the last one of a mask; 8 if there is none."""
    return leading_zeros(mask) >> 3


@inner
def equal(eight: int, byte: int) -> int:
    """The bytes that are equal to one."""
    others = np.uint64(eight) ^ _LOW * np.uint64(byte)
    return np.int64(~((others & _REST) + _REST | others)) & HIGH


@inner
def has_pair(eight: int, following: int, one: int, other: int) -> bool:
    """Whether one of eight bytes is the one, and that of the following eight in its place the other."""
    differ = np.uint64(eight) ^ _LOW * np.uint64(one) | np.uint64(following) ^ _LOW * np.uint64(
        other
    )
    return bool(np.int64(differ - _LOW) & ~np.int64(differ) & HIGH)


@inner
def below(eight: int, byte: int) -> int:
    """The bytes below one of up to 0x80."""
    return ~(np.int64((np.uint64(eight) & _REST) + _LOW * np.uint64(0x80 - byte)) | eight) & HIGH


@inner
def letters(eight: int) -> int:
    """The bytes that are ASCII letters."""
    lower = (np.uint64(eight) | _CASE) & _REST
    return np.int64(lower + _TO_A & ~(lower + _TO_Z)) & ~eight & HIGH


@inner
def continued(eight: int) -> int:
    """The bytes within a character of UTF-8: 10xxxxxx."""
    return eight & ~(eight << 1) & HIGH


@inner
def lowest(eight: int, count: int) -> int:
    """The first ``count`` bytes, up to 8; the others 0."""
    return eight & (np.int64(1) << 8 * count) - 1 if count < 8 else eight


@inner
def head(data: NDArray[np.uint8], at: int, end: int) -> int:
    """The up to eight bytes from ``at`` to ``end``, the first one lowest, and 0 for what there is not."""
    if at + 8 <= len(data):
        return lowest(load(data, at), end - at)
    eight = np.int64(0)
    for k in range(min(end - at, 8)):
        eight |= np.int64(data[at + k]) << 8 * k
    return eight


@inner
def num_equal(data: NDArray[np.uint8], at: int, end: int, byte: int) -> int:
    """How many bytes from ``at`` to ``end`` are equal to one."""
    found = 0
    while at + 8 <= end:
        found += num_set(equal(load(data, at), byte))
        at += 8
    while at < end:
        found += data[at] == byte
        at += 1
    return found


@inner
def find(data: NDArray[np.uint8], at: int, end: int, byte: int) -> int:
    """Where the first byte from ``at`` on is that is equal to one, or ``end``."""
    while at + 8 <= end:
        found = equal(load(data, at), byte)
        if found:
            return at + first(found)
        at += 8
    while at < end and data[at] != byte:
        at += 1
    return at


@inner
def hashed(data: NDArray[np.uint8], start: int, end: int) -> int:
    """64 bits by which to tell strings of bytes apart; those of up to seven bytes never share any.

    Of a longer one eight bytes at a time go through FNV-1a (with a shift, since it mixes upwards only), the
    last eight whatever they overlap.
    """
    key = (end - start) << 56
    if end - start < 8:
        return key | head(data, start, end)
    key ^= _SEED
    for at in range(start, end - 8, 8):
        key = (key ^ load(data, at)) * _PRIME
        key ^= key >> 32
    return (key ^ load(data, end - 8)) * _PRIME
