"""MinHash: a few numbers by which the likeness of two texts is known without the texts.

A text's *shingles* are its runs of n words, or of n characters. The likeness of two texts is that of
Jaccard: the shingles they share, divided by those that either has. Of each of many permutations of the
32-bit hashes of shingles a text keeps the least number; two texts agree in it with a probability that is
their likeness (Broder 1997). Texts are grouped in *bands* of some of these numbers: those that agree in
all numbers of a band are compared at all (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4).

Words are those of ``etl.kernels.plain``, and may be read with digits as 0 and without accents. The loop
over the permutations is the innermost one, so that a processor does 8 or 16 of them at a time. Memory: 30
bytes per byte of the longest text, at the worst; 5 in prose.
"""

import unicodedata
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels import plain, unicode
from etl.kernels.grams import roll
from etl.kernels.jit import kernel
from etl.kernels.plain import BLOCK, Words, add_words, mixed
from etl.kernels.utf8 import Texts, point_at
from etl.kernels.words import next_segments

_STEP: Final = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea and Flood 2014)
_MASK: Final = (1 << 64) - 1


class Shingling(NamedTuple):
    """How texts are cut into shingles."""

    size: int  # words, or characters
    of_chars: bool = False
    fold_digits: bool = True  # each digit counts as 0
    fold_accents: bool = True


def signatures(
    texts: Texts, shingling: Shingling, *, permutations: int, seed: int
) -> NDArray[np.uint32]:
    """For each text its length, then the least number of each permutation: uint32 (n, 1 + permutations).

    The length is in words or characters, and 0 where a text has none: then it has no shingles and the
    numbers say nothing. A text shorter than a shingle is one shingle. A null is an empty text.
    """
    out = np.empty((len(texts.offsets) - 1, 1 + permutations), np.uint32)
    buffers, rest = (texts.offsets, texts.data), (shingling.size, shingling.of_chars)
    drawn = _permutations(permutations, seed)
    _sign(buffers, _tables(shingling), rest, _room(texts), drawn, out)
    return out


def shingles(texts: Texts, shingling: Shingling) -> list[NDArray[np.int64]]:
    """The set of shingles of each text, as sorted 64-bit hashes."""
    rest, tables, room = (shingling.size, shingling.of_chars), _tables(shingling), _room(texts)
    found = []
    for start, end in pairwise(texts.offsets):
        num, _ = _shingles(texts.data, (start, end), tables, rest, room)
        found.append(np.unique(room.hashes[:num]))
    return found


def jaccard(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The likeness of two sets; that of two empty ones is 0.

    >>> jaccard(np.array([1, 2, 3]), np.array([2, 3, 4]))
    0.5
    """
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / max(1, len(one) + len(other) - shared)


def band_keys(minima: NDArray[np.uint32], bands: int) -> NDArray[np.int64]:
    """A hash of each band of each text: int64 (n, bands), from numbers uint32 (n, bands * rows).

    Bands of different places do not have equal keys, but by the chance of 64 bits.
    """
    rows = minima.reshape(len(minima), bands, minima.shape[1] // bands)
    out = np.empty((len(minima), bands), np.int64)
    _hash_bands(np.ascontiguousarray(rows), out)
    return out


@cache
def _permutations(num: int, seed: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """An odd factor and a summand for each permutation x -> factor * x + summand of 32-bit numbers."""
    state, drawn = seed * _STEP & _MASK, []
    for _ in range(2 * num):
        state = (state + _STEP) & _MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        drawn.append((z ^ z >> 31) >> 32)
    factors, summands = np.array(drawn, np.uint32).reshape(2, num)
    return factors | np.uint32(1), summands


@cache
def _folds(*, digits: bool, accents: bool) -> NDArray[np.int32]:
    """The table of ``plain.folds`` with digits as 0 and letters without accents, where that is wanted."""
    table = plain.folds().copy()
    for point in range(0x20000):  # what comes after has neither
        char = chr(point)
        if digits and char.isdecimal():
            table[point] = ord("0")
        elif accents and unicodedata.category(char) == "Mn":
            table[point] = 0
        elif accents and table[point] and unicodedata.decomposition(char):
            base, *marks = [*unicodedata.normalize("NFD", chr(table[point]))]
            if all(unicodedata.category(mark) == "Mn" for mark in marks):
                table[point] = table[ord(base)]
    table.flags.writeable = False
    return table


def _tables(shingling: Shingling) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    folds = _folds(digits=shingling.fold_digits, accents=shingling.fold_accents)
    return unicode.classes(), folds


class _Room(NamedTuple):
    """Room for whatever the longest text holds; what is not used takes no memory."""

    words: Words
    points: NDArray[np.int64]  # a key for each character
    hashes: NDArray[np.int64]
    block: NDArray[np.int64]


def _room(texts: Texts) -> _Room:
    most = int(np.diff(texts.offsets).max(initial=0)) + 2
    words = Words(np.empty(3 * most, np.uint8), np.empty(most, np.int64), np.empty(most, np.int64))
    return _Room(
        words,
        np.empty(2 * most, np.int64),
        np.empty(2 * most, np.int64),
        np.empty((BLOCK, 4), np.int64),
    )


@kernel
def _shingles(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    rest: tuple[int, bool],
    room: _Room,
) -> tuple[int, int]:
    """Write the hash of each shingle of a text; returns their number, and the text's length."""
    at, end = span
    size, of_chars = rest
    words, num_words = room.words, 0
    words.ends[0] = 0
    while at < end:
        at, num = next_segments(data, at, end, tables[0], room.block)
        num_words = add_words(data, room.block[:num], tables[1], words, num_words)
    keys, length = words.keys, num_words
    if of_chars:
        keys, length = room.points, _read_points(words, num_words, room.points)
    if length == 0:
        return 0, 0
    num = max(1, length - size + 1)
    roll(keys, min(size, length), room.hashes[:num])
    return num, length


@kernel
def _read_points(words: Words, num_words: int, out: NDArray[np.int64]) -> int:
    """A key for each character of the plain form, the blank behind each word too; returns how many."""
    at, end, num = 0, words.ends[num_words], 0
    while at < end:
        point, width = point_at(words.plain, at, end)
        out[num] = mixed(point)
        at += width
        num += 1
    return num


@kernel
def _sign(
    texts: tuple[NDArray[np.int64], NDArray[np.uint8]],
    tables: tuple[NDArray[np.uint8], NDArray[np.int32]],
    rest: tuple[int, bool],
    room: _Room,
    permutations: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    out: NDArray[np.uint32],
) -> None:
    offsets, data = texts
    for k in range(len(offsets) - 1):
        num, length = _shingles(data, (offsets[k], offsets[k + 1]), tables, rest, room)
        out[k] = np.uint32(0xFFFFFFFF)
        _lower(room.hashes[:num], permutations[0], permutations[1], out[k, 1:])
        out[k, 0] = length


@kernel
def _lower(
    hashes: NDArray[np.int64],
    factors: NDArray[np.uint32],
    summands: NDArray[np.uint32],
    minima: NDArray[np.uint32],
) -> None:
    """Lower each permutation's number to the least that it makes of the upper half of each hash."""
    for k in range(len(hashes)):
        upper = np.uint32(hashes[k] >> 32)
        for p in range(len(minima)):
            minima[p] = min(minima[p], np.uint32(upper * factors[p] + summands[p]))


@kernel
def _hash_bands(rows: NDArray[np.uint32], out: NDArray[np.int64]) -> None:
    for k in range(rows.shape[0]):
        for band in range(rows.shape[1]):
            key = mixed(band + 1)
            for row in range(rows.shape[2]):
                key = mixed(key ^ int(rows[k, band, row]))
            out[k, band] = key
