"""Find intervals of windows with equal chunks, by the hashes of these.

Intervals and chunks are defined in ``etl.kernels.hashing.window_anchors``.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.hashing.equal_keys import scatter_key
from etl.kernels.hashing.sorted_sets import among, distinct, repeated
from etl.kernels.hashing.window_anchors import ALL_CORES, FLAT, QUARTERS
from etl.kernels.jit import kernel

FREE: Final = np.uint32((1 << 32) - 1)
"""A free slot of a hash table."""

_SPREAD: Final = np.int64(-7046029254386353131)  # odd


class Intervals(NamedTuple):
    """Intervals of documents; the order of ``documents``, then ``starts`` is the order of occurrence."""

    documents: NDArray[np.int64]  # (n,)
    starts: NDArray[np.int32]  # (n,) the first window, in bytes from the start of the document
    counts: NDArray[np.int32]  # (n,) windows


class ChunkMatches(NamedTuple):
    """Which intervals have equal chunks."""

    firsts: NDArray[
        np.int64
    ]  # (n,) the first interval with the same key and chunk, or the interval itself
    chunks_of_key: NDArray[np.int32]  # (n,) different chunks of the key


def compare_chunks(
    keys: NDArray[np.int64], chunks: NDArray[np.int64], intervals: Intervals
) -> ChunkMatches:
    """Return the first of the intervals with the same key and chunk as each, in any order of intervals.

    >>> intervals = Intervals(np.array([7, 5, 5]), np.array([0, 9, 2], "i4"), np.ones(3, "i4"))
    >>> compare_chunks(np.array([3, 3, 3]), np.array([8, 8, 6]), intervals)
    ChunkMatches(firsts=array([1, 1, 2]), chunks_of_key=array([2, 2, 2], dtype=int32))
    """
    n = len(keys)
    slots, table = np.empty(n, np.int64), np.full(num_slots(n), FREE, np.uint32)
    firsts, counts = np.empty(n, np.int64), np.zeros(n, np.int32)
    _find_firsts(keys, chunks, intervals, table, slots, firsts)
    table[:] = FREE
    _count_chunks(keys, firsts, table, slots, counts)
    return ChunkMatches(firsts, counts)


def are_repeats(
    intervals: Intervals, firsts: NDArray[np.int64], min_bytes: int
) -> NDArray[np.bool_]:
    """Return which intervals are repeats of other ones, ``firsts``, that have equal windows."""
    is_other = intervals.documents != intervals.documents[firsts]
    distance = intervals.starts - intervals.starts[firsts]
    repeats: NDArray[np.bool_] = is_other | (distance >= min_bytes)
    return repeats


def may_share_windows(
    keys: NDArray[np.int64], cores: NDArray[np.int32], matches: ChunkMatches
) -> NDArray[np.bool_]:
    """Return which intervals may have some windows in common with intervals of other chunks.

    ``cores`` are ``ALL_CORES`` if they are unknown.
    """
    is_chunk = (matches.firsts == np.arange(len(keys))) & (matches.chunks_of_key > 1)
    chunks = np.flatnonzero(is_chunk)
    keys_of_chunks, known = keys[chunks], cores[chunks]
    found = among(keys_of_chunks, distinct(keys_of_chunks[known == ALL_CORES]))
    for quarter in range(QUARTERS):
        core = known.view(np.uint32) >> np.uint32(8 * quarter) & np.uint32(0xFF)
        has = np.flatnonzero(core)
        # Equal for equal keys with equal cores; that others are equal, too, costs a comparison.
        both = (keys_of_chunks[has] ^ core[has].astype(np.int64) * _SPREAD) * _SPREAD
        found[has[repeated(both)]] = True
    is_asked = keys == FLAT
    is_asked[chunks[found]] = True
    shares: NDArray[np.bool_] = is_asked[matches.firsts]
    return shares


def num_slots(num: int) -> int:
    """Return the size of a hash table in which at least half of the slots stay free."""
    return 1 << max(4, (2 * num - 1).bit_length())


@kernel
def _find_firsts(
    keys: NDArray[np.int64],
    chunks: NDArray[np.int64],
    intervals: Intervals,
    table: NDArray[np.uint32],
    slots: NDArray[np.int64],
    firsts: NDArray[np.int64],
) -> None:
    last = np.uint64(len(table) - 1)
    documents, starts = intervals.documents, intervals.starts
    for i in range(len(keys)):
        slot = np.uint64(scatter_key(keys[i] ^ chunks[i])) & last
        while True:
            j = table[slot]
            if j == FREE:
                table[slot] = i
                break
            if keys[j] == keys[i] and chunks[j] == chunks[i]:
                if documents[i] < documents[j] or (
                    documents[i] == documents[j] and starts[i] < starts[j]
                ):
                    table[slot] = i
                break
            slot = slot + np.uint64(1) & last
        slots[i] = slot
    for i in range(len(keys)):
        firsts[i] = table[slots[i]]


@kernel
def _count_chunks(
    keys: NDArray[np.int64],
    firsts: NDArray[np.int64],
    table: NDArray[np.uint32],
    slots: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Write the number of different chunks of each interval's key: intervals that are their own firsts."""
    last = np.uint64(len(table) - 1)
    for i in range(len(keys)):
        slot = np.uint64(scatter_key(keys[i])) & last
        while table[slot] != FREE and keys[table[slot]] != keys[i]:
            slot = slot + np.uint64(1) & last
        if table[slot] == FREE:
            table[slot] = i
        slots[i] = slot
        counts[table[slot]] += firsts[i] == i
    for i in range(len(keys)):
        counts[i] = counts[table[slots[i]]]
