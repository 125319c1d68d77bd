"""Find the windows of texts that occur earlier, by their bytes.

A window (``etl.kernels.hashing.window_anchors``) is a *repeat* if an equal one begins earlier in another
document, or at least its size before in the same one. Whether it is can be decided from the *first* equal
window alone: of several in one document, the first is farthest away.

1. ``equal_chunks.compare_chunks``: intervals whose key and chunk are equal have equal windows. If the first
   of them is another document's or far enough, all windows of the others are repeats.
2. Where one key has different chunks, their intervals may share some windows. ``find_repeats`` finds them in
   the bytes of the chunks, for the intervals that 1. has not cut: every window that another one equals has
   its first occurrence among them.

So together, both find each repeat, and nothing else.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts
from etl.kernels.hashing.equal_chunks import FREE, Intervals, num_slots
from etl.kernels.hashing.gram_hashes import (
    BYTE_BASE,
    CHUNK_BASE,
    GramTables,
    gram_tables,
    hash_grams,
    mix,
)
from etl.kernels.jit import inner, kernel

_GRAM: Final = 32  # bytes of the k-grams of a window's hash
_SECOND_BASE: Final = 0xA24BAED4963EE407  # odd


class Repeats(NamedTuple):
    """Runs of repeated windows in one interval whose first occurrences are neighbours in another one."""

    intervals: NDArray[np.int64]  # (m,)
    starts: NDArray[
        np.int64
    ]  # (m,) the first byte of the first window, from the start of the document
    ends: NDArray[np.int64]  # (m,) the byte after the last window
    firsts: NDArray[np.int64]  # (m,) the interval with the first occurrences


def find_repeats(
    keys: NDArray[np.int64], texts: Texts, intervals: Intervals, min_bytes: int
) -> Repeats:
    """Return the repeated windows of intervals, given their keys and chunks; bytes are compared.

    Intervals of one key are neighbours, in the order of occurrence. Memory: 16 bytes per window, and as many
    again per window of the key that has the most.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> intervals = Intervals(np.array([1, 2]), np.array([0, 10], "i4"), np.array([4, 3], "i4"))
    >>> find_repeats(np.array([7, 7]), texts(pa.array(["abcdefg", "xcdefg"])), intervals, 4)[1:]
    (array([11]), array([16]), array([0]))
    """
    first_window = np.zeros(len(intervals.counts) + 1, np.int64)
    np.cumsum(intervals.counts, out=first_window[1:])
    num = int(first_window[-1])
    assert num < FREE
    hashes, firsts = np.empty(num, np.uint64), np.empty(num, np.uint32)
    _roll_windows(texts.offsets, texts.data, intervals.counts, gram_tables(min_bytes, 0), hashes)
    owners = np.repeat(np.arange(len(intervals.counts), dtype=np.int32), intervals.counts)
    windows = (hashes, owners, first_window)
    # Windows of different keys differ. A table for each key is small, and stays in the processor's cache.
    ends = first_window[np.append(np.flatnonzero(np.diff(keys)) + 1, len(keys))]
    largest = int(np.diff(ends, prepend=0).max(initial=0))
    table = np.empty(num_slots(largest), np.uint32)
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
    """Write the number of the first equal window of each; ``ends`` has the end of each key's windows."""
    begin = 0
    for end in ends:
        slots = 16
        while slots < 2 * (end - begin):
            slots *= 2
        table[:slots] = FREE
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
            if j == FREE:
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
