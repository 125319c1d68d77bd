"""Count the characters of documents in repeated n-grams of words, from 2-grams to 10-grams.

Words are segments, including punctuation marks. An n-gram that occurs twice consists of two (n - 1)-grams
that do, so each level looks only at the n-grams that the previous level found twice. Most often, the word
after an n-gram equals the word after its first occurrence, and no look-up is needed. N-grams are compared
by 64-bit hashes. Linear in the words; about 70 bytes of memory per word of the longest document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.hash64 import hash_bytes, wrapping_add, wrapping_multiply
from etl.kernels.hashing.equal_keys import (
    SLOTS_PER_KEY,
    clear_table,
    find_or_insert,
    number_keys,
    scatter_key,
)
from etl.kernels.jit import inner, kernel
from etl.kernels.words.uax29 import CHARS, END, START

TOP: Final = (2, 3, 4)
"""The n of the n-grams of which only the most frequent one counts."""

DUPLICATE: Final = (5, 6, 7, 8, 9, 10)
"""The n of the n-grams of which every occurrence but the first counts."""

_FACTOR: Final = -7046029254386353131  # odd: 2**64 divided by the golden ratio
_FIRST_N, _LAST_TOP, _LAST_N = TOP[0], TOP[-1], DUPLICATE[-1]


class NgramBuffers(NamedTuple):
    """Arrays for a document of n words, reused for the next document.

    An n-gram is identified by the index of its first word. The candidates are the n-grams that may repeat.
    """

    keys: NDArray[np.int64]  # (n,) equal for equal words
    ends: NDArray[np.int32]  # (n + 1,) code points in the words before
    firsts: NDArray[np.int32]  # (n,) the first equal n-gram
    counts: NDArray[np.int32]  # (n,) how many n-grams are equal to this one, if it is the first
    candidates: NDArray[np.int32]  # (n,) n-grams
    lookups: NDArray[np.int32]  # (n,) the candidates that must be looked up
    lookup_keys: NDArray[np.int64]  # (n,) equal for equal n-grams
    table: NDArray[np.int32]  # (SLOTS_PER_KEY * n,) for look-ups


@kernel
def new_ngram_buffers(words: int) -> NgramBuffers:
    """Return buffers for a document of ``words`` words."""
    return NgramBuffers(
        np.empty(words, np.int64),
        np.zeros(words + 1, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int64),
        np.empty(SLOTS_PER_KEY * words, np.int32),
    )


@kernel
def double_buffers(buffers: NgramBuffers, words: int) -> NgramBuffers:
    """Return buffers of twice the size that hold the first ``words`` words."""
    larger = new_ngram_buffers(2 * len(buffers.keys))
    larger.keys[:words] = buffers.keys[:words]
    larger.ends[: words + 1] = buffers.ends[: words + 1]
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
        keys[words + k] = scatter_key(hash_bytes(data, block[k, START], block[k, END]))
        ends[words + k + 1] = chars


@kernel
def repeated_chars(buffers: NgramBuffers, words: int, out: NDArray[np.int64]) -> None:
    """Write the code points in the repeated n-grams of a document: int64 (len(TOP + DUPLICATE),).

    For the n of TOP, the code points of the most frequent n-gram (the first one of several), with its words
    joined by one blank, times its occurrences. For the n of DUPLICATE, the code points of repeated n-grams
    without blanks: an n-gram that occurred before counts, and the scan continues after it; any other one is
    remembered, and the scan continues at its second word.
    """
    keys = buffers.keys
    size = max(words - 1, 0)
    for k in range(size):
        buffers.lookup_keys[k] = _extend_key(keys[k], keys[k + 1])
        buffers.candidates[k] = k
    number_keys(buffers.lookup_keys, size, buffers.firsts, buffers.counts, buffers.table)
    for n in range(_FIRST_N, _LAST_N + 1):
        if n > _FIRST_N:
            size = _extend_candidates(buffers, size, n)
        if n > _LAST_TOP:
            size, out[n - _FIRST_N] = _duplicates(buffers, size, n)
        elif words >= n:
            size, out[n - _FIRST_N] = _top(buffers, size, n)


@inner
def _extend_key(key: int, word: int) -> int:
    """Return the key of an n-gram from that of its first n - 1 words and that of its last word."""
    return wrapping_add(wrapping_multiply(key, _FACTOR), word)


@inner
def _extend_candidates(buffers: NgramBuffers, size: int, n: int) -> int:
    """Extend the candidates from n - 1 to n words; return how many are left.

    A candidate is extended if the (n - 1)-gram that begins one word later is a candidate, too.
    """
    candidates, firsts = buffers.candidates, buffers.firsts
    counts, keys = buffers.counts, buffers.keys
    longer = lookups = 0
    for k in range(size - 1):
        gram = candidates[k]
        if candidates[k + 1] != gram + 1:
            continue
        candidates[longer] = gram
        longer += 1
        first, last = firsts[gram], keys[gram + n - 1]
        if keys[first + n - 1] == last:
            counts[first] = counts[first] + 1 if first < gram else 1
        else:
            buffers.lookups[lookups] = gram
            buffers.lookup_keys[lookups] = _extend_key(np.int64(first), last)
            lookups += 1
    _look_up(buffers, lookups)
    return longer


@inner
def _look_up(buffers: NgramBuffers, size: int) -> None:
    """Look up the n-grams whose last word differs from that of the first one with an equal beginning."""
    lookups, counts = buffers.lookups, buffers.counts
    keys, table = buffers.lookup_keys, buffers.table
    mask = clear_table(table, size)
    for k in range(size):
        first = find_or_insert(table, mask, keys, k)
        counts[lookups[k]] = 0 if first == k else counts[lookups[k]]
        buffers.firsts[lookups[k]] = lookups[first]
        counts[lookups[first]] += 1


@inner
def _top(buffers: NgramBuffers, size: int, n: int) -> tuple[int, int]:
    """Keep the candidates that occur twice.

    Returns how many they are, and the code points in the occurrences of the most frequent n-gram.
    """
    candidates, firsts, counts = buffers.candidates, buffers.firsts, buffers.counts
    kept, top, most = 0, 0, 1  # if none occurs twice, the first n-gram is as frequent as any
    for k in range(size):
        gram = candidates[k]
        first = firsts[gram]
        count = np.int64(counts[first])
        candidates[kept] = gram
        kept += count > 1
        if count > most:
            top, most = first, count
    return kept, most * (buffers.ends[top + n] - buffers.ends[top] + n - 1)


@inner
def _duplicates(buffers: NgramBuffers, size: int, n: int) -> tuple[int, int]:
    """Keep the candidates that occur twice.

    Returns how many they are, and the code points in those that occurred before. Makes the count of an
    n-gram negative when it occurs for the first time.
    """
    candidates, firsts = buffers.candidates, buffers.firsts
    counts, ends = buffers.counts, buffers.ends
    kept, chars, free = 0, 0, 0  # free: the first word after the last counted n-gram
    for k in range(size):
        gram = candidates[k]
        first = firsts[gram]
        count = np.int64(counts[first])
        candidates[kept] = gram
        kept += abs(count) > 1
        if gram >= free:
            if count < 0:
                chars += ends[gram + n] - ends[gram]
                free = gram + n
            else:
                counts[first] = -count
    return kept, chars
