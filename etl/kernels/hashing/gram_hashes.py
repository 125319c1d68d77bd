"""Hash all runs of ``k`` bytes of a text, and sequences of these hashes, by polynomials of two bases."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner

MASK: Final = (1 << 64) - 1
"""All bits of a hash."""

LARGEST: Final = np.uint64(MASK)
"""The hash of a k-gram of one byte, repeated."""

BYTE_BASE: Final = 0x9E3779B97F4A7C15
"""The base of the rolling hash of bytes; odd."""

CHUNK_BASE: Final = 0xD1342543DE82EF95
"""The base of the hash of a sequence of k-gram hashes; odd."""

_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)


class GramTables(NamedTuple):
    """Random numbers of bytes and powers of the bases, for hashes of k-grams and sequences of them."""

    k: int
    enter: NDArray[np.uint64]  # (256,) the number of a byte that enters a k-gram
    leave: NDArray[np.uint64]  # (256,) of a byte that leaves it
    powers: NDArray[np.uint64]  # (p,) of the base of sequences


def gram_tables(k: int, num_powers: int, base: int = CHUNK_BASE) -> GramTables:
    """Return the tables for k-grams of ``k`` bytes and sequences of fewer than ``num_powers`` of them."""
    enter = np.array([_random(byte + 1) for byte in range(256)], np.uint64)
    leave = enter * np.uint64(pow(BYTE_BASE, k, 1 << 64))
    powers = np.array([pow(base, n, 1 << 64) for n in range(num_powers)], np.uint64)
    return GramTables(k, enter, leave, powers)


def _random(number: int) -> int:
    """Return a number of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = number * BYTE_BASE & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


@inner
def hash_grams(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    tables: GramTables,
    hashes: NDArray[np.uint64],
    prefixes: NDArray[np.uint64],
) -> int:
    """Write the hash of each k-gram, and the hash of all hashes before each; return the number of k-grams.

    A k-gram of one byte gets the largest hash. A polynomial of bytes alone has collisions that follow a
    pattern (Thue-Morse); a polynomial of mixed hashes has not.
    """
    k, base, chunk_base = tables.k, np.uint64(BYTE_BASE), tables.powers[1]
    x = total = np.uint64(0)
    same = 0  # how many bytes before this one are equal, with the first of them
    for at in range(begin, begin + k):
        x = x * base + tables.enter[data[at]]
        same = same + 1 if at > begin and data[at] == data[at - 1] else 1
    grams = end - begin - k + 1
    prefixes[0] = total
    for i in range(grams):
        mixed = mix(x)
        hashes[i] = mixed if same < k else LARGEST
        total = total * chunk_base + mixed  # not the largest: runs of dashes and blanks differ
        prefixes[i + 1] = total
        if i + 1 < grams:
            byte = data[begin + i + k]
            same = same + 1 if byte == data[begin + i + k - 1] else 1
            x = x * base + tables.enter[byte] - tables.leave[data[begin + i]]
    return grams


@inner
def mix(x: int) -> int:
    """Return a number whose bits all depend on all bits of ``x`` (uint64), one-to-one; 0 for 0."""
    x = (x ^ x >> _HALF) * _MIX
    x = (x ^ x >> _HALF) * _MIX
    return x ^ x >> _HALF
