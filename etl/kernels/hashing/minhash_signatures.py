"""Compute MinHash signatures, which estimate the Jaccard similarity of texts, and band keys.

A text's *shingles* are its runs of n words, or of n characters. The Jaccard similarity of two texts is the
number of shingles in both, divided by the number of shingles in either. A signature holds the minimum of
each of many permutations of the 32-bit hashes of a text's shingles; the minima of two texts agree with a
probability equal to their similarity (Broder 1997). The minima are grouped in *bands*: only texts that
agree in all minima of a band are compared (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4).

A word is a run of letters, digits, underscores and marks in lower case, or one character of a script
without spaces (including Katakana). Optionally, all digits count as 0 and accents are removed. All other
characters separate words: "file.name" is two words.
The loop over the permutations is the innermost one, so that a processor computes 8 or 16 of them at a time.
Memory: at most 32 bytes per byte of the longest text; 4 in prose.
"""

import unicodedata
from functools import cache
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
from etl.kernels.bytes.hash64 import SEED, fnv_step, mix_bits
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.hashing.ngram_index import roll_hashes
from etl.kernels.jit import kernel
from etl.kernels.words import normalized_words

_STEP: Final = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea and Flood 2014)
_MASK: Final = (1 << 64) - 1

# An entry of the table of characters is 0 (a separator), -1 (ignored), or the code point that the character
# is normalized to. One of these bits is set unless the character is a letter or digit of a longer word.
_ALONE: Final = 1 << 21  # a word of one character
_GOES_ON: Final = 1 << 22  # a mark: continues the word before it, and begins none
_POINT: Final = _ALONE - 1


class Shingling(NamedTuple):
    """How to split texts into shingles."""

    size: int  # words, or characters
    of_chars: bool = False
    fold_digits: bool = True  # each digit counts as 0
    fold_accents: bool = True


class _Permutations(NamedTuple):
    """Permutations x -> factor * x + summand of 32-bit numbers."""

    factors: NDArray[np.uint32]  # (p,) odd
    summands: NDArray[np.uint32]  # (p,)


class TextBuffers(NamedTuple):
    """Arrays for a text of n words or characters, reused for the next text."""

    keys: NDArray[np.int64]  # (n,) of words or characters
    hashes: NDArray[np.int64]  # (n,) of shingles


def signatures(
    texts: Texts, shingling: Shingling, *, permutations: int, seed: int
) -> NDArray[np.uint32]:
    """Return each text's length, then the minimum of each permutation: uint32 (n, 1 + permutations).

    The length is in words or characters. If it is 0, the text has no shingles and the minima are undefined.
    A text shorter than a shingle is one shingle. A null is an empty text.
    """
    out = np.empty((len(texts.offsets) - 1, 1 + permutations), np.uint32)
    buffers, drawn = text_buffers(texts), _permutations(permutations, seed)
    _sign(texts.offsets, texts.data, character_table(shingling), shingling, buffers, drawn, out)
    return out


def band_keys(minima: NDArray[np.uint32], bands: int) -> NDArray[np.int64]:
    """Return a hash of each band of each text: int64 (n, bands), from minima uint32 (n, bands * rows).

    Keys of bands with different numbers are equal only by a 64-bit collision.
    """
    rows = minima.reshape(len(minima), bands, minima.shape[1] // bands)
    out = np.empty((len(minima), bands), np.int64)
    _hash_bands(np.ascontiguousarray(rows), out)
    return out


def character_table(shingling: Shingling) -> NDArray[np.int32]:
    """Return the table of characters for a shingling: int32 (0x110000,), read-only."""
    return _characters(fold_digits=shingling.fold_digits, fold_accents=shingling.fold_accents)


def text_buffers(texts: Texts) -> TextBuffers:
    """Return buffers for the longest text; unused pages take no memory."""
    size = 2 * int(np.diff(texts.offsets).max(initial=0)) + 1
    return TextBuffers(np.empty(size, np.int64), np.empty(size, np.int64))


@cache
def _permutations(num: int, seed: int) -> _Permutations:
    """Draw permutations from a seed."""
    state, drawn = seed * _STEP & _MASK, []
    for _ in range(2 * num):
        # SplitMix64: the numbers depend on the seed alone, in every version of numpy.
        state = (state + _STEP) & _MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        drawn.append((z ^ z >> 31) >> 32)
    factors, summands = np.array(drawn, np.uint32).reshape(2, num)
    # x * factor + summand mod 2^32 is a permutation if the factor is odd.
    return _Permutations(factors | np.uint32(1), summands)


@cache
def _characters(*, fold_digits: bool, fold_accents: bool) -> NDArray[np.int32]:
    """Return the table of characters: int32 (0x110000,), read-only; built once, in 0.3 s."""
    classes, lower = character_classes.classes(), normalized_words.fold_table()
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
    for point in np.flatnonzero(table[:0x20000] > 0).tolist():  # later ones have neither
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
def read_shingles(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    characters: NDArray[np.int32],
    shingling: Shingling,
    buffers: TextBuffers,
) -> tuple[int, int]:
    """Write the hash of each shingle of a text; return their number and the length of the text."""
    length = _read(data, span, characters, shingling.of_chars, buffers.keys)
    if length == 0:
        return 0, 0
    num = max(1, length - shingling.size + 1)
    roll_hashes(buffers.keys, min(shingling.size, length), buffers.hashes[:num])
    return num, length


@kernel
def _read(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    characters: NDArray[np.int32],
    of_chars: bool,
    keys: NDArray[np.int64],
) -> int:
    """Write a key for each word, or for each character and for a blank after each word.

    Returns the number of keys.
    """
    at, end = span
    num, key, is_open, is_alone = 0, SEED, False, False
    while at < end:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, end)
        at += width
        # Of the characters, 0 ends a word; a negative number is passed over; marks (_GOES_ON) only
        # continue a word; and characters of scripts without spaces (_ALONE) are a word each.
        entry = int(characters[point])
        if entry < 0 or (entry == 0 and not is_open) or (entry & _GOES_ON and not is_open):
            continue
        if is_open and entry & _GOES_ON == 0 and (entry == 0 or is_alone or entry & _ALONE):
            keys[num] = mix_bits(0x20) if of_chars else mix_bits(key)
            num += 1
            key, is_open = SEED, False
        if entry > 0:
            if entry & _GOES_ON == 0:
                is_open, is_alone = True, entry & _ALONE != 0
            if of_chars:
                keys[num] = mix_bits(entry & _POINT)
                num += 1
            else:
                key = fnv_step(key, entry & _POINT)
    if is_open:
        keys[num] = mix_bits(0x20) if of_chars else mix_bits(key)
        num += 1
    return num


@kernel
def _sign(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    characters: NDArray[np.int32],
    shingling: Shingling,
    buffers: TextBuffers,
    permutations: _Permutations,
    out: NDArray[np.uint32],
) -> None:
    for k in range(len(offsets) - 1):
        span = (offsets[k], offsets[k + 1])
        num, length = read_shingles(data, span, characters, shingling, buffers)
        # The least hash over all shingles, by many permutations: two texts agree in each with the
        # probability of their similarity.
        out[k] = np.uint32(0xFFFFFFFF)
        _lower(buffers.hashes[:num], permutations.factors, permutations.summands, out[k, 1:])
        out[k, 0] = length


@kernel
def _lower(
    hashes: NDArray[np.int64],
    factors: NDArray[np.uint32],
    summands: NDArray[np.uint32],
    minima: NDArray[np.uint32],
) -> None:
    """Lower each permutation's minimum to that over the upper 32 bits of the hashes."""
    for k in range(len(hashes)):
        upper = np.uint32(hashes[k] >> 32)
        for p in range(len(minima)):
            minima[p] = min(minima[p], np.uint32(upper * factors[p] + summands[p]))


@kernel
def _hash_bands(rows: NDArray[np.uint32], out: NDArray[np.int64]) -> None:
    for k in range(rows.shape[0]):
        for band in range(rows.shape[1]):
            # The number of the band is hashed, too: equal numbers in different bands are not a match.
            key = mix_bits(band + 1)
            for row in range(rows.shape[2]):
                key = mix_bits(key ^ int(rows[k, band, row]))
            out[k, band] = key
