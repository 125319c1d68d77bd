"""White space collapsed, so that two texts that differ in nothing else become equal."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels import unicode
from etl.kernels.jit import inner, kernel
from etl.kernels.machine import load, store
from etl.kernels.swar import HIGH, below, equal
from etl.kernels.unicode import LINE
from etl.kernels.utf8 import Texts, class_at


def collapse(texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Each text with runs of white space (``str.isspace``) as one blank, none at its ends.

    Offsets int64 (n + 1,) from 0, and the bytes.
    """
    offsets = np.zeros_like(texts.offsets)
    out = np.empty(texts.offsets[-1] - texts.offsets[0], np.uint8)
    _collapse(texts.offsets, texts.data, unicode.classes(), offsets, out)
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
            if not blank and at + 8 <= end and _is_collapsed(load(data, at)):
                eight = load(data, at)
                store(out, size, eight)
                blank = eight >> 56 == 0x20  # the last one; it is written again if more follows
                at, size = at + 8, size + 8 - blank
                continue
            byte, space = data[at], 0  # space: the width of white space that begins here
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
def _is_collapsed(eight: int) -> bool:
    """Whether eight bytes are ASCII, with single blanks for white space, and none at first."""
    if eight & HIGH or below(eight, 0x20):
        return False
    blanks = equal(eight, 0x20)
    return not blanks & (blanks << 8 | 0x80)
