"""Runs of n words (n-grams), looked up in a large set of them: exact, at the speed of reading.

Words are those of ``etl.kernels.words.normalized_words``. A look-up compares 64 bits of a rolling hash, and then the words
themselves, so that no collision of hashes is ever taken for a match. The set takes 18 bytes per n-gram,
4 to 8 for the buckets, and its plain form; a text goes through in blocks, of whatever length it is. With
100 MB of text in the set, 140 MB of text a second go through one core; with 5 MB, 200.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import kernel
from etl.kernels.words.normalized_words import BLOCK, Words, add_words, folds, mixed, sizes
from etl.kernels.words.uax29 import END, START, next_segments

_BASE: Final = -7046029254386353131  # odd: of the rolling hash


class Grams(NamedTuple):
    """A set of n-grams in several groups, each found by the hash of its first words; made by ``index``.

    Items of fewer than ``words`` words are in it as a whole, found by their first ``short_words``.
    """

    plain: NDArray[np.uint8]  # the plain forms of all items, one after the other
    hashes: NDArray[np.int64]  # (n,) in the order of unsigned numbers
    starts: NDArray[np.int64]  # (n,) the byte of ``plain`` where each begins
    sizes: NDArray[np.uint8]  # (n,) words
    groups: NDArray[np.uint8]  # (n,)
    buckets: NDArray[np.int32]  # (2**bits + 1,) the first one whose upper bits are at least so many
    words: int
    short_words: int
    has_short: bool  # whether any item is in it as a whole


def index(items: Texts, groups: NDArray[np.uint8], *, words: int, short_words: int) -> Grams:
    """The n-grams of ``words`` words of some items; shorter items of at least ``short_words`` as a whole.

    ``groups`` uint8 (n,) says which group an item belongs to. Still shorter items are left out, and an
    n-gram that a group has twice is in it once. Takes about 1 s for 20 MB.
    """
    assert 0 < short_words <= words < 256
    item_words, item_bytes = sizes(items)
    num_grams = np.where(item_words >= words, item_words - words + 1, item_words >= short_words)
    room = Words(
        np.empty(3 * item_bytes.sum() // 2 + item_words.sum(), np.uint8),
        np.empty(item_words.max(initial=0) + 1, np.int64),
        np.empty(item_words.max(initial=0), np.int64),
    )
    n = int(num_grams.sum())
    hashes, starts = np.empty((2, n), np.int64)
    lengths, group_of = np.empty((2, n), np.uint8)
    tables = character_classes.classes(), folds()
    limits = (words, short_words)
    used = _fill(items.offsets, items.data, tables, room, limits, (hashes, starts, lengths))
    group_of[:] = np.repeat(groups, num_grams)
    order = np.argsort(hashes.view(np.uint64), kind="stable")
    hashes, starts, lengths, group_of = (
        array[order] for array in (hashes, starts, lengths, group_of)
    )
    plain = room.plain[:used].copy()
    once = _are_new(plain, hashes, starts, lengths, group_of)
    hashes = hashes[once]
    bits = max(1, len(hashes).bit_length())
    upper = (hashes.view(np.uint64) >> np.uint64(64 - bits)).astype(np.int64)
    buckets = np.searchsorted(upper, np.arange(2**bits + 1)).astype(np.int32)
    shorter = bool(((item_words < words) & (item_words >= short_words)).any())
    found = starts[once], lengths[once], group_of[once]
    return Grams(plain, hashes, *found, buckets, words, short_words, shorter)


def count(
    texts: Texts, grams: Grams, num_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often n-grams of each group stand in each text, and the first of them.

    Both int64 (num_groups, n): the number of places, and the index of an n-gram in ``grams``, -1 for
    none. Whatever a null holds is looked at, too.
    """
    out = np.zeros((2, num_groups, len(texts.offsets) - 1), np.int64)
    out[1] = -1
    _count(texts.offsets, texts.data, (character_classes.classes(), folds()), grams, out)
    return out[0], out[1]


def text_of(grams: Grams, at: int) -> str:
    """The words of an n-gram of the set, with a blank between them; its first 4,096 bytes at most."""
    start = int(grams.starts[at])
    some = grams.plain[start : start + 4096].tobytes().decode(errors="ignore")
    return " ".join(some.split(" ")[: grams.sizes[at]])


@kernel
def _fill(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    room: Words,
    limits: tuple[int, int],
    out: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
) -> int:
    """Write the plain form of all items and their n-grams; returns the bytes of the plain form."""
    words, short_words = limits
    hashes, starts, lengths = out
    block = np.empty((BLOCK, 4), np.int64)
    used = n = 0
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        room.ends[0], num_words = used, 0
        while at < end:
            at, num = next_segments(data, at, end, tables[0], block)
            num_words = add_words(data, block[:num], tables[1], room, num_words)
        used = room.ends[num_words]
        if num_words >= words:
            num_grams = num_words - words + 1
            roll(room.keys, words, hashes[n : n + num_grams])
        else:
            num_grams = 1 if num_words >= short_words else 0
            roll(room.keys, short_words, hashes[n : n + num_grams])
        for i in range(num_grams):
            starts[n + i] = room.ends[i]
            lengths[n + i] = min(words, num_words)
        n += num_grams
    return used


@kernel
def roll(keys: NDArray[np.int64], words: int, out: NDArray[np.int64]) -> None:
    """The hash of each run of so many words, for as many runs as there is room."""
    last = np.int64(1)  # the factor of the word that leaves
    for _ in range(words - 1):
        last *= _BASE
    total = np.int64(0)
    for k in range(len(out) + words - 1 if len(out) > 0 else 0):
        total = total * _BASE + keys[k]
        if k >= words - 1:
            out[k - words + 1] = mixed(total)
            total -= keys[k - words + 1] * last


@kernel
def _are_new(
    plain: NDArray[np.uint8],
    hashes: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.uint8],
    groups: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """Which n-grams, in the order of their hashes, no other of their group before them equals."""
    new = np.ones(len(hashes), np.bool_)
    first = 0
    for k in range(len(hashes)):
        if hashes[k] != hashes[first]:
            first = k
        for other in range(first, k):
            same = new[other] and groups[other] == groups[k] and lengths[other] == lengths[k]
            if same and _are_equal(plain, starts[k], starts[other], lengths[k]):
                new[k] = False
                break
    return new


@kernel
def _are_equal(plain: NDArray[np.uint8], one: int, other: int, words: int) -> bool:
    """Whether two runs of so many words are equal."""
    k = 0
    while words > 0:
        if plain[one + k] != plain[other + k]:
            return False
        words -= plain[one + k] == 0x20
        k += 1
    return True


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    grams: Grams,
    out: NDArray[np.int64],
) -> None:
    block = np.empty((BLOCK, 4), np.int64)
    room = Words(
        np.empty(1 << 16, np.uint8),
        np.zeros(BLOCK + 257, np.int64),
        np.empty(BLOCK + 256, np.int64),
    )
    hashes = np.empty(len(room.keys), np.int64)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words = 0
        while at < end:
            at, num = next_segments(data, at, end, tables[0], block)
            if num > 0:
                needed = room.ends[num_words] + 2 * (block[num - 1, END] - block[0, START])
                if needed > len(room.plain):
                    larger = np.empty(2 * needed, np.uint8)
                    larger[: room.ends[num_words]] = room.plain[: room.ends[num_words]]
                    room = Words(larger, room.ends, room.keys)
                num_words = add_words(data, block[:num], tables[1], room, num_words)
            num_grams = max(0, num_words - grams.words + 1)
            roll(room.keys, grams.words, hashes[:num_grams])
            _find(hashes[:num_grams], room, num_words, grams, grams.words, out[:, :, k])
            if grams.has_short:  # all the words of a shorter item are there, or will never be
                num_grams = max(0, num_words - grams.short_words + 1) if at >= end else num_grams
                roll(room.keys, grams.short_words, hashes[:num_grams])
                _find(hashes[:num_grams], room, num_words, grams, grams.short_words, out[:, :, k])
            num_words = _keep_last(room, num_words, grams.words - 1)


@kernel
def _find(
    hashes: NDArray[np.int64],
    room: Words,
    num_words: int,
    grams: Grams,
    hashed: int,
    out: NDArray[np.int64],
) -> None:
    """Count the n-grams of each group that begin at these hashes, each of so many words."""
    places = len(grams.buckets) - 1
    shift = 64
    while places >> (64 - shift) > 1:
        shift -= 1
    for i in range(len(hashes)):
        upper = hashes[i] >> shift & (places - 1)
        for gram in range(grams.buckets[upper], grams.buckets[upper + 1]):
            size = int(grams.sizes[gram])
            if grams.hashes[gram] != hashes[i] or i + size > num_words:
                continue
            if (size < grams.words) == (hashed < grams.words) and _is_at(
                grams, gram, room, i, size
            ):
                group = grams.groups[gram]
                out[0, group] += 1
                if out[1, group] < 0:
                    out[1, group] = gram


@kernel
def _is_at(grams: Grams, gram: int, room: Words, word: int, size: int) -> bool:
    """Whether an n-gram, to the byte, begins at a word."""
    first, start = room.ends[word], grams.starts[gram]
    length = room.ends[word + size] - first
    if start + length > len(grams.plain):
        return False
    return np.array_equal(room.plain[first : first + length], grams.plain[start : start + length])


@kernel
def _keep_last(room: Words, num_words: int, keep: int) -> int:
    """Move the last words to the front; returns how many there are."""
    first = max(0, num_words - keep)
    if first == 0:
        return num_words
    start = room.ends[first]
    for k in range(start, room.ends[num_words]):
        room.plain[k - start] = room.plain[k]
    for word in range(first, num_words):
        room.keys[word - first] = room.keys[word]
        room.ends[word - first + 1] = room.ends[word + 1] - start
    return num_words - first
