"""Eight bytes of a text in one register (SWAR), and a hash of byte strings."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner
from etl.kernels.machine import load, product

_SEED, _PRIME = -3750763034362895579, 1099511628211  # of FNV-1a, 64 bits


@inner
def lowest(eight: int, count: int) -> int:
    """Return the first ``count`` of eight bytes, with zeros for the others."""
    return eight & (np.int64(1) << 8 * count) - 1 if count < 8 else eight


@inner
def head(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return up to eight bytes from ``at`` to ``end``, the first one lowest, padded with zeros."""
    if at + 8 <= len(data):
        return lowest(load(data, at), end - at)
    eight = np.int64(0)
    for k in range(min(end - at, 8)):
        eight |= np.int64(data[at + k]) << 8 * k
    return eight


@inner
def hashed(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return a 64-bit hash of the bytes from ``start`` to ``end``; up to seven bytes never collide.

    Longer strings go through FNV-1a eight bytes at a time, with a shift, since a product mixes upwards
    only. The last eight bytes may overlap those before.
    """
    key = (end - start) << 56
    if end - start < 8:
        return key | head(data, start, end)
    key ^= _SEED
    for at in range(start, end - 8, 8):
        key = product(key ^ load(data, at), _PRIME)
        key ^= key >> 32
    return product(key ^ load(data, end - 8), _PRIME)
