"""Which of 64 bytes of a text are of a kind: a bit for each, that of the first byte lowest.

So white space between words, or line feeds, are found by counting zeros, without a branch for each byte
(Langdale and Lemire, "Parsing gigabytes of JSON per second", 2019, section 3). An array must have
so many bytes, as those of ``Texts`` do; ``machine.kinds`` makes the masks.
"""

from typing import Final

import numpy as np

from etl.kernels import machine
from etl.kernels.jit import inner
from etl.kernels.machine import trailing_zeros

SIZE: Final = machine.WIDTH
CONTINUED: Final = bytes(range(0x80, 0xC0))
"""The bytes within a character of UTF-8."""

NOT_ASCII: Final = bytes(range(0x80, 0x100))


@inner
def lowest(count: int) -> int:
    """The first ``count`` bits of 64; all of them from 64 on."""
    return (np.int64(1) << count) - 1 if count < SIZE else np.int64(-1)


@inner
def between(first: int, last: int) -> int:
    """The bits from ``first`` to ``last``."""
    return lowest(last) & ~lowest(first)


@inner
def first(mask: int) -> int:
    """The first bit that is set, or 64."""
    return trailing_zeros(mask)
