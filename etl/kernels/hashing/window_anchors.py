r"""Find anchors of texts, by which equal windows of a given size are found without comparing all of them.

A *window* is a run of exactly ``L`` bytes of a text, and a *k-gram* is a run of ``k = L // 2`` bytes. The
*anchor* of a window is the k-gram with the least hash among the ``w = L - k + 1`` in it, and of equal ones
the rightmost. So equal windows have equal anchors at the same offset, whatever surrounds them: no byte
outside of the window is used. (The rule of robust winnowing, which prefers the anchor of the window before,
depends on that window, and would miss repeats.)

The windows of a text that share an anchor are neighbours, an *interval*; every window is in one interval. The
bytes that its windows cover are its *chunk*: ``count - 1 + L`` bytes for ``count`` windows. Two intervals
with equal chunks and anchors at the same offset have equal windows in the same order. Intervals with
different keys have no window in common. So windows need only be compared where one key has different chunks.

Even there, intervals may have nothing in common but the anchor. The bytes of a window beside its anchor can
be divided in ``w`` ways between its left and its right. All windows of a quarter of these ways contain the
same seven eighths of a window, the *core* of the quarter. Two intervals of one key with a common window have
the same core in one of the quarters.

Two rules limit the number of intervals in text that repeats itself, without a loss:

- A k-gram of one byte, such as a line of dashes, gets the largest hash, so it is chosen only in windows of
  one byte. Of these, up to ``w`` in a row share an interval, wherever the run began. The key is ``FLAT``:
  its chunks depend on where runs begin, so equal windows may be in chunks that differ in length or offset.
- In a run with the period ``d``, each window equals the one ``m * d`` bytes before it, for every ``m``. If
  that is in the run and does not overlap the window (``m * d >= L``), the window is a repeat whatever else a
  corpus has, and is never the first of its kind. Such windows are in intervals without a chunk (``LOCAL``).

In random text, a share of ``2 / (w + 1)`` of the windows begins an interval: 8 per kilobyte for ``L = 500``.
At most, each window is one. Memory: 36 bytes per byte of the longest text.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts
from etl.kernels.hashing.gram_hashes import LARGEST, MASK, GramTables, gram_tables, hash_grams, mix
from etl.kernels.jit import allocator, inner, kernel

FLAT: Final = 0
"""The key of windows of one byte."""

LOCAL: Final = 0
"""The chunk of an interval whose windows occur earlier in the text, without overlap; its key is 0, too."""

ALL_CORES: Final = -1
"""The cores of an interval that may have windows in common with every one of its key: of the key ``FLAT``."""

QUARTERS: Final = 4
"""The number of cores of an interval."""

_ONE: Final = np.uint64(1)
_TOP_BYTE: Final = np.uint64(56)


class Anchors(NamedTuple):
    """The intervals of texts, in the order of their windows; the first begins at byte 0."""

    first: NDArray[np.int64]  # (n + 1,) the first interval of each text, and their number
    keys: NDArray[np.int64]  # (m,) of the anchor: equal for equal windows
    chunks: NDArray[np.int64]  # (m,) a hash of the chunk and of the anchor's offset, even; or LOCAL
    counts: NDArray[np.int32]  # (m,) windows
    cores: NDArray[np.int32]  # (m,) a byte for each quarter, 0 without windows; or ALL_CORES


class _Buffers(NamedTuple):
    """Arrays for one text, reused for the next."""

    hashes: NDArray[np.uint64]
    prefixes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    chunks: NDArray[np.uint64]
    counts: NDArray[np.int32]
    cores: NDArray[np.uint32]


def find_anchors(texts: Texts, min_bytes: int) -> Anchors:
    """Return the intervals of the windows of ``min_bytes`` bytes of each text; nulls have none.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> found = find_anchors(texts(pa.array(["0: one, two, three", "1: one, two, three"])), 12)
    >>> found.first, found.counts.sum()
    (array([0, 4, 9]), np.int64(14))
    >>> (found.keys[2:4] == found.keys[7:]).tolist(), (found.chunks[2:4] == found.chunks[7:]).tolist()
    ([True, True], [True, True])
    """
    assert min_bytes >= 2
    k = min_bytes // 2
    tables = gram_tables(k, 2 * (min_bytes - k + 1))
    longest = int(np.diff(texts.offsets).max(initial=0)) + 1
    buffers = _Buffers(
        np.empty(longest, np.uint64),
        np.empty(longest + 1, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(longest, np.int32),
        np.empty(longest, np.uint32),
    )
    first = np.zeros(len(texts.offsets), np.int64)
    keys, chunks, counts, cores = _find(
        texts.offsets, texts.data, min_bytes, tables, buffers, first
    )
    return Anchors(first, keys.view(np.int64), chunks.view(np.int64), counts, cores.view(np.int32))


@allocator
def _find(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    size: int,
    tables: GramTables,
    buffers: _Buffers,
    first: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32]]:
    capacity = 1024 + 5 * (offsets[-1] - offsets[0]) // size
    keys, chunks = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    counts, cores = np.empty(capacity, np.int32), np.empty(capacity, np.uint32)
    used = 0
    for text in range(len(offsets) - 1):
        num = _find_in_text(data, offsets[text], offsets[text + 1], size, tables, buffers)
        if used + num > len(keys):
            keys, chunks = _grown(keys, used + num), _grown(chunks, used + num)
            counts, cores = _grown(counts, used + num), _grown(cores, used + num)
        keys[used : used + num] = buffers.keys[:num]
        chunks[used : used + num] = buffers.chunks[:num]
        counts[used : used + num] = buffers.counts[:num]
        cores[used : used + num] = buffers.cores[:num]
        used += num
        first[text + 1] = used
    return keys[:used], chunks[:used], counts[:used], cores[:used]


@allocator
def _grown(array: NDArray[np.uint64], needed: int) -> NDArray[np.uint64]:
    larger = np.empty(2 * needed, array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def _find_in_text(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    size: int,
    tables: GramTables,
    buffers: _Buffers,
) -> int:
    """Write the intervals of the text from ``begin`` to ``end``; return their number."""
    if end - begin < size:
        return 0
    hashes = buffers.hashes
    grams = hash_grams(data, begin, end, tables, hashes, buffers.prefixes)
    w = size - tables.k + 1
    best, value = 0, hashes[0]
    for i in range(1, w):
        if hashes[i] <= value:
            best, value = i, hashes[i]
    # first: of the open interval; tie: the distance from the last anchor, if hashes are equal
    num = first = tie = 0
    period, run_start, run_end = 0, begin, begin  # bytes from run_start to run_end have the period
    windows = grams - w + 1
    for p in range(1, windows + 1):
        old, old_value = best, value
        if p < windows:
            last = hashes[p + w - 1]
            if last <= value:  # rightmost: in a run, no search
                if last == LARGEST and p - first < w:
                    continue
                best, value = p + w - 1, last
            elif best < p:
                best, value = p, hashes[p]
                for i in range(p + 1, p + w):
                    if hashes[i] <= value:
                        best, value = i, hashes[i]
            if best == old:
                continue
        # The interval from ``first`` to ``p`` ends. Equal hashes next to each other suggest a run with
        # the distance of the two anchors as its period, which is then verified in the bytes.
        stop = begin + p - 1 + size
        is_local = False
        earlier = begin + first - (size + tie - 1) // tie * tie if tie > 0 else begin - 1
        if earlier >= begin:
            if tie != period or begin + old > run_end:
                period, run_start, run_end = tie, begin + old, begin + old + tie
                while run_start > earlier and data[run_start - 1] == data[run_start - 1 + period]:
                    run_start -= 1
            while run_end < stop and data[run_end] == data[run_end - period]:
                run_end += 1
            is_local = run_start <= earlier and run_end >= stop
        if is_local:
            num = _append_local(buffers, num, p - first)
        else:
            _set_interval(buffers, num, (first, p), (old, old_value), tables.powers, w)
            num += 1
        first = p
        tie = best - old if value == old_value else 0
    return num


@inner
def _append_local(buffers: _Buffers, num: int, windows: int) -> int:
    """Append windows that occur earlier in the text; return the number of intervals."""
    if num > 0 and buffers.chunks[num - 1] == np.uint64(LOCAL):
        buffers.counts[num - 1] += windows
        return num
    buffers.keys[num] = buffers.chunks[num] = np.uint64(LOCAL)
    buffers.counts[num] = windows
    buffers.cores[num] = 0
    return num + 1


@inner
def _set_interval(
    buffers: _Buffers,
    num: int,
    span: tuple[int, int],
    anchor: tuple[int, int],
    powers: NDArray[np.uint64],
    w: int,
) -> None:
    """Write the interval of the windows of ``span``, given the k-gram of its anchor and that one's hash."""
    windows = span[1] - span[0]
    grams = windows - 1 + w
    prefixes = buffers.prefixes
    sequence = prefixes[span[0] + grams] - prefixes[span[0]] * powers[grams]
    chunk = mix(mix(sequence + np.uint64(windows)) + np.uint64(anchor[0] - span[0]))
    # Even and not LOCAL: the table ``keys`` uses the last bit for its own flag.
    buffers.chunks[num] = max(chunk >> _ONE << _ONE, np.uint64(2))
    # Least hashes are small numbers. Mixed, they are spread over all partitions of a shuffle.
    buffers.keys[num] = mix(anchor[1] + _ONE)
    buffers.counts[num] = windows
    buffers.cores[num] = _cores(prefixes, span, anchor, powers, w)


@inner
def _cores(
    prefixes: NDArray[np.uint64],
    span: tuple[int, int],
    anchor: tuple[int, int],
    powers: NDArray[np.uint64],
    w: int,
) -> int:
    """Return a hash of the core of each quarter that has windows in an interval, and zeros for the others."""
    if anchor[1] == LARGEST:
        return np.uint32(ALL_CORES & MASK >> 32)
    cores = np.uint32(0)
    # The bytes between the first byte of a window and its anchor: of the last and the first window.
    least, most = anchor[0] - span[1] + 1, anchor[0] - span[0]
    for quarter in range(QUARTERS):
        near, far = quarter * w // QUARTERS, (quarter + 1) * w // QUARTERS
        if least < far and most >= near:
            begin, grams = anchor[0] - near, near + w - far + 1
            core = mix(prefixes[begin + grams] - prefixes[begin] * powers[grams]) >> _TOP_BYTE
            cores |= np.uint32(max(core, _ONE)) << np.uint32(8 * quarter)
    return cores
