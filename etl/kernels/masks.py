"""Bit masks over 64 bytes of a text: one bit for each byte, that of the first byte lowest.

With masks, white space or line feeds are found by counting zeros, without a branch for each byte (Langdale
and Lemire, "Parsing gigabytes of JSON per second", 2019, section 3). ``machine.kinds`` computes the masks.
It needs arrays of at least 64 bytes, which those of ``Texts`` are.
"""

from typing import Final

import numpy as np

from etl.kernels import machine
from etl.kernels.jit import inner
from etl.kernels.machine import trailing_zeros

SIZE: Final = machine.WIDTH
CONTINUED: Final = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 characters after the first one."""

NOT_ASCII: Final = bytes(range(0x80, 0x100))


@inner
def lowest(count: int) -> int:
    """Return a mask of the first ``count`` bits; all 64 if ``count`` is at least 64."""
    return ~(np.int64(-1) << count) if count < SIZE else np.int64(-1)


@inner
def between(first: int, last: int) -> int:
    """Return a mask of the bits from ``first`` up to but not including ``last``."""
    return lowest(last) & ~lowest(first)


@inner
def first(mask: int) -> int:
    """Return the index of the first bit that is set, or 64."""
    return trailing_zeros(mask)
