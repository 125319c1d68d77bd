"""How much of a document repeats itself: its words, their 2-grams, and so on to their 10-grams.

Words are segments, punctuation marks included. An n-gram that occurs twice consists of two (n - 1)-grams
that do. So each level looks only at what the level before found twice, and an n-gram is a pair of numbers
from it: exact, whatever the words contain; a word itself is known by 64 bits. In prose half the words occur
twice, a tenth of the 3-grams: all ten levels cost about two look-ups per word. Linear in the words; about
40 bytes of memory per word of the longest document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel
from etl.kernels.numbering import TABLE_ROOM, number
from etl.kernels.words import CHARS, END, START

TOP: Final = (2, 3, 4)
"""The n of the n-grams of which the most frequent one counts."""

DUPLICATE: Final = (5, 6, 7, 8, 9, 10)
"""The n of the n-grams of which every second and later occurrence counts."""

_FIRST_N, _LAST_TOP, _LAST_N = TOP[0], TOP[-1], DUPLICATE[-1]
_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits


class Words(NamedTuple):
    """Arrays for a document of n words, used again for the next one."""

    keys: NDArray[np.int64]  # (n,) what is equal where the n-grams are
    ends: NDArray[np.int32]  # (n + 1,) code points in the words before
    places: NDArray[np.int32]  # (n,) the word with which a candidate begins
    firsts: NDArray[np.int32]  # (n,) the first candidate that is equal
    counts: NDArray[np.int32]  # (n,) how many are equal, at the first one
    table: NDArray[np.int32]  # (TABLE_ROOM * n,) for ``number``


@kernel
def new_words(words: int) -> Words:
    """Room for a document of so many words."""
    return Words(
        np.empty(words, np.int64),
        np.zeros(words + 1, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(TABLE_ROOM * words, np.int32),
    )


@kernel
def grown(room: Words, words: int) -> Words:
    """Twice the room, with what the words so far have put into it."""
    larger = new_words(2 * len(room.keys))
    larger.keys[:words] = room.keys[:words]
    larger.ends[: words + 1] = room.ends[: words + 1]
    return larger


@kernel
def add_words(
    data: NDArray[np.uint8], block: NDArray[np.int64], num: int, room: Words, words: int
) -> None:
    """Append a block of segments to the ``words`` that are there; the room must suffice."""
    keys, ends = room.keys, room.ends
    for k in range(num):
        start, end = block[k, START], block[k, END]
        # The length stands above the bytes of a short word: those of up to seven never share a key.
        key, word = np.int64(_SEED) ^ (end - start) << 56, np.int64(0)
        for at in range(start, end):
            word = word << 8 | np.int64(data[at])
            if (at - start) & 7 == 7:  # eight bytes at a time
                key = (key ^ word) * _PRIME
                key, word = key ^ (key >> 32), np.int64(0)
        keys[words + k] = (key ^ word) * _PRIME
        ends[words + k + 1] = ends[words + k] + block[k, CHARS]


@kernel
def repeated_chars(room: Words, words: int, out: NDArray[np.int64]) -> None:
    """Code points in the repeated n-grams of a document: int64 (len(TOP + DUPLICATE),).

    For TOP those of the most frequent n-gram, the first one of several, words joined by one blank, times
    its occurrences. For DUPLICATE an n-gram that was seen before counts without blanks, and is jumped
    over; one that was not is remembered, and the next begins a word later.
    """
    size = words
    for k in range(words):
        room.places[k] = k
    for n in range(1, _LAST_N + 1):
        number(room.keys, size, room.firsts, room.counts, room.table)
        size = _only_repeated(room, size)
        if _FIRST_N <= n <= _LAST_TOP:
            out[n - _FIRST_N] = _top(room, size, n, words)
        elif n > _LAST_TOP:
            out[n - _FIRST_N] = _duplicates(room, size, n)
        size = _pair(room, size)


@kernel
def _only_repeated(room: Words, size: int) -> int:
    """Keep the candidates that have an equal, in order."""
    places, firsts, counts = room.places, room.firsts, room.counts
    kept = 0
    for k in range(size):
        first = firsts[k]
        firsts[kept], places[kept] = first, places[k]  # no branch: half of all words
        kept += counts[first] > 1
    return kept


@kernel
def _pair(room: Words, size: int) -> int:
    """The candidates of the next level: those whose next word begins a candidate too."""
    keys, places, firsts = room.keys, room.places, room.firsts
    pairs = 0
    for k in range(size - 1):
        place = places[k]
        keys[pairs] = np.int64(firsts[k]) << 32 | np.int64(firsts[k + 1])
        places[pairs] = place
        pairs += places[k + 1] == place + 1
    return pairs


@kernel
def _top(room: Words, size: int, n: int, words: int) -> int:
    if words < n:
        return 0
    firsts, counts = room.firsts, room.counts
    place, most = np.int64(0), np.int64(1)  # if none occurs twice, the first is as frequent as any
    for k in range(size):
        if counts[firsts[k]] > most:
            place, most = room.places[k], counts[firsts[k]]
    length: int = room.ends[place + n] - room.ends[place] + n - 1
    return most * length


@kernel
def _duplicates(room: Words, size: int, n: int) -> int:
    """The count of what has been seen becomes 0."""
    places, firsts, counts, ends = room.places, room.firsts, room.counts, room.ends
    chars = free = 0  # free: the first word behind what has been counted
    for k in range(size):
        place, first = places[k], firsts[k]
        if place < free:
            continue
        if counts[first] == 0:
            chars += ends[place + n] - ends[place]
            free = place + n
        counts[first] = 0
    return chars
