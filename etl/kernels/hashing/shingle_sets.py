"""Compute the exact Jaccard similarity or the containment of pairs of texts from their sets of shingles.

Sets are unordered and stored one after another in one array. For each document, its set is put into a hash
table with linear probing, at most half full, and the sets of its pairs are looked up in it. A pair is given
up as soon as too many shingles are missing: two sets of a and b elements have a Jaccard similarity of at
least t only if they share at least t / (1 + t) * (a + b) of them (Xiao et al. 2008, PPJoin), and a share of
t of the a elements is in the other set only if they share t * a.
Shingles are 64-bit hashes: different shingles count as equal only by a collision.

Cost: 2 ns per shingle of a pair, where sorting a set takes 20 ns per shingle. Memory: 8 bytes per shingle,
and 64 per byte of the longest text at most; 8 in prose.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts
from etl.kernels.hashing.independent_set import GOES, OPEN, STAYS
from etl.kernels.hashing.minhash_signatures import (
    Shingling,
    TextBuffers,
    character_table,
    read_shingles,
    text_buffers,
)
from etl.kernels.jit import kernel


class ShingleSets(NamedTuple):
    """The sets of n documents: document k has the set ``hashes[starts[k]:stops[k]]``."""

    hashes: NDArray[np.int64]  # never 0
    starts: NDArray[np.int64]  # (n,)
    stops: NDArray[np.int64]  # (n,)


class Pairs(NamedTuple):
    """Pairs of documents: all pairs of a worse document are adjacent, in the order of their better ones."""

    better: NDArray[np.int64]  # (m,) positions in ``ShingleSets``
    worse: NDArray[np.int64]  # (m,)
    similarity: NDArray[np.float64]  # (m,) NaN where it is not known


def shingle_sets(texts: Texts, shingling: Shingling) -> ShingleSets:
    """Return the set of shingles of each text; a null has an empty set."""
    # No text has more shingles than twice its bytes. Unused pages take no memory.
    hashes = np.empty(2 * int(texts.offsets[-1] - texts.offsets[0]) + 1, np.int64)
    ends = fill_sets(texts, np.arange(len(texts.offsets) - 1), shingling, hashes)
    return ShingleSets(hashes[: ends[-1]], ends[:-1], ends[1:])


def fill_sets(
    texts: Texts, chosen: NDArray[np.int64], shingling: Shingling, hashes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Write the sets of the chosen texts one after another; return 0 and their ends: int64 (n + 1,).

    ``hashes`` has room for the words or characters of these texts.
    """
    buffers = text_buffers(texts)
    ends = np.zeros(len(chosen) + 1, np.int64)
    table, characters = _new_table(len(buffers.hashes)), character_table(shingling)
    _fill_sets(
        texts.offsets, texts.data, chosen, characters, shingling, buffers, table, hashes, ends
    )
    return ends


def group_pairs(pairs: Pairs, sizes: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Return 0 and the ends of groups of pairs whose texts have at most ``limit`` words together.

    ``sizes`` are the words of all documents; the words of pairs whose similarity is known do not count. All
    pairs of a worse document are in the same group, even if these have more words.

    >>> pairs = Pairs(np.array([0, 1, 0]), np.array([1, 2, 3]), np.full(3, np.nan))
    >>> group_pairs(pairs, np.array([4, 4, 4, 4]), 12), group_pairs(pairs, np.array([4, 4, 4, 4]), 1)
    (array([0, 2, 3]), array([0, 1, 2, 3]))
    """
    ends = np.zeros(len(pairs.worse) + 1, np.int64)
    num = _group_pairs(pairs, sizes, limit, np.full(len(sizes), -1), ends)
    return ends[:num]


def find_similar(
    sets: ShingleSets,
    pairs: Pairs,
    state: NDArray[np.int8],
    min_similarity: float,
    *,
    is_containment: bool = False,
) -> NDArray[np.float64]:
    """Return the similarity of each pair if it is at least ``min_similarity`` and can matter, otherwise 0.

    The similarity is the Jaccard index of two sets, or with ``is_containment`` the share of the worse
    document's set that is in the set of the better one (Broder 1997).
    ``state`` is the state of each document as far as it is known (see ``independent_set``); it is updated.
    All pairs in which a document is the worse one are in the same call. A pair cannot matter if its better
    document is removed, or if its worse document is similar to a better document that stays.

    >>> sets = ShingleSets(np.array([1, 2, 3, 2, 3, 4]), np.array([0, 3]), np.array([3, 6]))
    >>> pairs = Pairs(np.array([0]), np.array([1]), np.array([np.nan]))
    >>> state = np.array([STAYS, OPEN], np.int8)
    >>> find_similar(sets, pairs, state, 0.5), state
    (array([0.5]), array([0, 1], dtype=int8))
    """
    out = np.zeros(len(pairs.better))
    sizes = sets.stops - sets.starts
    table = _new_table(int(sizes[pairs.worse].max(initial=0)))
    _find_similar(sets, pairs, state, min_similarity, is_containment, table, out)
    return out


def _new_table(size: int) -> NDArray[np.int64]:
    """Return a table for at most ``size`` hashes; unused pages take no memory."""
    return np.empty(4 * max(size, 1), np.int64)


@kernel
def _fill_sets(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    chosen: NDArray[np.int64],
    characters: NDArray[np.int32],
    shingling: Shingling,
    buffers: TextBuffers,
    table: NDArray[np.int64],
    hashes: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    for k in range(len(chosen)):
        span = (offsets[chosen[k]], offsets[chosen[k] + 1])
        num, _ = read_shingles(data, span, characters, shingling, buffers)
        size, _ = _insert(buffers.hashes[:num], table, hashes[ends[k] :])
        ends[k + 1] = ends[k] + size


@kernel
def _group_pairs(
    pairs: Pairs,
    sizes: NDArray[np.int64],
    limit: int,
    group: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """Write 0 and the ends of the groups, and return their number; ``group`` is -1 for all documents."""
    num, start, used, first = 1, 0, 0, 0
    while first < len(pairs.worse):
        stop = first
        while stop < len(pairs.worse) and pairs.worse[stop] == pairs.worse[first]:
            stop += 1
        added = _join_group(pairs, first, stop, sizes, start, group)
        # The pairs begin a new group, in which all of their documents are new.
        if used > 0 and used + added > limit:
            ends[num] = start = first
            num += 1
            used, added = 0, _join_group(pairs, first, stop, sizes, start, group)
        used += added
        first = stop
    if first > 0:
        ends[num] = first
        num += 1
    return num


@kernel
def _join_group(
    pairs: Pairs,
    first: int,
    stop: int,
    sizes: NDArray[np.int64],
    start: int,
    group: NDArray[np.int64],
) -> int:
    """Add documents to the group of pairs from ``start`` on; return the size of those that are new in it."""
    added = 0
    for k in range(first, stop):
        if np.isnan(pairs.similarity[k]):
            # A document in several pairs of a group is read once. The group's first pair marks it, so
            # nothing needs to be cleared for the next group.
            for document in (pairs.better[k], pairs.worse[k]):
                if group[document] != start:
                    group[document] = start
                    added += sizes[document]
    return added


@kernel
def _find_similar(
    sets: ShingleSets,
    pairs: Pairs,
    state: NDArray[np.int8],
    min_similarity: float,
    is_containment: bool,
    table: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    last, mask, fate = -1, 0, STAYS
    for k in range(len(out)):
        better, worse = pairs.better[k], pairs.worse[k]
        # A document stays unless a pair shows otherwise.
        if k == 0 or worse != pairs.worse[k - 1]:
            fate = STAYS
        if fate != GOES and state[better] != GOES:
            similarity = pairs.similarity[k]
            if np.isnan(similarity):
                # The set of a worse document is put into the table once for all its pairs, which are
                # adjacent; only the better documents are then looked up.
                one = sets.hashes[sets.starts[worse] : sets.stops[worse]]
                if worse != last:
                    _, mask = _insert(one, table, one)
                    last = worse
                other = sets.hashes[sets.starts[better] : sets.stops[better]]
                similarity = _similarity(
                    other, len(one), table, mask, min_similarity, is_containment
                )
            if similarity >= min_similarity:
                out[k] = similarity
                fate = GOES if state[better] == STAYS else OPEN
        if k + 1 == len(out) or pairs.worse[k + 1] != worse:
            state[worse] = fate


@kernel
def _similarity(
    values: NDArray[np.int64],
    table_size: int,
    table: NDArray[np.int64],
    mask: int,
    min_similarity: float,
    is_containment: bool,
) -> float:
    """Return the similarity of ``values`` and a set in a table, or 0 if it is below ``min_similarity``."""
    total = len(values) + table_size
    # The similarity is shared / (total - shared), so at least m / (1 + m) * total must be shared: of two
    # sets of 10, with m = 0.8, at least 9.
    share = (
        min_similarity * table_size
        if is_containment
        else min_similarity / (1 + min_similarity) * total
    )
    least = int(np.ceil(share - 1e-6))
    if least > min(len(values), table_size):
        return 0.0
    missing = 0
    for value in values:
        at = value & mask
        while table[at] != 0 and table[at] != value:
            at = (at + 1) & mask
        if table[at] == 0:
            missing += 1
            # Most candidates differ early on.
            if len(values) - missing < least:
                return 0.0
    shared = len(values) - missing
    return shared / max(1, table_size if is_containment else total - shared)


@kernel
def _insert(
    values: NDArray[np.int64], table: NDArray[np.int64], out: NDArray[np.int64]
) -> tuple[int, int]:
    """Clear a table and insert values; write each of them once, and 1 in place of 0.

    Returns the number of distinct values, and the mask for positions in the table. ``out`` may be ``values``.
    """
    size = 2
    while size < 2 * len(values):
        size *= 2
    mask, num = size - 1, 0
    for at in range(size):
        table[at] = 0
    for k in range(len(values)):
        # 0 marks an empty position.
        value = values[k] if values[k] != 0 else 1
        at = value & mask
        while table[at] != 0 and table[at] != value:
            at = (at + 1) & mask
        if table[at] == 0:
            table[at] = value
            out[num] = value
            num += 1
    return num, mask
