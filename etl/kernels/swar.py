"""Eight bytes of a text at once, in one register."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner
from etl.kernels.machine import load

_SEED, _PRIME = -3750763034362895579, 1099511628211  # of FNV-1a, 64 bits


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
