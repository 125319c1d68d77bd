"""Which of many keys are equal: a hash table of 4 bytes per place, used again from call to call."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner, kernel

TABLE_ROOM: Final = 8
"""Places of the table per key, at least."""

_MIX: Final = np.uint64(0xFF51AFD7ED558CCD)  # of MurmurHash3's finalizer


@inner
def cleared(table: NDArray[np.int32], size: int) -> int:
    """Clear as much of a table as so many keys take; its last place, which is a mask."""
    places = 8
    while places < 4 * size:
        places *= 2
    for place in range(places):
        table[place] = -1
    return places - 1


@inner
def mixed(key: int) -> int:
    """Another key for each, in which those that differ in a few bits differ anywhere."""
    some = (np.uint64(key) ^ np.uint64(key) >> np.uint64(33)) * _MIX
    return np.int64(some ^ some >> np.uint64(32))


@inner
def entered(table: NDArray[np.int32], mask: int, keys: NDArray[np.int64], k: int) -> int:
    """The first index whose key is equal to that of ``k``, which a table of indices has afterwards."""
    place = mixed(keys[k]) >> 16 & mask
    while True:
        first = table[place]
        if (first < 0) | (keys[max(first, 0)] == keys[k]):
            break
        place = place + 1 & mask
    first = k if first < 0 else first  # no branch: one in two keys is new
    table[place] = first
    return first


@kernel
def number(
    keys: NDArray[np.int64],
    size: int,
    firsts: NDArray[np.int32],
    counts: NDArray[np.int32],
    table: NDArray[np.int32],
) -> None:
    """For the first ``size`` keys, the index of the first key that is equal, and there their number.

    ``counts`` is 0 at keys that are not the first. Linear: three in four of the table's places stay free.
    """
    mask = cleared(table, size)
    for k in range(size):
        counts[k] = 0
        first = entered(table, mask, keys, k)
        firsts[k] = first
        counts[first] += 1
