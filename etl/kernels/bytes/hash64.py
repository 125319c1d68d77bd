"""Compute 64-bit hashes of bytes and numbers, with arithmetic that wraps around.

Numba marks signed ``+``, ``-`` and ``*`` as ``nsw``, so their overflow is undefined: LLVM once compiled a
hash of more than eight bytes to a wrong number. A hash therefore uses the ``wrapping_`` functions, which
compute with unsigned numbers. Hashes are stored in tables, so the results of this module are a format.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import load_eight, load_up_to_eight
from etl.kernels.jit import inner

SEED: Final = -3750763034362895579
"""The hash of no bytes and no numbers: the offset basis of FNV-1a, 64 bits, as an int64."""

_PRIME: Final = 1099511628211  # FNV-1a, 64 bits
_MIX, _MIX_MORE = -49064778989728563, -4265267296055464877  # MurmurHash3's finalizer


@inner
def wrapping_add(one: int, other: int) -> int:
    """Return the low 64 bits of a sum, as an int64."""
    return np.int64(np.uint64(one) + np.uint64(other))


@inner
def wrapping_subtract(one: int, other: int) -> int:
    """Return the low 64 bits of a difference, as an int64."""
    return np.int64(np.uint64(one) - np.uint64(other))


@inner
def wrapping_multiply(one: int, other: int) -> int:
    """Return the low 64 bits of a product, as an int64."""
    return np.int64(np.uint64(one) * np.uint64(other))


@inner
def fnv_step(key: int, number: int) -> int:
    """Return the FNV-1a hash of a sequence, given the hash of all but its last number, and that number."""
    return wrapping_multiply(key ^ number, _PRIME)


@inner
def fold_hash(key: int, number: int) -> int:
    """Return the same as ``fnv_step`` for numbers of 64 bits: all bits of ``number`` reach the low half.

    A product alone mixes upwards only.
    """
    key = fnv_step(key, number)
    return key ^ (key >> 32 & 0xFFFFFFFF)


@inner
def mix_bits(key: int) -> int:
    """Return a number whose bits all depend on all bits of ``key``, one-to-one."""
    key = wrapping_multiply(key ^ (key >> 33 & 0x7FFFFFFF), _MIX)
    key = wrapping_multiply(key ^ (key >> 33 & 0x7FFFFFFF), _MIX_MORE)
    return key ^ (key >> 33 & 0x7FFFFFFF)


@inner
def hash_bytes(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return a hash of the bytes from ``start`` to ``end``; up to seven bytes never collide.

    Longer strings go through FNV-1a eight bytes at a time, with a shift, since a product mixes upwards
    only. The last eight bytes may overlap those before.
    """
    key = (end - start) << 56
    if end - start < 8:
        return key | load_up_to_eight(data, start, end)
    key ^= SEED
    for at in range(start, end - 8, 8):
        key = fnv_step(key, load_eight(data, at))
        key ^= key >> 32
    return fnv_step(key, load_eight(data, end - 8))


@inner
def hash_word(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return a hash of the bytes from ``start`` to ``end``, without a branch for up to 16 bytes.

    The lengths of words are random, so that each branch would be mispredicted often. Not a format.
    """
    size = end - start
    low = load_up_to_eight(data, start, end)
    high = load_up_to_eight(data, start + 8, max(end, start + 8))
    key = wrapping_multiply(mix_bits(low) ^ high ^ size << 56, _MIX)
    key ^= key >> 32
    return fold_hash(key, hash_bytes(data, start + 16, end)) if size > 16 else key
