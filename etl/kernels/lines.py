"""Where lines end, as ``str.splitlines`` splits them, and what is left of them without white space."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel
from etl.kernels.unicode import LINE
from etl.kernels.utf8 import class_at


@kernel
def next_line(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """The byte where the line that holds ``at`` ends, and the byte where the next one begins."""
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
        at += 1
    return end, end


@kernel
def strip(
    data: NDArray[np.uint8], first: int, end: int, classes: NDArray[np.uint8]
) -> tuple[int, int]:
    """The first byte and the end of what ``str.strip`` leaves of a line."""
    while first < end and not 0x20 < data[first] < 0x80:
        kind, width = class_at(data, first, end, classes)
        if kind > LINE:
            break
        first += width
    while end > first and not 0x20 < data[end - 1] < 0x80:
        at = end - 1
        while at > first and data[at] & 0xC0 == 0x80:
            at -= 1
        if class_at(data, at, end, classes)[0] > LINE:
            break
        end = at
    return first, end
