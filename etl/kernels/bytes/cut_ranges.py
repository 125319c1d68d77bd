"""Join ranges of bytes to cut from texts, and move their ends to whole characters or words.

A range is ``starts[i] : ends[i]``, in bytes from the start of its document.
"""

from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import LINE
from etl.kernels.bytes.utf8 import Texts, num_chars, point_at
from etl.kernels.jit import inner, kernel

SNAP_BYTES: Final = 64
"""How far an end is moved to the next white space; chosen here: longer than words, shorter than lines."""


class CutRanges(NamedTuple):
    """Ranges of documents, and where their bytes are kept."""

    documents: NDArray[np.int64]  # (n,)
    starts: NDArray[np.int64]  # (n,)
    ends: NDArray[np.int64]  # (n,)
    keepers: NDArray[np.int64]  # (n,) a document with the bytes at the start of the range

    def take(self, indices: NDArray[np.int64]) -> Self:
        """Return the ranges with these indices."""
        return type(self)(*(column[indices] for column in self))


def merge_ranges(ranges: CutRanges) -> CutRanges:
    """Return disjoint ranges with the same bytes, by document and start; ranges that touch become one.

    Its keeper is that of the first range, and of several that start there, the least.

    >>> some = CutRanges(*np.array([[3, 3, 2, 3], [5, 0, 1, 9], [9, 5, 2, 12], [1, 2, 1, 0]]))
    >>> [column.tolist() for column in merge_ranges(some)]
    [[2, 3], [1, 0], [2, 12], [1, 2]]
    """
    merged = ranges.take(np.lexsort((ranges.keepers, ranges.starts, ranges.documents)))
    size = _merge(*merged)
    return CutRanges(*(column[:size] for column in merged))


def snap_ranges(
    texts: Texts, first: NDArray[np.int64], ranges: CutRanges, *, words: bool
) -> CutRanges:
    """Return ranges shrunk to whole characters and, with ``words``, to begin and end after white space.

    The ranges of text ``k`` are those from ``first[k]`` to ``first[k + 1]``. With ``words``, each end moves
    by up to ``SNAP_BYTES`` bytes, to directly after white space: text remains that could be cut, but the
    words on both sides are not joined. An end of the text counts as white space. Without white space that
    near, an end stays. A range of which nothing remains is left out.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> some = texts(pa.array(["an overture for voices"]))
    >>> whole = CutRanges(*np.array([[0], [5], [18], [9]]))
    >>> snapped = snap_ranges(some, np.array([0, 1]), whole, words=True)
    >>> snapped.starts, snapped.ends  # "for "
    (array([12]), array([16]))
    """
    starts, ends = ranges.starts.copy(), ranges.ends.copy()
    classes = character_classes.classes()
    _snap(texts.offsets, texts.data, first, classes, words, starts, ends)
    snapped = CutRanges(ranges.documents, starts, ends, ranges.keepers)
    return snapped.take(np.flatnonzero(starts < ends))


def count_range_chars(
    texts: Texts, first: NDArray[np.int64], ranges: CutRanges
) -> NDArray[np.int64]:
    """Return the code points in the ranges of each text: int64 (n,); the arguments are as above.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> ranges = CutRanges(*np.array([[0], [1], [3], [0]]))
    >>> count_range_chars(texts(pa.array(["né", ""])), np.array([0, 1, 1]), ranges)
    array([1, 0])
    """
    out = np.zeros(len(texts.offsets) - 1, np.int64)
    _count(texts.offsets, texts.data, first, ranges.starts, ranges.ends, out)
    return out


@kernel
def _merge(
    documents: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    keepers: NDArray[np.int64],
) -> int:
    """Merge sorted ranges in place; return their number."""
    size = 0
    for i in range(len(documents)):
        if size > 0 and documents[size - 1] == documents[i] and ends[size - 1] >= starts[i]:
            ends[size - 1] = max(ends[size - 1], ends[i])
        else:
            documents[size], starts[size] = documents[i], starts[i]
            ends[size], keepers[size] = ends[i], keepers[i]
            size += 1
    return size


@kernel
def _snap(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    first: NDArray[np.int64],
    classes: NDArray[np.uint8],
    words: bool,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    for k in range(len(offsets) - 1):
        begin, stop = offsets[k], offsets[k + 1]
        for i in range(first[k], first[k + 1]):
            # Each end moves as if the other one were not there. So of two ranges, the shorter one
            # is not larger after that.
            start, end = begin + starts[i], begin + ends[i]
            while start < stop and data[start] & 0xC0 == 0x80:
                start += 1
            while begin < end < stop and data[end] & 0xC0 == 0x80:
                end -= 1
            if words:
                at = start
                while at < start + SNAP_BYTES and not _is_after_space(
                    data, begin, at, stop, classes
                ):
                    at += 1
                start = at if _is_after_space(data, begin, at, stop, classes) else start
                at = end
                while at > end - SNAP_BYTES and not _is_after_space(data, begin, at, stop, classes):
                    at -= 1
                end = at if _is_after_space(data, begin, at, stop, classes) else end
            starts[i], ends[i] = start - begin, max(start, end) - begin


@inner
def _is_after_space(
    data: NDArray[np.uint8], begin: int, at: int, stop: int, classes: NDArray[np.uint8]
) -> bool:
    """Return whether the character before a byte is white space (``str.isspace``) or there is none."""
    if at in (begin, stop):
        return True
    lead = at - 1
    while lead > begin and data[lead] & 0xC0 == 0x80:
        lead -= 1
    point, width = point_at(data, lead, stop)
    return lead + width == at and classes[point] <= LINE


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    first: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    for k in range(len(out)):
        for i in range(first[k], first[k + 1]):
            out[k] += num_chars(data, offsets[k] + starts[i], offsets[k] + ends[i])
