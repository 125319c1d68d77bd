"""Copy ranges of bytes to rows of a fixed width, so that frames of numbers can hold text."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import copy_items
from etl.kernels.jit import kernel


def copy_to_rows(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], width: int
) -> NDArray[np.uint8]:
    """Return rows of ``width`` bytes, as many as each range needs, in order; zeros fill its last row.

    >>> copy_to_rows(np.frombuffer(b"abcdef", "u1"), np.array([0, 4]), np.array([3, 2]), 2).tolist()
    [[97, 98], [99, 0], [101, 102]]
    """
    out = np.zeros((int((-(-sizes // width)).sum()), width), np.uint8)
    _copy_ranges(data, starts, sizes, width, out.reshape(-1))
    return out


@kernel
def _copy_ranges(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    width: int,
    out: NDArray[np.uint8],
) -> None:
    at = 0
    for i in range(len(starts)):
        copy_items(out, at, data, starts[i], sizes[i])
        at += (sizes[i] + width - 1) // width * width
