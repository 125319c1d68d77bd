"""One pass over the words of each document, for whatever counts words."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels import quality, repetition
from etl.kernels.english import Tables, tables
from etl.kernels.jit import kernel
from etl.kernels.spacy import new_room, next_chunks, next_words
from etl.kernels.utf8 import Texts


def count(
    texts: Texts,
    *,
    by_space: bool = False,
    words: bool = True,
    marks: bool = True,
    repeated: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counts of ``quality.COUNTS``, and the code points of ``repetition`` if asked for.

    Two arrays int64 (counts, n), (n-grams, n); the second has no rows if not asked for. Words are the
    segments of ``etl.kernels.spacy``, or what stands between white space. Whatever a null holds is
    counted too. Without ``words`` segments are not looked into: what is counted of words is left at 0; and
    without ``marks`` the symbols and lines.
    """
    num = len(texts.offsets) - 1
    counts = np.zeros((num, len(quality.COUNTS)), np.int64)
    rows = len(repetition.TOP) + len(repetition.DUPLICATE) if repeated else 0
    repetitions = np.zeros((num, rows), np.int64)
    looks = words or repeated or by_space
    _count(texts.offsets, texts.data, tables(), counts, repetitions, by_space, looks, marks)
    return counts.T, repetitions.T


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: Tables,
    counts: NDArray[np.int64],
    repetitions: NDArray[np.int64],
    by_space: bool,
    looks: bool,
    marks: bool,
) -> None:
    room = new_room()
    repeated = repetitions.shape[1] > 0
    words = repetition.new_words(len(room.block) if repeated else 0)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words = 0
        while at < end:
            if by_space:
                at, num = next_chunks(data, at, end, tables, room)
            else:
                at, num = next_words(data, at, end, tables, room, looks)
            if looks:
                quality.add_words(data, room.block, num, counts[k])
            else:
                counts[k, 0] += num
            if repeated:
                if num_words + num > len(words.keys):
                    words = repetition.grown(words, num_words)
                repetition.add_words(data, room.block, num, words, num_words)
                num_words += num
        quality.finish(data, offsets[k], end, counts[k])
        if marks:
            quality.finish_marks(data, offsets[k], end, tables.classes, counts[k])
        if repeated:
            repetition.repeated_chars(words, num_words, repetitions[k])
