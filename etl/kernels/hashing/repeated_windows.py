"""Find the windows of texts that occur earlier: equal chunks by their hashes, other windows by their bytes.

A window (``etl.kernels.hashing.window_anchors``) is a *repeat* if an equal one begins earlier in another
document, or at least its size before in the same one. Whether it is can be decided from the *first* equal
window alone: of several in one document, the first is farthest away.

1. ``compare_chunks``: intervals whose key and chunk are equal have equal windows. If the first of them is
   another document's or far enough, all windows of the others are repeats.
2. Where one key has different chunks, their intervals may share some windows. ``find_repeats`` finds them in
   the bytes of the chunks, for the intervals that 1. has not cut: every window that another one equals has
   its first occurrence among them.

So together, both find each repeat, and nothing else.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts
from etl.kernels.hashing.equal_keys import scatter_key
from etl.kernels.hashing.window_anchors import (
    BYTE_BASE,
    CHUNK_BASE,
    FLAT,
    GramTables,
    gram_tables,
    hash_grams,
    mix,
)
from etl.kernels.jit import inner, kernel

_GRAM: Final = 32  # bytes of the k-grams of a window's hash
_SECOND_BASE: Final = 0xA24BAED4963EE407  # odd
_FREE: Final = np.uint32((1 << 32) - 1)


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


class Repeats(NamedTuple):
    """Runs of repeated windows in one interval whose first occurrences are neighbours in another one."""

    intervals: NDArray[np.int64]  # (m,)
    starts: NDArray[
        np.int64
    ]  # (m,) the first byte of the first window, from the start of the document
    ends: NDArray[np.int64]  # (m,) the byte after the last window
    firsts: NDArray[np.int64]  # (m,) the interval with the first occurrences


def compare_chunks(
    keys: NDArray[np.int64], chunks: NDArray[np.int64], intervals: Intervals
) -> ChunkMatches:
    """Return the first of the intervals with the same key and chunk as each, in any order of intervals.

    >>> intervals = Intervals(np.array([7, 5, 5]), np.array([0, 9, 2], "i4"), np.ones(3, "i4"))
    >>> compare_chunks(np.array([3, 3, 3]), np.array([8, 8, 6]), intervals)
    ChunkMatches(firsts=array([1, 1, 2]), chunks_of_key=array([2, 2, 2], dtype=int32))
    """
    n = len(keys)
    slots, table = np.empty(n, np.int64), np.full(_num_slots(n), _FREE, np.uint32)
    firsts, counts = np.empty(n, np.int64), np.zeros(n, np.int32)
    _find_firsts(keys, chunks, intervals, table, slots, firsts)
    table[:] = _FREE
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


def may_share_windows(keys: NDArray[np.int64], matches: ChunkMatches) -> NDArray[np.bool_]:
    """Return which intervals may have some windows in common with intervals of other chunks."""
    asked: NDArray[np.bool_] = (matches.chunks_of_key > 1) | (keys == FLAT)
    return asked


def find_repeats(
    keys: NDArray[np.int64], texts: Texts, intervals: Intervals, min_bytes: int
) -> Repeats:
    """Return the repeated windows of intervals, given their keys and chunks; bytes are compared.

    Intervals of one key are neighbours, in the order of occurrence. Memory: 24 bytes per window.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> intervals = Intervals(np.array([1, 2]), np.array([0, 10], "i4"), np.array([4, 3], "i4"))
    >>> find_repeats(np.array([7, 7]), texts(pa.array(["abcdefg", "xcdefg"])), intervals, 4)[1:]
    (array([11]), array([16]), array([0]))
    """
    first_window = np.zeros(len(intervals.counts) + 1, np.int64)
    np.cumsum(intervals.counts, out=first_window[1:])
    num = int(first_window[-1])
    assert num < _FREE
    hashes, firsts = np.empty(num, np.uint64), np.empty(num, np.uint32)
    _roll_windows(texts.offsets, texts.data, intervals.counts, gram_tables(min_bytes, 0), hashes)
    owners = np.repeat(np.arange(len(intervals.counts), dtype=np.int32), intervals.counts)
    windows = (hashes, owners, first_window)
    # Windows of different keys differ. A table for each key is small, and stays in the processor's cache.
    ends = first_window[np.append(np.flatnonzero(np.diff(keys)) + 1, len(keys))]
    largest = int(np.diff(ends, prepend=0).max(initial=0))
    table = np.empty(_num_slots(largest), np.uint32)
    _find_first_windows(texts.offsets, texts.data, min_bytes, windows, ends, table, firsts)
    size = _join_windows(intervals, min_bytes, windows, firsts, np.empty((0, 4), np.int64))
    out = np.empty((size, 4), np.int64)
    _join_windows(intervals, min_bytes, windows, firsts, out)
    return Repeats(*out.T)


def hash_windows(
    texts: Texts, counts: NDArray[np.int32], min_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two independent hashes of each window of chunks, of which ``counts`` has the windows.

    The second one is even and not 0, as the chunk of an interval.
    """
    keys, second = (_hash(texts, counts, min_bytes, base) for base in (CHUNK_BASE, _SECOND_BASE))
    chunks = np.maximum(second >> np.uint64(1) << np.uint64(1), np.uint64(2))
    return keys.view(np.int64), chunks.view(np.int64)


def _hash(texts: Texts, counts: NDArray[np.int32], min_bytes: int, base: int) -> NDArray[np.uint64]:
    """Return a hash of each window of chunks."""
    k = min(_GRAM, min_bytes)
    longest = int(np.diff(texts.offsets).max(initial=0)) + 1
    prefixes, grams = np.empty(longest + 1, np.uint64), np.empty(longest, np.uint64)
    tables, out = gram_tables(k, min_bytes - k + 2, base), np.empty(int(counts.sum()), np.uint64)
    _hash_windows(texts.offsets, texts.data, counts, tables, grams, prefixes, out)
    return out


def _num_slots(num: int) -> int:
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
            if j == _FREE:
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
        while table[slot] != _FREE and keys[table[slot]] != keys[i]:
            slot = slot + np.uint64(1) & last
        if table[slot] == _FREE:
            table[slot] = i
        slots[i] = slot
        counts[table[slot]] += firsts[i] == i
    for i in range(len(keys)):
        counts[i] = counts[table[slots[i]]]


@kernel
def _hash_windows(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    counts: NDArray[np.int32],
    tables: GramTables,
    grams: NDArray[np.uint64],
    prefixes: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    at, w = 0, len(tables.powers) - 1
    for i in range(len(counts)):
        hash_grams(data, offsets[i], offsets[i + 1], tables, grams, prefixes)
        for p in range(counts[i]):
            out[at] = mix(prefixes[p + w] - prefixes[p] * tables.powers[w])
            at += 1


@kernel
def _roll_windows(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    counts: NDArray[np.int32],
    tables: GramTables,
    out: NDArray[np.uint64],
) -> None:
    """Write a hash of each window that is faster than ``_hash_windows``, for windows compared by bytes."""
    at, size, base = 0, tables.k, np.uint64(BYTE_BASE)
    for i in range(len(counts)):
        begin = offsets[i]
        x = np.uint64(0)
        for p in range(begin, begin + size):
            x = x * base + tables.enter[data[p]]
        out[at] = mix(x)
        for p in range(begin, begin + counts[i] - 1):
            x = x * base + tables.enter[data[p + size]] - tables.leave[data[p]]
            at += 1
            out[at] = mix(x)
        at += 1


@kernel
def _find_first_windows(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    size: int,
    windows: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]],
    ends: NDArray[np.int64],
    table: NDArray[np.uint32],
    firsts: NDArray[np.uint32],
) -> None:
    """Write the number of the first equal window of each; ``ends`` are those of the windows of a key."""
    begin = 0
    for end in ends:
        slots = 16
        while slots < 2 * (end - begin):
            slots *= 2
        table[:slots] = _FREE
        _find_firsts_of_key(offsets, data, size, windows, (begin, end), table[:slots], firsts)
        begin = end


@inner
def _find_firsts_of_key(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    size: int,
    windows: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]],
    span: tuple[int, int],
    table: NDArray[np.uint32],
    firsts: NDArray[np.uint32],
) -> None:
    hashes, owners, first_window = windows
    last = np.uint64(len(table) - 1)
    for i in range(span[0], span[1]):
        at = offsets[owners[i]] + i - first_window[owners[i]]
        slot = hashes[i] & last
        while True:
            j = np.int64(table[slot])
            if j == _FREE:
                table[slot] = firsts[i] = i
                break
            if hashes[j] == hashes[i]:
                other = offsets[owners[j]] + j - first_window[owners[j]]
                known = 0
                # If the windows before both are equal, only the last bytes are new.
                if i > first_window[owners[i]] and j > first_window[owners[j]]:
                    known = size - 1 if firsts[i - 1] == j - 1 else 0
                if _are_equal(data, at + known, other + known, size - known):
                    firsts[i] = j
                    break
            slot = slot + np.uint64(1) & last


@inner
def _are_equal(data: NDArray[np.uint8], one: int, other: int, size: int) -> bool:
    for k in range(size):
        if data[one + k] != data[other + k]:
            return False
    return True


@kernel
def _join_windows(
    intervals: Intervals,
    size: int,
    windows: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]],
    firsts: NDArray[np.uint32],
    out: NDArray[np.int64],
) -> int:
    """Write runs of repeated windows (interval, start, end, first interval), as many as fit.

    Returns their number.
    """
    _, owners, first_window = windows
    num, before = 0, -2  # before: the first occurrence of the window before, if that is a repeat
    for i in range(len(owners)):
        owner, j = owners[i], np.int64(firsts[i])
        other = owners[j]
        start = intervals.starts[owner] + i - first_window[owner]
        first_start = intervals.starts[other] + j - first_window[other]
        is_far = intervals.documents[owner] != intervals.documents[other]
        if not is_far and start - first_start < size:
            before = -2
            continue
        if i > first_window[owner] and j > first_window[other] and before == j - 1:
            if num <= len(out):
                out[num - 1, 2] = start + size
        else:
            if num < len(out):
                out[num, 0], out[num, 1], out[num, 2], out[num, 3] = (
                    owner,
                    start,
                    start + size,
                    other,
                )
            num += 1
        before = j
    return num
