"""Words that were found elsewhere, such as in a dictionary, given as ranges of the bytes of their texts.

A segmenter reports characters, which ``byte_ranges`` converts to bytes. The words may overlap: a Korean
syllable can belong to two morphemes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import inner
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD, ChunkBuffers
from etl.kernels.words.spacy_tables import LETTER, NO_WORD, SpacyTables
from etl.kernels.words.uax29 import append_segment

_BLOCK: Final = 1024  # words at a time


class GivenWords(NamedTuple):
    """The words of documents: document k has the words ``first[k]`` to ``first[k + 1]``."""

    first: NDArray[np.int64]  # (documents + 1,); of length 0 if no words are given
    starts: NDArray[np.int64]  # (words,) the first byte
    ends: NDArray[np.int64]  # (words,) the byte after the last


def no_words() -> GivenWords:
    """Return the words of documents for which none are given."""
    return GivenWords(*(np.zeros(0, np.int64) for _ in GivenWords._fields))


def byte_ranges(texts: Texts, words: Sequence[NDArray[np.int64]]) -> GivenWords:
    """Return words as byte ranges: ``words[k]`` has the first and the last + 1 character of each word.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> given = byte_ranges(texts(pa.array(["né à Ax"])), [np.array([[0, 2], [3, 4]])])
    >>> given.starts.tolist(), given.ends.tolist()
    ([0, 4], [3, 6])
    """
    first = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(of_text) for of_text in words], out=first[1:])
    ranges = np.zeros((int(first[-1]), 2), np.int64)
    for k, of_text in enumerate(words):
        start, end = texts.offsets[k], texts.offsets[k + 1]
        chars = np.flatnonzero((texts.data[start:end] & 0xC0) != 0x80)
        byte_of_char = np.append(chars, end - start) + start
        ranges[first[k] : first[k + 1]] = byte_of_char[of_text.reshape(-1, 2)]
    return GivenWords(first, ranges[:, 0].copy(), ranges[:, 1].copy())


@inner
def next_given_words(
    data: NDArray[np.uint8],
    words: GivenWords,
    word: int,
    end: int,
    tables: SpacyTables,
    buffers: ChunkBuffers,
) -> tuple[int, int]:
    """Write given words from index ``word`` on as ``next_words`` writes segments, without white space.

    Returns the index of the next word, at most ``end``, and how many were written.
    """
    num = 0
    while word < end and num < _BLOCK:
        first, last = strip(data, words.starts[word], words.ends[word], tables.classes)
        word += 1
        if first >= last:
            continue
        any_of, all_of, chars, at = np.int64(0), np.int64(NO_WORD), 0, first
        while at < last:
            point, width = point_at(data, at, last)
            any_of |= np.int64(tables.flags[point])
            all_of &= np.int64(tables.flags[point])
            chars += 1
            at += width
        flags = (HAS_LETTER if any_of & LETTER else 0) | (0 if all_of else IS_WORD)
        num = append_segment(buffers.block, num, first, last, chars, flags)
    return word, num
