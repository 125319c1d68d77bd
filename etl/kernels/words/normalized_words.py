"""Normalize the words of a text for comparison: lower case, without punctuation.

The words are found by ``etl.kernels.words.uax29``, in lower case, and reduced to letters, digits and marks:
punctuation inside a word (an apostrophe, a decimal point) is dropped, as is punctuation between words. Each
letter of a script without spaces is a word. The words are written one after the other, each followed by a
space, so equal runs of words have equal bytes.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import JOINER, MARK, MID_LETTER, NUM_CODE_POINTS
from etl.kernels.bytes.hash64 import SEED, fnv_step, mix_bits
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import allocator, kernel
from etl.kernels.words.uax29 import END, FLAGS, START, Segments, next_segments

BLOCK: Final = 4096
"""Segments per block."""


class WordBuffers(NamedTuple):
    """Buffers for the words of a text, or of a part of it: word i is ``plain[ends[i] : ends[i + 1]]``."""

    plain: NDArray[np.uint8]
    ends: NDArray[np.int64]  # ends[0]: where the first word begins
    keys: NDArray[np.int64]  # a hash of each word


class Sizes(NamedTuple):
    """The sizes of texts: arrays of int64 (n,)."""

    num_words: NDArray[np.int64]
    word_bytes: NDArray[np.int64]  # bytes in words


@cache
def fold_table() -> NDArray[np.int32]:
    """Return the lower case of each code point, 0 if words omit it: int32 (0x110000,), read-only.

    Like ``str.lower`` one character at a time, except that the Greek final sigma becomes a sigma.
    """
    table = np.arange(NUM_CODE_POINTS, dtype=np.int32)
    cased = [(point, chr(point).lower()) for point in range(0x20000)]  # none above has case
    for point, lower in cased:
        table[point] = ord(lower[0])
    table[ord("ς")] = ord("σ")
    classes = character_classes.classes()
    table[(classes >= MID_LETTER) & (classes != MARK) | (classes == JOINER)] = 0
    table.flags.writeable = False
    return table


def sizes(texts: Texts) -> Sizes:
    """Return the size of each text in words and in bytes."""
    num = len(texts.offsets) - 1
    out = Sizes(np.zeros(num, np.int64), np.zeros(num, np.int64))
    _measure(texts.offsets, texts.data, character_classes.classes(), out)
    return out


@allocator
def _measure(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    out: Sizes,
) -> None:
    block = np.empty((BLOCK, 4), np.int64)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        while at < end:
            at, num = next_segments(data, at, end, classes, block)
            for row in range(num):
                if block[row, FLAGS] > 0:
                    out.num_words[k] += 1
                    out.word_bytes[k] += block[row, END] - block[row, START]


@kernel
def add_words(
    data: NDArray[np.uint8],
    segments: Segments,
    folds: NDArray[np.int32],
    words: WordBuffers,
    num_words: int,
) -> int:
    """Append the normal form and the key of each segment that is a word to ``num_words`` others.

    Returns the number of words. ``words.plain`` must have space for twice the bytes of the segments.
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
        key = SEED
        for k in range(first, size):
            key = fnv_step(key, np.int64(plain[k]))
        plain[size] = 0x20
        size += 1
        keys[num_words] = mix_bits(key)
        num_words += 1
        ends[num_words] = size
    return num_words


@kernel
def _write(plain: NDArray[np.uint8], size: int, point: int) -> int:
    """Write a code point beyond ASCII as UTF-8 and return the offset after it."""
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
