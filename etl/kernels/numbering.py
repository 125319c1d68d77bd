"""Which of many keys are equal: a hash table of 4 bytes per place, used again from call to call."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel

TABLE_ROOM: Final = 4
"""Places of the table per key, at least."""

_MIX, _MIX_MORE = -49064778989728563, -4265267296055464877  # MurmurHash3's finalizer


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
    places = 8
    while places < 2 * size:
        places *= 2
    for place in range(places):
        table[place] = -1
    for k in range(size):
        key = keys[k]
        counts[k] = 0
        mixed = (key ^ (key >> 33)) * _MIX
        mixed = (mixed ^ (mixed >> 33)) * _MIX_MORE
        place = (mixed >> 32) & (places - 1)
        first = table[place]
        while first >= 0 and keys[first] != key:
            place = (place + 1) & (places - 1)
            first = table[place]
        if first < 0:
            table[place] = first = k
        firsts[k] = first
        counts[first] += 1
