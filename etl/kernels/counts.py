"""One pass over the words of each document for all signals that count words."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels import quality, repetition
from etl.kernels.english import Tables, tables
from etl.kernels.jit import kernel
from etl.kernels.spacy import new_room, next_chunks, next_words
from etl.kernels.utf8 import Texts


class WordCounts(NamedTuple):
    """The counts of documents."""

    quality: quality.Counts
    repeated_chars: NDArray[np.int64]  # (n-grams, n): repetition.TOP, then DUPLICATE


def count(
    texts: Texts,
    *,
    by_space: bool = False,
    words: bool = True,
    marks: bool = True,
    repeated: bool = False,
) -> WordCounts:
    """Count the words of each document, and the code points in repeated n-grams if ``repeated``.

    Words are the segments of ``etl.kernels.spacy``, or with ``by_space`` the text between white space.
    Bytes of nulls are counted too. Without ``words`` segments are counted but not examined: the counts
    of words remain 0. Without ``marks`` the counts of symbols and lines remain 0, and without ``repeated``
    ``repeated_chars`` has no rows.
    """
    num = len(texts.offsets) - 1
    counts = np.zeros((num, len(quality.COUNTS)), np.int64)
    num_grams = len(repetition.TOP) + len(repetition.DUPLICATE) if repeated else 0
    repeated_chars = np.zeros((num, num_grams), np.int64)
    keeps = words or repeated or by_space
    _count(texts.offsets, texts.data, tables(), counts, repeated_chars, by_space, keeps, marks)
    return WordCounts(quality.Counts(*counts.T), repeated_chars.T)


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: Tables,
    counts: NDArray[np.int64],
    repeated_chars: NDArray[np.int64],
    by_space: bool,
    keeps: bool,
    marks: bool,
) -> None:
    room = new_room()
    repeated = repeated_chars.shape[1] > 0
    words = repetition.new_words(len(room.block) if repeated else 0)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words = 0
        while at < end:
            if by_space:
                at, num = next_chunks(data, at, end, tables, room)
            else:
                at, num = next_words(data, at, end, tables, room, keeps)
            if keeps:
                quality.add_words(data, room.block, num, counts[k])
            else:
                counts[k, quality.SEGMENTS] += num
            if repeated:
                if num_words + num > len(words.keys):
                    words = repetition.grown(words, num_words)
                repetition.add_words(data, room.block, num, words, num_words)
                num_words += num
        quality.finish(data, offsets[k], end, counts[k])
        if marks:
            quality.finish_marks(data, offsets[k], end, tables.classes, counts[k])
        if repeated:
            repetition.repeated_chars(words, num_words, repeated_chars[k])
