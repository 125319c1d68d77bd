"""Find equal 64-bit keys with a hash table of 4 bytes per slot, reused from call to call."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner, kernel

SLOTS_PER_KEY: Final = 8
"""Slots that a table must have per key."""

_MIX: Final = np.uint64(0xFF51AFD7ED558CCD)  # of MurmurHash3's finalizer


@inner
def clear_table(table: NDArray[np.uint32], size: int) -> int:
    """Clear the slots of a table that ``size`` keys need; return the last slot, which is the mask.

    A free slot holds ``size``, the others the index of a key.
    """
    slots = 8
    while slots < 4 * size:
        slots *= 2
    for slot in range(slots):
        table[slot] = size
    return slots - 1


@inner
def scatter_key(key: int) -> int:
    """Map a key to another one, one-to-one, so that a change of a few bits affects all bits."""
    product = (np.uint64(key) ^ np.uint64(key) >> np.uint64(33)) * _MIX
    return np.int64(product ^ product >> np.uint64(32))


@inner
def find_or_insert(
    table: NDArray[np.uint32], mask: int, keys: NDArray[np.int64], k: int, size: int
) -> int:
    """Return the first index in a table with the same key as ``k``; add ``k`` if there is none.

    ``keys`` has ``size`` keys and room for one more. There, the key of ``k`` is written, so that a free slot
    has it, too: whether a slot is free cannot be predicted, since about half of the keys are new.
    """
    key = keys[size] = keys[k]
    last = np.uint64(mask)  # unsigned, since numba adds the length to a negative index
    slot = np.uint64(scatter_key(key)) >> np.uint64(16) & last
    while keys[table[slot]] != key:
        slot = slot + np.uint64(1) & last
    first: int = min(np.int64(table[slot]), k)
    table[slot] = first
    return first


@kernel
def number_keys(
    keys: NDArray[np.int64],
    size: int,
    firsts: NDArray[np.uint32],
    counts: NDArray[np.int32],
    table: NDArray[np.uint32],
) -> None:
    """Write the index of the first equal key to ``firsts``, and the number of equal keys to ``counts``.

    ``keys`` has room for one more than ``size``. ``counts`` is 0 for a key that is not the first of its kind.
    Linear: at least three in four slots of the table stay free.
    """
    mask = clear_table(table, size)
    for k in range(size):
        counts[k] = 0
        first = find_or_insert(table, mask, keys, k, size)
        firsts[k] = first
        counts[first] += 1
