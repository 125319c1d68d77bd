"""How much of a document repeats itself: the 2-grams of its words, and so on to their 10-grams.

Words are segments, punctuation marks included. An n-gram that occurs twice consists of two (n - 1)-grams
that do. So each level looks only at what the level before found twice; and there, most often, the words that
follow an n-gram and its first equal are the same one, so that nothing is looked up. What is equal is known
by 64 bits. Linear in the words; about 70 bytes of memory per word of the longest document.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import hashed
from etl.kernels.hashing.equal_keys import TABLE_ROOM, cleared, entered, mixed, number
from etl.kernels.jit import inner, kernel
from etl.kernels.words.uax29 import CHARS, END, START

TOP: Final = (2, 3, 4)
"""The n of the n-grams of which the most frequent one counts."""

DUPLICATE: Final = (5, 6, 7, 8, 9, 10)
"""The n of the n-grams of which every second and later occurrence counts."""

_FACTOR: Final = -7046029254386353131  # odd: 2**64 divided by the golden ratio
_FIRST_N, _LAST_TOP, _LAST_N = TOP[0], TOP[-1], DUPLICATE[-1]


class Words(NamedTuple):
    """Arrays for a document of n words, used again for the next one."""

    keys: NDArray[np.int64]  # (n,) what is equal where the words are
    wanted: NDArray[np.int64]  # (n,) what is equal where n-grams to be looked up are
    ends: NDArray[np.int32]  # (n + 1,) code points in the words before
    firsts: NDArray[np.int32]  # (n,) the first word of the first n-gram that is equal
    counts: NDArray[np.int32]  # (n,) how many are equal, at the first one
    places: NDArray[np.int32]  # (n,) the words with which the candidates begin
    others: NDArray[np.int32]  # (n,) those of them that are looked up
    table: NDArray[np.int32]  # (TABLE_ROOM * n,) for looking up


@kernel
def new_words(words: int) -> Words:
    """Room for a document of so many words."""
    return Words(
        np.empty(words, np.int64),
        np.empty(words, np.int64),
        np.zeros(words + 1, np.int32),
        np.empty(words, np.int32),
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


@inner
def add_words(
    data: NDArray[np.uint8], block: NDArray[np.int64], num: int, room: Words, words: int
) -> None:
    """Append a block of segments to the ``words`` that are there; the room must suffice."""
    keys, ends = room.keys, room.ends
    chars = ends[words]
    for k in range(num):
        chars += block[k, CHARS]
        keys[words + k] = mixed(hashed(data, block[k, START], block[k, END]))
        ends[words + k + 1] = chars


@kernel
def repeated_chars(room: Words, words: int, out: NDArray[np.int64]) -> None:
    """Code points in the repeated n-grams of a document: int64 (len(TOP + DUPLICATE),).

    For TOP those of the most frequent n-gram, the first one of several, words joined by one blank, times
    its occurrences. For DUPLICATE an n-gram that was seen before counts without blanks, and is jumped
    over; one that was not is remembered, and the next begins a word later.
    """
    size = max(words - 1, 0)
    for k in range(size):
        room.wanted[k], room.places[k] = _joined(room.keys[k], room.keys[k + 1]), k
    number(room.wanted, size, room.firsts, room.counts, room.table)
    for n in range(_FIRST_N, _LAST_N + 1):
        if n > _FIRST_N:
            size = _longer(room, size, n)
        if n > _LAST_TOP:
            size, out[n - _FIRST_N] = _duplicates(room, size, n)
        elif words >= n:
            size, out[n - _FIRST_N] = _top(room, size, n)


@inner
def _joined(key: int, word: int) -> int:
    """What is equal where n-grams are, of which one word more is equal."""
    return key * _FACTOR + word


@inner
def _longer(room: Words, size: int, n: int) -> int:
    """Make n-grams of the candidates, which are one word shorter: where the next one begins a word later."""
    places, firsts, counts, keys = room.places, room.firsts, room.counts, room.keys
    longer = looked_up = 0
    for k in range(size - 1):
        place = places[k]
        if places[k + 1] != place + 1:
            continue
        places[longer] = place
        longer += 1
        first, last = firsts[place], keys[place + n - 1]
        if keys[first + n - 1] == last:
            counts[first] = counts[first] + 1 if first < place else 1
        else:
            room.others[looked_up] = place
            room.wanted[looked_up] = _joined(np.int64(first), last)
            looked_up += 1
    _look_up(room, looked_up)
    return longer


@inner
def _look_up(room: Words, size: int) -> None:
    """Number those that go on otherwise than the first one, which they begin like."""
    keys, others, table, counts = room.wanted, room.others, room.table, room.counts
    mask = cleared(table, size)
    for k in range(size):
        first = entered(table, mask, keys, k)
        counts[others[k]] = 0 if first == k else counts[others[k]]
        room.firsts[others[k]] = others[first]
        counts[others[first]] += 1


@inner
def _top(room: Words, size: int, n: int) -> tuple[int, int]:
    """Keep the candidates that have an equal; how many, and the code points of the most frequent n-gram."""
    places, firsts, counts = room.places, room.firsts, room.counts
    kept, top, most = 0, 0, 1  # if none occurs twice, the first one is as frequent as any
    for k in range(size):
        place = places[k]
        first = firsts[place]
        count = np.int64(counts[first])
        places[kept] = place
        kept += count > 1
        if count > most:
            top, most = first, count
    return kept, most * (room.ends[top + n] - room.ends[top] + n - 1)


@inner
def _duplicates(room: Words, size: int, n: int) -> tuple[int, int]:
    """Keep the candidates that have an equal; how many, and the code points in those seen before.

    The count of what has been seen becomes negative.
    """
    places, firsts, counts, ends = room.places, room.firsts, room.counts, room.ends
    kept, chars, free = 0, 0, 0  # free: the first word behind what has been counted
    for k in range(size):
        place = places[k]
        first = firsts[place]
        count = np.int64(counts[first])
        places[kept] = place
        kept += abs(count) > 1
        if place >= free:
            if count < 0:
                chars += ends[place + n] - ends[place]
                free = place + n
            else:
                counts[first] = -count
    return kept, chars
