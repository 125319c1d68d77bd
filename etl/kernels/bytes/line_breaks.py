"""Find where lines end, as ``str.splitlines`` does, and strip white space from them."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import LINE
from etl.kernels.bytes.simd import SIZE, count_ones, first_bit, low_bits, make_byte_finder
from etl.kernels.bytes.utf8 import class_at
from etl.kernels.jit import inner

find_breaks = make_byte_finder(b"\n", b"\v\f\r\x1c\x1d\x1e\xc2\xe2")
"""Return two masks: the line feeds, and other bytes that may begin a line break."""


@inner
def next_line(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return the byte where the line that contains ``at`` ends, and the byte where the next one begins."""
    at = _may_break(data, at, end)
    while at < end:
        byte = data[at]
        if byte < 0x20:
            if byte == 0x0D and at + 1 < end and data[at + 1] == 0x0A:
                return at, at + 2
            if 0x0A <= byte <= 0x0D or 0x1C <= byte <= 0x1E:
                return at, at + 1
        elif byte == 0xC2 and at + 1 < end and data[at + 1] == 0x85:  # next line
            return at, at + 2
        elif byte == 0xE2 and at + 2 < end and data[at + 1] == 0x80 and data[at + 2] & 0xFE == 0xA8:
            return at, at + 3  # line separator, paragraph separator
        at = _may_break(data, at + 1, end)
    return end, end


@inner
def _may_break(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the first byte from ``at`` on that may begin a line break, or ``end``."""
    while at < end:
        feeds, others = find_breaks(data, at)
        breaks = feeds | others
        if breaks:
            return min(at + first_bit(breaks), end)
        at += SIZE
    return end


@inner
def count_breaks(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return how many bytes may begin a line break."""
    num = 0
    while at < end:
        feeds, others = find_breaks(data, at)
        num += count_ones((feeds | others) & low_bits(end - at))
        at += SIZE
    return num


@inner
def strip(
    data: NDArray[np.uint8], start: int, end: int, classes: NDArray[np.uint8]
) -> tuple[int, int]:
    """Return the first byte and the end of a line without the white space that ``str.strip`` removes."""
    while start < end and not 0x20 < data[start] < 0x80:
        kind, width = class_at(data, start, end, classes)
        if kind > LINE:
            break
        start += width
    while end > start and not 0x20 < data[end - 1] < 0x80:
        at = end - 1
        while at > start and data[at] & 0xC0 == 0x80:
            at -= 1
        if class_at(data, at, end, classes)[0] > LINE:
            break
        end = at
    return start, end
