"""MinHash: a few numbers by which the likeness of two texts is known without the texts.

A text's *shingles* are its runs of n words, or of n characters. The likeness of two texts is that of
Jaccard: the shingles they share, divided by those that either has. Of each of many permutations of the
32-bit hashes of shingles a text keeps the least number; two texts agree in it with a probability that is
their likeness (Broder 1997). Texts are grouped in *bands* of some of these numbers: those that agree in
all numbers of a band are compared at all (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4).

A word is a run of letters, digits, underscores and marks in lower case, or one character of a script
without spaces (Katakana too); it may be read with digits as 0 and without accents. Whatever stands between
words separates them: "file.name" is two of them.
The loop over the permutations is the innermost one, so that a processor does 8 or 16 of them at a time.
Memory: 32 bytes per byte of the longest text, at the worst; 4 in prose.
"""

import unicodedata
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import (
    DIGIT,
    FORMAT,
    HEBREW,
    JOINER,
    KATAKANA,
    LETTER,
    MARK,
    NUM_CODE_POINTS,
    NUMBER,
    UNIT,
    ZWJ,
)
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.hashing.ngram_index import roll
from etl.kernels.jit import kernel
from etl.kernels.words import normalized_words
from etl.kernels.words.normalized_words import mixed

_STEP: Final = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea and Flood 2014)
_MASK: Final = (1 << 64) - 1
_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits

# An entry of the table of characters is 0 (a separator), -1 (looked over), or what the character counts
# as, with one of these bits where it is no letter or digit of a longer word.
_ALONE: Final = 1 << 21  # a word by itself
_GOES_ON: Final = 1 << 22  # a mark: belongs to the word before it, and begins none
_POINT: Final = _ALONE - 1


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
    buffers, cut = (texts.offsets, texts.data), (shingling.size, shingling.of_chars)
    drawn = _permutations(permutations, seed)
    _sign(buffers, _table(shingling), cut, _room(texts), drawn, out)
    return out


def shingles(texts: Texts, shingling: Shingling) -> list[NDArray[np.int64]]:
    """The set of shingles of each text, as sorted 64-bit hashes."""
    table, cut, room = _table(shingling), (shingling.size, shingling.of_chars), _room(texts)
    found = []
    for start, end in pairwise(texts.offsets):
        num, _ = _shingles(texts.data, (start, end), table, cut, room)
        found.append(np.unique(room[1][:num]))
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


def _table(shingling: Shingling) -> NDArray[np.int32]:
    return _characters(fold_digits=shingling.fold_digits, fold_accents=shingling.fold_accents)


def _room(texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Room for the keys and hashes of the longest text; what is not used takes no memory."""
    most = 2 * int(np.diff(texts.offsets).max(initial=0)) + 1
    return np.empty(most, np.int64), np.empty(most, np.int64)


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
def _characters(*, fold_digits: bool, fold_accents: bool) -> NDArray[np.int32]:
    """What each code point counts as: int32 (0x110000,), read-only; built once, in 0.3 s."""
    classes, lower = character_classes.classes(), normalized_words.folds()
    table = np.zeros(NUM_CODE_POINTS, np.int32)
    for kinds, bit in (
        ((LETTER, HEBREW, DIGIT, NUMBER), 0),
        ((UNIT, KATAKANA), _ALONE),
        ((MARK,), _GOES_ON),
    ):
        chosen = np.isin(classes, kinds)
        table[chosen] = lower[chosen] | bit
    joiners = np.flatnonzero(classes == JOINER)  # the underscore
    table[joiners] = joiners
    table[(classes == FORMAT) | (classes == ZWJ)] = -1
    for point in np.flatnonzero(table[:0x20000] > 0).tolist():  # what comes after has neither
        char = chr(table[point] & _POINT)
        base, *marks = [*unicodedata.normalize("NFD", char)]
        if fold_digits and char.isdecimal():
            table[point] = ord("0")
        elif fold_accents and unicodedata.category(char) == "Mn":
            table[point] = -1
        elif fold_accents and all(unicodedata.category(mark) == "Mn" for mark in marks):
            table[point] += ord(base) - ord(char)
    table.flags.writeable = False
    return table


@kernel
def _shingles(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    characters: NDArray[np.int32],
    cut: tuple[int, bool],
    room: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> tuple[int, int]:
    """Write the hash of each shingle of a text; returns their number, and the text's length."""
    size, of_chars = cut
    keys, hashes = room
    length = _read(data, span, characters, of_chars, keys)
    if length == 0:
        return 0, 0
    num = max(1, length - size + 1)
    roll(keys, min(size, length), hashes[:num])
    return num, length


@kernel
def _read(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    characters: NDArray[np.int32],
    of_chars: bool,
    keys: NDArray[np.int64],
) -> int:
    """Write a key for each word, or each character of words and the blank after each; returns how many."""
    at, end = span
    num, key, is_open, is_alone = 0, _SEED, False, False
    while at < end:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, end)
        at += width
        entry = int(characters[point])
        if entry < 0 or (entry == 0 and not is_open) or (entry & _GOES_ON and not is_open):
            continue
        if is_open and entry & _GOES_ON == 0 and (entry == 0 or is_alone or entry & _ALONE):
            keys[num] = mixed(0x20) if of_chars else mixed(key)
            num += 1
            key, is_open = _SEED, False
        if entry > 0:
            if entry & _GOES_ON == 0:
                is_open, is_alone = True, entry & _ALONE != 0
            if of_chars:
                keys[num] = mixed(entry & _POINT)
                num += 1
            else:
                key = (key ^ (entry & _POINT)) * _PRIME
    if is_open:
        keys[num] = mixed(0x20) if of_chars else mixed(key)
        num += 1
    return num


@kernel
def _sign(
    texts: tuple[NDArray[np.int64], NDArray[np.uint8]],
    characters: NDArray[np.int32],
    cut: tuple[int, bool],
    room: tuple[NDArray[np.int64], NDArray[np.int64]],
    permutations: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    out: NDArray[np.uint32],
) -> None:
    offsets, data = texts
    for k in range(len(offsets) - 1):
        num, length = _shingles(data, (offsets[k], offsets[k + 1]), characters, cut, room)
        out[k] = np.uint32(0xFFFFFFFF)
        _lower(room[1][:num], permutations[0], permutations[1], out[k, 1:])
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
