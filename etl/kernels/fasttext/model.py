"""A supervised fastText model as arrays, and its words by their hashes."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner

KEY_BYTES: Final = 32
"""The bytes of a token that are its key."""

Key = tuple[int, int, int, int]
"""The first bytes of a token, padded with zeros, as numbers of 64 bits."""

FACTORS: Final = tuple(
    np.uint64(factor)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
)
"""What the numbers of a key are multiplied by; the high bits of the sum are the hash."""

_LINE: Final = 64  # bytes of the cache


class ModelSettings(NamedTuple):
    """The numbers that determine which n-grams a model has."""

    dimension: int
    num_words: int
    end: int  # the number of the word ``</s>``; -1: not known, num_words or more: a label
    num_buckets: int
    is_pruned: int  # 1 if only some buckets have vectors
    min_chars: int
    max_chars: int  # 0: no n-grams of characters
    max_tokens: int  # 1: no n-grams of tokens


class Vocabulary(NamedTuple):
    """The words, then the labels of a model, indexed by the hashes of their keys (``hash_key``)."""

    file: NDArray[np.uint8]  # that contains them
    starts: NDArray[np.int64]  # (entries,)
    ends: NDArray[np.int64]  # (entries,)
    maybe: NDArray[np.int64]  # (2^k / 64,) by the low k bits of a hash: 0 if it has no entry
    firsts: NDArray[np.int64]  # (2^k + 1,) by the high bits of a hash: the first of its entries
    hashes: NDArray[np.uint32]  # (entries,) sorted
    ids: NDArray[np.int32]  # (entries,) in the order of the hashes
    shift: int  # 32 - k


class Vectors(NamedTuple):
    """The vectors of words, then of buckets: dense, or the codes of a product quantizer."""

    dense: NDArray[
        np.uint8
    ]  # bytes of float32 (rows, dimension), aligned or not; empty if quantized
    codes: NDArray[np.uint8]  # (rows, parts)
    norms: NDArray[np.float32]  # (rows,) or empty
    centroids: NDArray[np.float32]  # (parts, 256, numbers of a part)
    buckets: NDArray[np.int64]  # (blocks, 2) of 64 buckets: which have a vector, how many before do
    maybe: NDArray[np.int64]  # (2^k / 64,) by the low k bits of a bucket: 0 if it has no vector


class Model(NamedTuple):
    """A model without its labels."""

    settings: ModelSettings
    vocabulary: Vocabulary
    vectors: Vectors


def aligned_zeros(size: int, kind: type[np.generic]) -> NDArray[Any]:
    """Return zeros that begin at a multiple of 64 bytes: 16 float32 are in one line of the cache."""
    item = np.dtype(kind).itemsize
    zeros = np.zeros(size + _LINE // item, kind)
    first = -zeros.ctypes.data % _LINE // item
    return zeros[first : first + size]


@inner
def hash_key(key: Key) -> int:
    """Return 32 bits of a sum of products."""
    mixed = np.uint64(key[0]) * FACTORS[0] + np.uint64(key[1]) * FACTORS[1]
    mixed += np.uint64(key[2]) * FACTORS[2] + np.uint64(key[3]) * FACTORS[3]
    return mixed >> np.uint64(32)


@inner
def find_word(
    data: NDArray[np.uint8], at: int, stop: int, hashed: int, vocabulary: Vocabulary
) -> int:
    """Return the number of a word or label, or -1. Of equal entries, the last one counts, as in fastText."""
    found = -1
    # Most words of real text are not in a small vocabulary: a table of bits excludes them with one read.
    if not table_bit(vocabulary.maybe, hashed):
        return found
    # Entries are sorted by hash: the top bits lead to the few that may be equal.
    prefix = np.int64(hashed >> np.uint64(vocabulary.shift))
    for k in range(vocabulary.firsts[prefix], vocabulary.firsts[prefix + 1]):
        if np.uint64(vocabulary.hashes[k]) == hashed:
            entry = np.int64(vocabulary.ids[k])
            start = vocabulary.starts[entry]
            if vocabulary.ends[entry] - start == stop - at:
                z = 0
                while z < stop - at and vocabulary.file[start + z] == data[at + z]:
                    z += 1
                if z == stop - at:
                    found = entry
    return found


@inner
def table_bit(bits: NDArray[np.int64], number: int) -> int:
    """Return the bit of a number (uint64) in a table, by the low bits of a number."""
    place = number & np.uint64(len(bits) * 64 - 1)
    bit: int = bits[place >> np.uint64(6)] >> (place & np.uint64(63)) & 1
    return bit
