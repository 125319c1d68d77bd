"""Count the distinct stop words of each document in its own language.

In languages with spaces a stop word must be a whole run of letters, digits and marks. In languages without
spaces, and in Korean, which attaches particles to words, it may occur anywhere. Whole words
take one pass over the bytes of a document; the others take one pass each, up to the first occurrence.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import (
    DIGIT,
    HEBREW,
    JOINER,
    KATAKANA,
    LETTER,
    MARK,
    NUM_CLASSES,
    UNIT,
    ZWJ,
    classes,
)
from etl.kernels.bytes.hash64 import SEED, fnv_step
from etl.kernels.bytes.simd import count_ones
from etl.kernels.bytes.utf8 import Texts, class_at
from etl.kernels.jit import inner, kernel
from etl.kernels.signals.stop_word_lists import ANYWHERE, STOP_WORDS

_CODES: Final = tuple(STOP_WORDS)
_NONE: Final = -1  # the index of a language without a list
_PRIME: Final = 1099511628211  # FNV-1a, 64 bits
_KEY, _BIT = range(2)


class StopWordTables(NamedTuple):
    """The lists of stop words as arrays."""

    of_run: NDArray[np.bool_]  # (NUM_CLASSES,) whether a class is part of a run
    words: NDArray[np.int64]  # (slots, [_KEY, _BIT]) hash table of the whole words of all languages
    longest: int  # of these words, in bytes
    # Words that may occur anywhere:
    first: NDArray[np.int64]  # (languages + 1,) the first word of each language
    starts: NDArray[np.int64]  # (words + 1,) where each word begins in data
    data: NDArray[np.uint8]


def count_stop_words(texts: Texts, languages: pa.Array) -> NDArray[np.int64]:
    """Count the distinct stop words of each document in its language: int64 (n,).

    ``languages`` (string) are ISO 639-1 codes. The count is 0 if the code is null or has no list here.

    >>> from etl.kernels.bytes.utf8 import texts
    >>> documents = texts(pa.array(["Die Würde des Menschen und die des Tieres", "写的是什么"]))
    >>> count_stop_words(documents, pa.array(["de", "zh"]))
    array([3, 2])
    """
    index = pc.fill_null(pc.index_in(languages, pa.array(_CODES)), _NONE)
    out = np.zeros(len(texts.offsets) - 1, np.int64)
    _count(texts.offsets, texts.data, index.to_numpy().astype(np.int64), classes(), _tables(), out)
    return out


@cache
def _tables() -> StopWordTables:
    """Return the tables; built once per process."""
    of_run = np.zeros(NUM_CLASSES, np.bool_)
    of_run[[LETTER, HEBREW, KATAKANA, UNIT, DIGIT, JOINER, MARK, ZWJ]] = True
    whole = [
        (_hash_of(word.encode(), index), 1 << bit, len(word.encode()))
        for index, code in enumerate(_CODES)
        if code not in ANYWHERE
        for bit, word in enumerate(STOP_WORDS[code].split())
    ]
    slots = np.zeros((2048, 2), np.int64)  # at most a quarter full
    assert 4 * len(whole) <= len(slots)
    for key, bit, _ in whole:
        slot = (key >> 32) % len(slots)
        while slots[slot, _KEY] != 0:
            assert slots[slot, _KEY] != key
            slot = (slot + 1) % len(slots)
        slots[slot] = key, bit
    anywhere = [STOP_WORDS[code].split() if code in ANYWHERE else [] for code in _CODES]
    words = [word.encode() for of_language in anywhere for word in of_language]
    return StopWordTables(
        of_run=of_run,
        words=slots,
        longest=max(length for _, _, length in whole),
        first=np.cumsum([0, *map(len, anywhere)], dtype=np.int64),
        starts=np.cumsum([0, *map(len, words)], dtype=np.int64),
        data=np.frombuffer(b"".join(words), np.uint8),
    )


def _hash_of(word: bytes, index: int) -> int:
    """Return FNV-1a of the index of a language and a word, as a signed 64-bit number."""
    key = SEED
    for byte in (index, *word):
        key = (key ^ byte) * _PRIME
        key = (key + (1 << 63)) % (1 << 64) - (1 << 63)  # wrap around as an int64
    return key


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    languages: NDArray[np.int64],
    classes: NDArray[np.uint8],
    tables: StopWordTables,
    out: NDArray[np.int64],
) -> None:
    for k in range(len(out)):
        index, at, end = languages[k], offsets[k], offsets[k + 1]
        if index == _NONE:
            continue
        first, last = tables.first[index], tables.first[index + 1]
        if first == last:
            out[k] = _count_runs(data, at, end, classes, tables, index)
        for word in range(first, last):
            out[k] += _occurs(data, at, end, tables, word)


@inner
def _count_runs(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    classes: NDArray[np.uint8],
    tables: StopWordTables,
    index: int,
) -> int:
    """Count the distinct words of a language that are whole runs of a document."""
    of_run, words = tables.of_run, tables.words
    seed = fnv_step(SEED, index)  # a key is the hash of a language and a word
    start, key, bits = at, seed, np.int64(0)
    while at < end:
        byte = data[at]
        kind, width = np.int64(LETTER), 1
        if not 97 <= (byte | 32) <= 122:  # most of many languages: ASCII letters
            kind, width = class_at(data, at, end, classes)
        # Hash a run while it is read: at its end, the key is complete.
        if of_run[kind]:
            for k in range(at, at + width):
                key = fnv_step(key, np.int64(data[k]))
        else:
            if 0 < at - start <= tables.longest:
                bits |= _bit(words, key)
            start, key = at + width, seed
        at += width
    if 0 < at - start <= tables.longest:
        bits |= _bit(words, key)
    return count_ones(int(bits))


@inner
def _bit(words: NDArray[np.int64], key: np.int64) -> np.int64:
    """Return the bit of the word with this hash, or 0."""
    last = len(words) - 1
    slot = (key >> 32) & last
    while words[slot, _KEY] != 0 and words[slot, _KEY] != key:
        slot = (slot + 1) & last
    return np.int64(words[slot, _BIT])


@inner
def _occurs(data: NDArray[np.uint8], at: int, end: int, tables: StopWordTables, word: int) -> bool:
    """Return whether a word occurs anywhere in a document."""
    first, last = tables.starts[word], tables.starts[word + 1]
    length, head, tail = last - first, tables.data[first], tables.data[last - 1]
    for start in range(at, end - length + 1):
        # Words of scripts without spaces are searched everywhere. The last byte of a character differs
        # most, so it is compared first.
        if data[start + length - 1] != tail or data[start] != head:
            continue
        k = 1
        while k < length - 1 and data[start + k] == tables.data[first + k]:
            k += 1
        if k >= length - 1:
            return True
    return False
