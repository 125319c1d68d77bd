"""Count the characters of documents in repeated n-grams of words, from 2-grams to 10-grams.

Words are segments, including punctuation marks. Each 2-gram that occurred before is compared with its first
occurrence, ten words far, eight words at once. If m words are equal, the two are equal n-grams up to n = m,
so nothing needs to be done for these n. At n = m + 1 the two part, and the later n-gram is looked up among
all that part there, if its last n - 1 words occur twice.

In ``a b c d x a b c e y a b c e``, the second and the third ``a b c`` part from the first at n = 4. Looked up
then, the third ``a b c e`` equals the second, and is compared with it from there on.

N-grams are compared by 64-bit hashes. Linear in the words; about 70 bytes of memory per word of the longest
document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.hash64 import hash_word, wrapping_add, wrapping_multiply
from etl.kernels.bytes.simd import clear_first_bit, copy_items, count_equal, first_bit, low_bits
from etl.kernels.hashing.equal_keys import (
    SLOTS_PER_KEY,
    clear_table,
    find_or_insert,
)
from etl.kernels.jit import allocator, inner, kernel
from etl.kernels.words.uax29 import CHARS, END, START

TOP: Final = (2, 3, 4)
"""The n of the n-grams of which only the most frequent one counts."""

DUPLICATE: Final = (5, 6, 7, 8, 9, 10)
"""The n of the n-grams of which every occurrence but the first counts."""

_FACTOR: Final = -7046029254386353131  # odd: 2**64 divided by the golden ratio
_FIRST_N, _LAST_TOP, _LAST_N = TOP[0], TOP[-1], DUPLICATE[-1]
_PADDING: Final = _LAST_N  # a comparison may read so many keys after the last word's
_BITS: Final = 64  # n-grams per element of a bitmap


class NgramBuffers(NamedTuple):
    """Arrays for a document of n words, reused for the next document.

    An n-gram is identified by the index of its first word. A bitmap has a bit for each n-gram.
    """

    keys: NDArray[np.int64]  # (n + _PADDING,) equal for equal words
    ends: NDArray[np.int32]  # (n + 1,) code points in the words before
    firsts: NDArray[np.uint32]  # (n,) the first equal n-gram
    counts: NDArray[np.int32]  # (n,) how many n-grams are equal to this one, if it is the first
    remembered: NDArray[np.uint8]  # (n,) the last n for which an equal n-gram was remembered
    repeats: NDArray[np.int64]  # bitmap: n-grams that occurred before
    skipped: NDArray[np.int64]  # bitmap: n-grams that begin inside another that counts
    equal: NDArray[np.int64]  # (_LAST_N + 1, bitmap): row n: they part from the first after n words
    lookups: NDArray[np.uint32]  # (n,) the n-grams that must be looked up
    lookup_keys: NDArray[np.int64]  # (n + 1,) equal for equal n-grams
    table: NDArray[np.uint32]  # (SLOTS_PER_KEY * n,) for look-ups


@allocator
def new_ngram_buffers(words: int) -> NgramBuffers:
    """Return buffers for a document of ``words`` words."""
    blocks = words // _BITS + 2
    return NgramBuffers(
        np.zeros(words + _PADDING, np.int64),
        np.zeros(words + 1, np.int32),
        np.empty(words, np.uint32),
        np.empty(words, np.int32),
        np.empty(words, np.uint8),
        np.empty(blocks, np.int64),
        np.empty(blocks, np.int64),
        np.empty((_LAST_N + 1, blocks), np.int64),
        np.empty(words, np.uint32),
        np.empty(words + 1, np.int64),
        np.empty(SLOTS_PER_KEY * words, np.uint32),
    )


@allocator
def double_buffers(buffers: NgramBuffers, words: int) -> NgramBuffers:
    """Return buffers of twice the size that hold the first ``words`` words."""
    larger = new_ngram_buffers(2 * len(buffers.firsts))
    copy_items(larger.keys, 0, buffers.keys, 0, words)
    copy_items(larger.ends, 0, buffers.ends, 0, words + 1)
    return larger


@inner
def add_words(
    data: NDArray[np.uint8], block: NDArray[np.int64], num: int, buffers: NgramBuffers, words: int
) -> None:
    """Append a block of ``num`` segments after the first ``words`` words; the buffers must suffice."""
    keys, ends = buffers.keys, buffers.ends
    chars = ends[words]
    for k in range(num):
        chars += block[k, CHARS]
        keys[words + k] = hash_word(data, block[k, START], block[k, END])
        ends[words + k + 1] = chars


@kernel
def repeated_chars(buffers: NgramBuffers, words: int, out: NDArray[np.int64]) -> None:
    """Write the code points in the repeated n-grams of a document: int64 (len(TOP + DUPLICATE),).

    For the n of TOP, the code points of the most frequent n-gram (the first one of several), with its words
    joined by one blank, times its occurrences. For the n of DUPLICATE, the code points of repeated n-grams
    without blanks: an n-gram that occurred before counts, and the scan continues after it; any other one is
    remembered, and the scan continues at its second word.
    """
    if words < _FIRST_N:
        return
    _find_pairs(buffers, words)
    for n in range(_FIRST_N, _LAST_N + 1):
        # Each n relies on the one before: what is the first equal (n - 1)-gram becomes the first equal
        # n-gram.
        if n > _FIRST_N:
            _separate(buffers, words, n)
        if n > _LAST_TOP:
            out[n - _FIRST_N] = _duplicates(buffers, words, n)
        elif n <= words:
            out[n - _FIRST_N] = _top(buffers, words, n)


@inner
def _extend_key(key: int, word: int) -> int:
    """Return the key of an n-gram, given the key of its first n - 1 words and the key of its last word."""
    return wrapping_add(wrapping_multiply(key, _FACTOR), word)


@inner
def _find_pairs(buffers: NgramBuffers, words: int) -> None:
    """Find the repeated 2-grams, and how many words of each equal those from the first one on."""
    keys, firsts, size = buffers.keys, buffers.firsts, words - 1
    # The bits of the document before, which used the same buffers, are cleared up to the size of this
    # one.
    for k in range(size):
        buffers.lookup_keys[k] = _extend_key(keys[k], keys[k + 1])
        buffers.remembered[k] = 0
    for block in range(size // _BITS + 1):
        buffers.repeats[block] = 0
        for n in range(_FIRST_N, _LAST_N + 1):
            buffers.equal[n, block] = 0
    mask = clear_table(buffers.table, size)
    for k in range(size):
        buffers.counts[k] = 0
        first = find_or_insert(buffers.table, mask, buffers.lookup_keys, k, size)
        firsts[k] = first
        buffers.counts[first] += 1
        _compare(buffers, words, k, first, _FIRST_N)


@inner
def _compare(buffers: NgramBuffers, words: int, gram: int, first: int, n: int) -> None:
    """Mark an n-gram as repeated, and note after how many words it parts from the first equal n-gram."""
    same = _FIRST_N + count_equal(buffers.keys, first + _FIRST_N, gram + _FIRST_N)
    # Keys after the last word may be an earlier document's, so the end of this one limits the comparison.
    # An n-gram found by a look-up has n equal words.
    same = max(min(same, words - gram), n)
    repeats = first < gram
    bit = np.int64(1) << (gram & 63)
    buffers.repeats[gram >> 6] |= bit if repeats else 0
    # A first occurrence never parts from itself: row _LAST_N is never looked up.
    buffers.equal[same if repeats else _LAST_N, gram >> 6] |= bit


@inner
def _separate(buffers: NgramBuffers, words: int, n: int) -> None:
    """Look up the n-grams that part from their first occurrence at word n.

    An n-gram whose last n - 1 words occur only once does not repeat, and is not looked up.
    """
    keys, firsts, counts = buffers.keys, buffers.firsts, buffers.counts
    lookups = 0
    for block in range((words - 1) // _BITS + 1):
        # Row n - 1 has all n-grams whose first occurrence changes at n: the others part at another n,
        # or never repeated.
        parting = buffers.equal[n - 1, block]
        buffers.repeats[block] &= ~parting
        while parting:
            gram = block * _BITS + first_bit(parting)
            parting = clear_first_bit(parting)
            first = firsts[gram]
            # The n-gram leaves the group of its first one, and is alone until the look-up finds another.
            counts[first] -= 1
            buffers.lookups[lookups] = gram
            # Its first n - 1 words equal those at ``first``, so this index identifies them: two that
            # part from the same n-gram with the same word are equal.
            buffers.lookup_keys[lookups] = _extend_key(np.int64(first), keys[gram + n - 1])
            # Without a branch: the next one overwrites what is not looked up. The (n - 1)-gram at gram +
            # 1 is still counted, since it comes later in this loop.
            lookups += (gram + n <= words) & (counts[firsts[min(gram + 1, words - 2)]] > 1)
            firsts[gram], counts[gram] = gram, 1
    mask = clear_table(buffers.table, lookups)
    for k in range(lookups):
        gram = buffers.lookups[k]
        first = buffers.lookups[
            find_or_insert(buffers.table, mask, buffers.lookup_keys, k, lookups)
        ]
        firsts[gram] = first
        counts[first] += first < gram
        _compare(buffers, words, gram, first, n)


@inner
def _top(buffers: NgramBuffers, words: int, n: int) -> int:
    """Return the code points in the occurrences of the most frequent n-gram."""
    counts, ends = buffers.counts, buffers.ends
    top, most = 0, np.int32(1)  # if none occurs twice, the first n-gram is as frequent as any
    for k in range(words - 1):
        most = max(most, counts[k])
    while most > 1 and counts[top] != most:
        top += 1
    # Words, and a blank between each two: n words have n - 1 blanks.
    chars: int = np.int64(most) * (ends[top + n] - ends[top] + n - 1)
    return chars


@inner
def _duplicates(buffers: NgramBuffers, words: int, n: int) -> int:
    """Return the code points in the n-grams that occurred before.

    An n-gram is remembered unless it begins inside another that counts. So an n-gram that occurred before
    counts, unless its first occurrence was not remembered, nor was any other before it.
    """
    firsts, ends = buffers.firsts, buffers.ends
    repeats, skipped, remembered = buffers.repeats, buffers.skipped, buffers.remembered
    blocks = (words - 1) // _BITS + 1
    for block in range(blocks + 1):
        skipped[block] = 0
    # After an n-gram that counts at 62, for n = 5, the n-grams at 63 to 66 are skipped: one bit of this
    # block of the bitmap, and three of the next one.
    inside = low_bits(n - 1)
    chars, free = 0, 0  # free: the first word after the last n-gram that counts
    for block in range(blocks):
        # An n-gram that counts may reach into this block: the scan continues after it.
        grams = repeats[block] & ~low_bits(max(free - block * _BITS, 0))
        while grams:
            gram = block * _BITS + first_bit(grams)
            first = np.int64(firsts[gram])
            # If the first occurrence was passed over, this one is the first that the scan reads, and is
            # remembered instead of counted.
            if skipped[first >> 6] >> (first & 63) & 1 and remembered[first] != n:
                remembered[first] = n
                grams = clear_first_bit(grams)
                continue
            chars += ends[gram + n] - ends[gram]
            free = gram + n
            # A shift by 64 is undefined, but happens only where the second block is not written.
            skipped[gram + 1 >> 6] |= inside << (gram + 1 & 63)
            skipped[free >> 6] |= (
                inside >> _BITS - (gram + 1 & 63) if free >> 6 > gram + 1 >> 6 else 0
            )
            grams &= ~low_bits(free - block * _BITS)
    return chars
