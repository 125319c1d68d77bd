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
from etl.kernels.jit import allocator, inner, kernel

FLAT: Final = 0
"""The key of windows of one byte."""

LOCAL: Final = 0
"""The chunk of an interval whose windows occur earlier in the text, without overlap; its key is 0, too."""

_MASK: Final = (1 << 64) - 1
BYTE_BASE: Final = 0x9E3779B97F4A7C15
"""The base of the rolling hash of bytes; odd."""

CHUNK_BASE: Final = 0xD1342543DE82EF95
"""The base of the hash of a sequence of k-gram hashes; odd."""

_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)
_LARGEST: Final = np.uint64(_MASK)


class Anchors(NamedTuple):
    """The intervals of texts, in the order of their windows; the first begins at byte 0."""

    first: NDArray[np.int64]  # (n + 1,) the first interval of each text, and their number
    keys: NDArray[np.int64]  # (m,) of the anchor: equal for equal windows
    chunks: NDArray[np.int64]  # (m,) a hash of the chunk and of the anchor's offset, even; or LOCAL
    counts: NDArray[np.int32]  # (m,) windows


class GramTables(NamedTuple):
    """Random numbers of bytes and powers of the bases, for hashes of k-grams and sequences of them."""

    k: int
    enter: NDArray[np.uint64]  # (256,) the number of a byte that enters a k-gram
    leave: NDArray[np.uint64]  # (256,) of a byte that leaves it
    powers: NDArray[np.uint64]  # (p,) of the base of sequences


class _Buffers(NamedTuple):
    """Arrays for one text, reused for the next."""

    hashes: NDArray[np.uint64]
    prefixes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    chunks: NDArray[np.uint64]
    counts: NDArray[np.int32]


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
    )
    first = np.zeros(len(texts.offsets), np.int64)
    keys, chunks, counts = _find(texts.offsets, texts.data, min_bytes, tables, buffers, first)
    return Anchors(first, keys.view(np.int64), chunks.view(np.int64), counts)


def gram_tables(k: int, num_powers: int, base: int = CHUNK_BASE) -> GramTables:
    """Return the tables for k-grams of ``k`` bytes and sequences of fewer than ``num_powers`` of them."""
    enter = np.array([_random(byte + 1) for byte in range(256)], np.uint64)
    leave = enter * np.uint64(pow(BYTE_BASE, k, 1 << 64))
    powers = np.array([pow(base, n, 1 << 64) for n in range(num_powers)], np.uint64)
    return GramTables(k, enter, leave, powers)


def _random(number: int) -> int:
    """Return a number of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = number * BYTE_BASE & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


@allocator
def _find(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    size: int,
    tables: GramTables,
    buffers: _Buffers,
    first: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32]]:
    capacity = 1024 + 5 * (offsets[-1] - offsets[0]) // size
    keys, chunks = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    counts = np.empty(capacity, np.int32)
    used = 0
    for text in range(len(offsets) - 1):
        num = _find_in_text(data, offsets[text], offsets[text + 1], size, tables, buffers)
        if used + num > len(keys):
            keys, chunks = _grown(keys, used + num), _grown(chunks, used + num)
            counts = _grown(counts, used + num)
        keys[used : used + num] = buffers.keys[:num]
        chunks[used : used + num] = buffers.chunks[:num]
        counts[used : used + num] = buffers.counts[:num]
        used += num
        first[text + 1] = used
    return keys[:used], chunks[:used], counts[:used]


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
                if last == _LARGEST and p - first < w:
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
        hashes[i] = mixed if same < k else _LARGEST
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


@inner
def _append_local(buffers: _Buffers, num: int, windows: int) -> int:
    """Append windows that occur earlier in the text; return the number of intervals."""
    if num > 0 and buffers.chunks[num - 1] == np.uint64(LOCAL):
        buffers.counts[num - 1] += windows
        return num
    buffers.keys[num] = buffers.chunks[num] = np.uint64(LOCAL)
    buffers.counts[num] = windows
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
