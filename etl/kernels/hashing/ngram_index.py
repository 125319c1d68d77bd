"""Find which word n-grams of texts are in a large set, exactly and in texts of any length.

Words are defined in ``etl.kernels.words.normalized_words``. A look-up compares 64 bits of a rolling hash,
then the words, so a hash collision is never taken for a match. The set takes 18 bytes per n-gram, 4 to 8
bytes more for the buckets, and its normalized words. Texts are processed in blocks. One core processes
140 MB of text per second with 100 MB of text in the set, and 200 MB per second with 5 MB.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.hash64 import mix_bits, wrapping_add, wrapping_multiply, wrapping_subtract
from etl.kernels.bytes.simd import copy_items
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import allocator, kernel
from etl.kernels.words.normalized_words import BLOCK, WordBuffers, add_words, fold_table, sizes
from etl.kernels.words.uax29 import END, START, next_segments

_BASE: Final = -7046029254386353131  # of the rolling hash; odd


class Grams(NamedTuple):
    """A set of n-grams in groups, which can be looked up by hash; built by ``build_index``.

    An item of fewer than ``words`` words is one n-gram, which is looked up by its first ``short_words``.
    """

    plain: NDArray[np.uint8]  # the words of all items, normalized
    hashes: NDArray[np.int64]  # (n,) sorted as unsigned numbers
    starts: NDArray[np.int64]  # (n,) the byte of ``plain`` where each n-gram begins
    sizes: NDArray[np.uint8]  # (n,) words
    groups: NDArray[np.uint8]  # (n,)
    buckets: NDArray[np.int32]  # (2**bits + 1,) the first n-gram with at least these upper bits
    words: int
    short_words: int
    has_short: bool  # whether any n-gram has fewer than ``words`` words


class Hits(NamedTuple):
    """The n-grams of a set that texts contain, by group."""

    counts: NDArray[np.int64]  # (groups, n) positions in the text at which an n-gram begins
    firsts: NDArray[np.int64]  # (groups, n) the index of the first one in the set; -1 for none


class _Entries(NamedTuple):
    """The n-grams of items in the order of the text."""

    hashes: NDArray[np.int64]  # (n,)
    starts: NDArray[np.int64]  # (n,) the byte of the normalized words where each begins
    sizes: NDArray[np.uint8]  # (n,) words


def build_index(items: Texts, groups: NDArray[np.uint8], *, words: int, short_words: int) -> Grams:
    """Build the set of the n-grams of ``words`` words in some items.

    An item of fewer words is one n-gram if it has at least ``short_words``, and is left out otherwise.
    ``groups`` uint8 (n,) is the group of each item. An n-gram that occurs twice in a group is in the set
    once. Takes about 1 s for 20 MB.
    """
    assert 0 < short_words <= words < 256
    item_words, item_bytes = sizes(items)
    num_grams = np.where(item_words >= words, item_words - words + 1, item_words >= short_words)
    buffers = WordBuffers(
        np.empty(3 * item_bytes.sum() // 2 + item_words.sum(), np.uint8),
        np.empty(item_words.max(initial=0) + 1, np.int64),
        np.empty(item_words.max(initial=0), np.int64),
    )
    n = int(num_grams.sum())
    entries = _Entries(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8))
    tables = character_classes.classes(), fold_table()
    used = _fill(items.offsets, items.data, tables, buffers, words, short_words, entries)
    # Sorted by hash, equal n-grams are neighbours, and the top bits of a hash lead to a range of about
    # one n-gram.
    order = np.argsort(entries.hashes.view(np.uint64), kind="stable")
    entries = _Entries(entries.hashes[order], entries.starts[order], entries.sizes[order])
    group_of = np.repeat(groups, num_grams)[order]
    plain = buffers.plain[:used].copy()
    is_new = _are_new(plain, entries, group_of)
    hashes = entries.hashes[is_new]
    bits = max(1, len(hashes).bit_length())
    upper = (hashes.view(np.uint64) >> np.uint64(64 - bits)).astype(np.int64)
    return Grams(
        plain=plain,
        hashes=hashes,
        starts=entries.starts[is_new],
        sizes=entries.sizes[is_new],
        groups=group_of[is_new],
        buckets=np.searchsorted(upper, np.arange(2**bits + 1)).astype(np.int32),
        words=words,
        short_words=short_words,
        has_short=bool(((item_words < words) & (item_words >= short_words)).any()),
    )


def count_ngrams(texts: Texts, grams: Grams, num_groups: int) -> Hits:
    """Count the n-grams of each group in each text; the bytes of a null are counted too."""
    num = len(texts.offsets) - 1
    hits = Hits(np.zeros((num_groups, num), np.int64), np.full((num_groups, num), -1, np.int64))
    _count(texts.offsets, texts.data, (character_classes.classes(), fold_table()), grams, hits)
    return hits


def text_of(grams: Grams, gram: int) -> str:
    """Return the words of an n-gram of the set, joined by blanks; at most its first 4,096 bytes."""
    start = int(grams.starts[gram])
    text = grams.plain[start : start + 4096].tobytes().decode(errors="ignore")
    return " ".join(text.split(" ")[: grams.sizes[gram]])


@allocator
def _fill(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    buffers: WordBuffers,
    words: int,
    short_words: int,
    entries: _Entries,
) -> int:
    """Write the normalized words of all items, and their n-grams; return the size of the words in bytes."""
    block = np.empty((BLOCK, 4), np.int64)
    used = n = 0
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        buffers.ends[0], num_words = used, 0
        while at < end:
            at, num = next_segments(data, at, end, tables[0], block)
            num_words = add_words(data, block[:num], tables[1], buffers, num_words)
        used = buffers.ends[num_words]
        if num_words >= words:
            num_grams = num_words - words + 1
            roll_hashes(buffers.keys, words, entries.hashes[n : n + num_grams])
        else:
            num_grams = 1 if num_words >= short_words else 0
            roll_hashes(buffers.keys, short_words, entries.hashes[n : n + num_grams])
        for i in range(num_grams):
            entries.starts[n + i] = buffers.ends[i]
            entries.sizes[n + i] = min(words, num_words)
        n += num_grams
    return used


@kernel
def roll_hashes(keys: NDArray[np.int64], words: int, out: NDArray[np.int64]) -> None:
    """Write the hash of each run of ``words`` words, for as many runs as ``out`` can hold."""
    last = np.int64(1)  # the factor of the word that leaves the run
    for _ in range(words - 1):
        last = wrapping_multiply(last, _BASE)
    total = np.int64(0)
    for k in range(len(out) + words - 1 if len(out) > 0 else 0):
        # A run's hash is a polynomial of its words: the next run multiplies by the base, adds a word,
        # and has subtracted the word that leaves. So the cost of a run does not depend on its length.
        total = wrapping_add(wrapping_multiply(total, _BASE), keys[k])
        if k >= words - 1:
            out[k - words + 1] = mix_bits(total)
            total = wrapping_subtract(total, wrapping_multiply(keys[k - words + 1], last))


@allocator
def _are_new(
    plain: NDArray[np.uint8], entries: _Entries, groups: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Return which n-grams, sorted by hash, differ from all others of their group before them."""
    hashes, starts, sizes = entries.hashes, entries.starts, entries.sizes
    is_new = np.ones(len(hashes), np.bool_)
    first = 0
    for k in range(len(hashes)):
        if hashes[k] != hashes[first]:
            first = k
        # Only n-grams of equal hashes are compared, byte by byte, since hashes may collide.
        for other in range(first, k):
            same = is_new[other] and groups[other] == groups[k] and sizes[other] == sizes[k]
            if same and _are_equal(plain, starts[k], starts[other], sizes[k]):
                is_new[k] = False
                break
    return is_new


@kernel
def _are_equal(plain: NDArray[np.uint8], one: int, other: int, words: int) -> bool:
    """Return whether two runs of ``words`` words are equal."""
    k = 0
    while words > 0:
        if plain[one + k] != plain[other + k]:
            return False
        # Each word ends with a blank, so blanks count words.
        words -= plain[one + k] == 0x20
        k += 1
    return True


@allocator
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    grams: Grams,
    hits: Hits,
) -> None:
    block = np.empty((BLOCK, 4), np.int64)
    buffers = WordBuffers(
        np.empty(1 << 16, np.uint8),
        np.zeros(BLOCK + 257, np.int64),
        np.empty(BLOCK + 256, np.int64),
    )
    hashes = np.empty(len(buffers.keys), np.int64)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words = 0
        while at < end:
            at, num = next_segments(data, at, end, tables[0], block)
            if num > 0:
                # Lower case takes up to half as many bytes more, and each word a blank: at most twice as
                # many in all.
                needed = buffers.ends[num_words] + 2 * (block[num - 1, END] - block[0, START])
                if needed > len(buffers.plain):
                    larger = np.empty(2 * needed, np.uint8)
                    copy_items(larger, 0, buffers.plain, 0, buffers.ends[num_words])
                    buffers = WordBuffers(larger, buffers.ends, buffers.keys)
                num_words = add_words(data, block[:num], tables[1], buffers, num_words)
            num_grams = max(0, num_words - grams.words + 1)
            roll_hashes(buffers.keys, grams.words, hashes[:num_grams])
            _find(hashes[:num_grams], buffers, num_words, grams, grams.words, hits, k)
            if grams.has_short:
                # Within a text, every short item that begins at one of these words is complete: at least
                # ``words`` words follow. At the end of the text, the rest can begin one, too.
                num_grams = max(0, num_words - grams.short_words + 1) if at >= end else num_grams
                roll_hashes(buffers.keys, grams.short_words, hashes[:num_grams])
                _find(hashes[:num_grams], buffers, num_words, grams, grams.short_words, hits, k)
            # An n-gram may begin in this block and end in the next one.
            num_words = _keep_last(buffers, num_words, grams.words - 1)


@kernel
def _find(
    hashes: NDArray[np.int64],
    buffers: WordBuffers,
    num_words: int,
    grams: Grams,
    hashed_words: int,
    hits: Hits,
    k: int,
) -> None:
    """Count the n-grams of text ``k`` that begin with these hashes, each of ``hashed_words`` words."""
    num_buckets = len(grams.buckets) - 1
    shift = 64
    while num_buckets >> (64 - shift) > 1:
        shift -= 1
    for i in range(len(hashes)):
        bucket = hashes[i] >> shift & (num_buckets - 1)
        for gram in range(grams.buckets[bucket], grams.buckets[bucket + 1]):
            size = int(grams.sizes[gram])
            if grams.hashes[gram] != hashes[i] or i + size > num_words:
                continue
            # Each n-gram has one length by which it is looked up: short items by ``short_words``, others
            # by ``words``.
            is_candidate = (size < grams.words) == (hashed_words < grams.words)
            if is_candidate and _is_at(grams, gram, buffers, i, size):
                group = grams.groups[gram]
                hits.counts[group, k] += 1
                if hits.firsts[group, k] < 0:
                    hits.firsts[group, k] = gram


@kernel
def _is_at(grams: Grams, gram: int, buffers: WordBuffers, word: int, size: int) -> bool:
    """Return whether an n-gram begins at a word, compared byte by byte."""
    first, start = buffers.ends[word], grams.starts[gram]
    length = buffers.ends[word + size] - first
    if start + length > len(grams.plain):
        return False
    k = 0
    while k < length and buffers.plain[first + k] == grams.plain[start + k]:
        k += 1
    return bool(k == length)


@kernel
def _keep_last(buffers: WordBuffers, num_words: int, keep: int) -> int:
    """Move the last ``keep`` words to the front; return how many words are left."""
    first = max(0, num_words - keep)
    if first == 0:
        return num_words
    start = buffers.ends[first]
    for k in range(start, buffers.ends[num_words]):
        buffers.plain[k - start] = buffers.plain[k]
    for word in range(first, num_words):
        buffers.keys[word - first] = buffers.keys[word]
        buffers.ends[word - first + 1] = buffers.ends[word + 1] - start
    return num_words - first
