"""Which of many keys are equal: a hash table of 4 bytes per place, used again from call to call."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner, kernel

TABLE_ROOM: Final = 4
"""Places of the table per key, at least."""

_MIX: Final = -49064778989728563  # of MurmurHash3's finalizer


@inner
def cleared(table: NDArray[np.int32], size: int) -> int:
    """Clear as much of a table as so many keys take; its last place, which is a mask."""
    places = 8
    while places < 2 * size:
        places *= 2
    for place in range(places):
        table[place] = -1
    return places - 1


@inner
def place_of(key: int, mask: int) -> int:
    """Where to look for a key first."""
    mixed = (key ^ (key >> 33)) * _MIX
    return (mixed ^ (mixed >> 32)) >> 16 & mask


@kernel
def number(
    keys: NDArray[np.int64],
    size: int,
    firsts: NDArray[np.int32],
    counts: NDArray[np.int32],
    table: NDArray[np.int32],
) -> None:
    """For the first ``size`` keys, the index of the first key that is equal, and there their number.

    ``counts`` is 0 at keys that are not the first. Linear: half of the table's places stay free.
    """
    mask = cleared(table, size)
    for k in range(size):
        key = keys[k]
        counts[k] = 0
        place = place_of(key, mask)
        first = table[place]
        while first >= 0 and keys[first] != key:
            place = place + 1 & mask
            first = table[place]
        if first < 0:
            table[place] = first = k
        firsts[k] = first
        counts[first] += 1
