"""Add the vectors of words and n-grams.

An n-gram has the vector of its bucket: its hash modulo the number of buckets. A pruned model keeps the
vectors of some buckets only.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.lanes import LANES, add_floats, load_float, prefetch
from etl.kernels.bytes.simd import count_ones
from etl.kernels.fasttext.model import Model, Vectors, table_bit
from etl.kernels.fasttext.token_table import COUNT, ROW, TokenTable, vector_width
from etl.kernels.jit import inner, rare

_LOW: Final = np.uint64(0xFFFFFFFF)
_AHEAD: Final = 32  # rows that are loaded into the cache before they are added
_LINE: Final = 64  # bytes of the cache
_SIX_BITS: Final = np.uint64(63)


class Ngrams(NamedTuple):
    """N-grams whose vectors are to be added: each to the vector in a slot of the table of tokens."""

    hashes: NDArray[np.uint32]
    slots: NDArray[np.int32]


def vector_at(row: int, model: Model) -> NDArray[np.float32]:
    """Return a copy of a vector."""
    dimension, vectors = model.settings.dimension, model.vectors
    if len(vectors.dense):
        size = 4 * dimension
        return vectors.dense[row * size : (row + 1) * size].copy().view(np.float32)
    parts = vectors.centroids[np.arange(vectors.codes.shape[1]), vectors.codes[row]]
    norm = vectors.norms[row] if len(vectors.norms) else np.float32(1)
    vector: NDArray[np.float32] = norm * parts.reshape(-1)[:dimension]
    return vector


@rare
def add_ngrams(ngrams: Ngrams, size: int, model: Model, table: TokenTable) -> None:
    """Add the vectors of ``size`` n-grams to the vectors of their slots, and count them.

    In steps, each in place: buckets, those that may have a vector, rows. What a step drops is stored and then
    overwritten, since no branch could be predicted, and so that loads do not wait for each other.
    """
    width = vector_width(table)
    hashes, slots, vectors = ngrams.hashes, ngrams.slots, model.vectors
    _find_buckets(hashes, size, np.uint64(model.settings.num_buckets))
    # Most n-grams of a pruned model have no vector. A small table of bits excludes most of them before
    # the exact look-up, which reads a larger one.
    if model.settings.is_pruned:
        count = 0
        for k in range(size):
            bucket, slot = np.uint64(hashes[k]), slots[k]
            hashes[count], slots[count] = bucket, slot
            count += table_bit(vectors.maybe, bucket)
        size, count = count, 0
        for k in range(size):
            slot = slots[k]
            row, is_kept = _find_row(np.uint64(hashes[k]), vectors)
            hashes[count], slots[count] = row, slot
            count += is_kept
        size = count
    base, row_bytes = model.settings.num_words, 4 * model.settings.dimension
    for k in range(size):
        # Rows are at random places of a table of megabytes: request all lines of a later row now.
        ahead = base + np.int64(hashes[min(k + _AHEAD, size - 1)])
        for z in range(0, row_bytes, _LINE):
            prefetch(vectors.dense, ahead * row_bytes + z)
        prefetch(vectors.dense, (ahead + 1) * row_bytes - 1)
        slot = np.int64(slots[k])
        table.rows[slot * ROW + COUNT] += 1
        add_row(base + np.int64(hashes[k]), model, table.vectors, slot * width)


@inner
def _find_buckets(hashes: NDArray[np.uint32], size: int, num_buckets: int) -> None:
    """Replace hashes by their buckets."""
    # A division takes many cycles, so multiply by the inverse (Barrett): hash * floor((2^64 - 1) / m) /
    # 2^64 is the quotient or one less, so one subtraction corrects the rest.
    inverse = ~np.uint64(0) // num_buckets
    high, low = inverse >> np.uint64(32), inverse & _LOW
    for k in range(size):
        hashed = np.uint64(hashes[k])
        quotient = (high * hashed + (low * hashed >> np.uint64(32))) >> np.uint64(32)
        rest = hashed - quotient * num_buckets
        hashes[k] = rest - num_buckets if rest >= num_buckets else rest


@inner
def _find_row(bucket: int, vectors: Vectors) -> tuple[int, int]:
    """Return the row of a bucket among the kept buckets, and 1 if it was kept, else 0."""
    # Rank in a bitmap: the number of kept buckets in the blocks before, plus the number before this one
    # in its block. If buckets 3, 70 and 71 were kept, block 1 has 1 before it, and bucket 71 has row 2.
    block, bit = bucket >> np.uint64(6), bucket & _SIX_BITS
    kept = vectors.buckets[block, 0]
    before = kept & (np.int64(1) << np.int64(bit)) - 1
    return vectors.buckets[block, 1] + count_ones(before), kept >> np.int64(bit) & 1


@inner
def add_row(row: int, model: Model, sums: NDArray[np.float32], first: int) -> None:
    """Add a vector to the numbers from ``first`` on."""
    dimension, vectors = model.settings.dimension, model.vectors
    if len(vectors.dense):
        at, whole = row * dimension * 4, dimension - dimension % LANES
        for z in range(0, whole, LANES):
            add_floats(sums, first + z, vectors.dense, at + 4 * z)
        # The last numbers, of dimensions that are not a multiple of LANES.
        for z in range(whole, dimension):
            sums[first + z] += load_float(vectors.dense, at + 4 * z)
        return
    parts = vectors.codes.shape[1]
    size = vectors.centroids.shape[2]
    norm = vectors.norms[row] if len(vectors.norms) else np.float32(1)
    # A quantized vector: each part of it is one of 256 centroids.
    for part in range(parts):
        code = vectors.codes[row, part]
        for z in range(min(size, dimension - part * size)):
            sums[first + part * size + z] += norm * vectors.centroids[part, code, z]
