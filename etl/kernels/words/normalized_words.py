"""The plain form of a text: its words, to be compared.

A word is one of ``etl.kernels.words.uax29`` in lower case, of which letters, digits and marks are left: what
stands in its middle (an apostrophe, a decimal point) goes, as punctuation between words does. A unit of
a script without spaces is a word. The words stand one after the other, each followed by a blank, so that
runs of words are equal where their bytes are.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import JOINER, MARK, MID_LETTER, NUM_CODE_POINTS
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import kernel
from etl.kernels.words.uax29 import END, FLAGS, START, next_segments

BLOCK: Final = 4096
"""Segments that are looked at together."""

_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits
_MIX, _MIX_MORE = -49064778989728563, -4265267296055464877  # MurmurHash3's finalizer


class Words(NamedTuple):
    """Room for the words of a text, or of a piece of it: word i is ``plain[ends[i] : ends[i + 1]]``."""

    plain: NDArray[np.uint8]
    ends: NDArray[np.int64]  # ends[0]: where the first begins
    keys: NDArray[np.int64]  # a hash of each word


@cache
def folds() -> NDArray[np.int32]:
    """The lower case of each code point, 0 for what is left out of words: int32 (0x110000,), read-only.

    As ``str.lower``, a character at a time, and the Greek sigma has one form.
    """
    table = np.arange(NUM_CODE_POINTS, dtype=np.int32)
    cased = [(point, chr(point).lower()) for point in range(0x20000)]  # none has a case above
    for point, lower in cased:
        table[point] = ord(lower[0])
    table[ord("ς")] = ord("σ")
    classes = character_classes.classes()
    table[(classes >= MID_LETTER) & (classes != MARK) | (classes == JOINER)] = 0
    table.flags.writeable = False
    return table


def sizes(texts: Texts) -> NDArray[np.int64]:
    """The words of each text, and the bytes in them: int64 (2, n)."""
    out = np.zeros((2, len(texts.offsets) - 1), np.int64)
    _measure(texts.offsets, texts.data, character_classes.classes(), out)
    return out


@kernel
def _measure(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """The words of each item, and the bytes in them."""
    block = np.empty((BLOCK, 4), np.int64)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        while at < end:
            at, num = next_segments(data, at, end, classes, block)
            for row in range(num):
                if block[row, FLAGS] > 0:
                    out[0, k] += 1
                    out[1, k] += block[row, END] - block[row, START]


@kernel
def add_words(
    data: NDArray[np.uint8],
    segments: NDArray[np.int64],
    folds: NDArray[np.int32],
    words: Words,
    num_words: int,
) -> int:
    """Write the plain form and the key of those segments that are words, behind ``num_words`` others.

    Returns the number of words. There must be room for twice the bytes of the segments.
    """
    plain, ends, keys = words.plain, words.ends, words.keys
    size = ends[num_words]
    for row in range(len(segments)):
        if segments[row, FLAGS] == 0:
            continue
        first, at, end = size, segments[row, START], segments[row, END]
        while at < end:
            point, width = np.int64(data[at]), 1
            if point >= 0x80:
                point, width = point_at(data, at, end)
            at += width
            point = np.int64(folds[point])
            if 0 < point < 0x80:
                plain[size] = point
                size += 1
            elif point > 0:
                size = _write(plain, size, int(point))
        key = _SEED
        for k in range(first, size):
            key = (key ^ np.int64(plain[k])) * _PRIME
        plain[size] = 0x20
        size += 1
        keys[num_words] = mixed(key)
        num_words += 1
        ends[num_words] = size
    return num_words


@kernel
def _write(plain: NDArray[np.uint8], size: int, point: int) -> int:
    """Write a code point beyond ASCII as UTF-8; returns the byte after it."""
    if point < 0x800:
        plain[size] = 0xC0 | point >> 6
    elif point < 0x10000:
        plain[size] = 0xE0 | point >> 12
        plain[size + 1] = 0x80 | point >> 6 & 0x3F
        size += 1
    else:
        plain[size] = 0xF0 | point >> 18
        plain[size + 1] = 0x80 | point >> 12 & 0x3F
        plain[size + 2] = 0x80 | point >> 6 & 0x3F
        size += 2
    plain[size + 1] = 0x80 | point & 0x3F
    return size + 2


@kernel
def mixed(key: int) -> int:
    """A number whose bits all depend on all bits of another."""
    key = (key ^ (key >> 33 & 0x7FFFFFFF)) * _MIX
    key = (key ^ (key >> 33 & 0x7FFFFFFF)) * _MIX_MORE
    return key ^ (key >> 33 & 0x7FFFFFFF)
