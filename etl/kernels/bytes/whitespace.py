"""Collapse white space, so that texts that differ only in white space become equal."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes, simd
from etl.kernels.bytes.character_classes import LINE
from etl.kernels.bytes.simd import NOT_ASCII, SIZE, copy_64, make_byte_finder
from etl.kernels.bytes.utf8 import Texts, class_at
from etl.kernels.jit import inner, kernel

_find_blanks = make_byte_finder(b" ", bytes(range(0x20)) + NOT_ASCII)


def collapse(texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Replace each run of white space (``str.isspace``) with one blank, and strip both ends.

    Returns the offsets, int64 (n + 1,) from 0, and the bytes.
    """
    offsets = np.zeros_like(texts.offsets)
    out = np.empty(texts.offsets[-1] - texts.offsets[0] + SIZE, np.uint8)
    _collapse(texts.offsets, texts.data, character_classes.classes(), offsets, out)
    return offsets, out[: offsets[-1]]


@kernel
def _collapse(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    size = 0
    for k in range(len(offsets) - 1):
        at, end, first = offsets[k], offsets[k + 1], size
        blank = False  # white space since the last character written
        while at < end:
            if not blank and at + SIZE <= len(data):
                # Copy 64 bytes, and keep as many as need no change: the next step overwrites the rest.
                plain = _collapsed(data, at, end)
                copy_64(out, size, data, at)
                if plain > 0:
                    # A blank at the end is written later, if more text follows.
                    blank = data[at + plain - 1] == 0x20
                    at, size = at + plain, size + plain - blank
                    continue
            byte, space = data[at], 0  # space: the width of the white space that begins here
            if byte <= 0x20:
                space = 1 if classes[byte] <= LINE else 0
            elif byte == 0xC2 or 0xE1 <= byte <= 0xE3:  # only these begin white space beyond ASCII
                kind, width = class_at(data, at, end, classes)
                space = width if kind <= LINE else 0
            if space > 0:
                blank = True
                at += space
                continue
            if blank and size > first:
                out[size] = 0x20
                size += 1
            blank = False
            out[size] = byte
            size += 1
            at += 1
        out_offsets[k + 1] = size


@inner
def _collapsed(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return how many of 64 bytes need no change: ASCII, with single blanks, and no blank at the start."""
    blanks, others = _find_blanks(data, at)
    return min(simd.first_bit(others | blanks & (blanks << 1 | 1)), end - at)
