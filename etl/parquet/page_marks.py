"""Marks in the footer of a data file: where the pages of its bulk column begin.

A reader that needs the middle of a row group then requests only that, where it would have to follow the
headers of all pages before. The page index of Parquet has no positions of values in lists, only rows.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from etl.parquet.page_headers import parse_page_header

_KEY = b"pages_of_bulk_column"
_MAX_HEADER_BYTES = 256


class MarkedOutput:
    """A file for pq.ParquetWriter that passes everything on to another, and notes where pages begin."""

    closed = False

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._position = 0
        self._pages: list[tuple[int, int]] = []  # the offset and the levels of each data page
        self._marks: list[list[list[int]]] = []

    def write(self, data: bytes) -> int:
        """Write bytes; the writer writes each page header on its own."""
        # pyarrow does not say where pages begin, but writes each page header alone. Content hardly ever
        # parses as a header of exactly its length.
        if len(data) <= _MAX_HEADER_BYTES:
            try:
                length, _, _, values, _ = parse_page_header(data)
            except (IndexError, OSError):
                length, values = 0, -1
            if length == len(data) and values >= 0:
                self._pages.append((self._position, values))
        self._position += len(data)
        self._file.write(data)
        return len(data)

    def end_row_group(self, rows: pa.Table, column: str) -> None:
        """Note the marks of a column of lists, after a row group was written."""
        pages, self._pages = self._pages, []
        self._marks.append(_find_marks(pages, rows, column))

    def metadata(self) -> Mapping[str, str]:
        """Return the marks for the footer."""
        return {_KEY.decode(): json.dumps(self._marks, separators=(",", ":"))}

    def tell(self) -> int:
        """Return the position in the file."""
        return self._position

    def flush(self) -> None:
        """Do nothing: the file below is flushed when it is closed."""

    def close(self) -> None:
        """Do nothing: the file below is closed by its owner."""


def _find_marks(pages: list[tuple[int, int]], rows: pa.Table, column: str) -> list[list[int]]:
    """Return the first value of each page of a column, and the offset of the page.

    ``pages`` has no pages of a dictionary, nor of columns that use it: returns no marks if the pages of the
    column cannot be distinguished.
    """
    # Pages count levels: one for each value, and one for each empty list. Lists of 3, 0 and 2 values
    # have 3, 1 and 2 levels, which end at 3, 4 and 6; their values end at 3, 3 and 5. If the second page
    # begins at level 4, its first value is number 3.
    lists: Any = rows[column].combine_chunks()
    offsets = np.asarray(lists.offsets).astype(np.int64)
    values = np.diff(offsets)
    levels = np.cumsum(np.maximum(values, 1))  # an empty list takes one
    value_ends = np.cumsum(values)
    # ``pages`` has pages of other columns, too. This column's are consecutive, and have its levels.
    sizes = np.array([count for _, count in pages], np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    # For each page as the first one of the column: the page where the column would end, if it fits.
    lasts = np.searchsorted(ends, starts + levels[-1])
    found = np.flatnonzero(np.append(ends, -1)[lasts] == starts + levels[-1])
    if len(found) != 1:  # another column has as many, for example if no list has two values
        return [[], []]
    chosen = slice(found[0], lasts[found[0]] + 1)
    page_starts = starts[chosen][1:] - starts[chosen.start]
    row_ends = np.searchsorted(levels, page_starts)
    if not np.array_equal(levels[row_ends], page_starts):  # pages do not end with rows
        return [[], []]
    return [[0, *value_ends[row_ends].tolist()], [offset for offset, _ in pages[chosen]]]


def find_marks(metadata: Mapping[bytes, bytes] | None) -> bytes:
    """Return the marks in the metadata of a footer; empty without marks."""
    return (metadata or {}).get(_KEY, b"")


def thin_marks(content: bytes, every: int) -> bytes:
    """Return the marks of every nth page of each row group of a file; none if only first pages remain.

    >>> thin_marks(b"[[[0,5,9],[4,80,190]],[[],[]]]", 2)
    b'[[[0,9],[4,190]],[[],[]]]'
    >>> thin_marks(b"[[[0,5,9],[4,80,190]],[[],[]]]", 3)
    b''
    """
    if every == 1 or not content:
        return content
    groups = [[values[::every] for values in marks] for marks in json.loads(content)]
    if all(len(firsts) <= 1 for firsts, _ in groups):
        return b""
    return json.dumps(groups, separators=(",", ":")).encode()


@lru_cache(maxsize=64)
def parse_marks(content: bytes) -> list[np.ndarray]:
    """Return the marks of a file, (2, n) int64 for each row group, or an empty list.

    Each has the first values of the pages and their offsets in the file, ascending.
    """
    groups = json.loads(content) if content else []
    return [np.array(marks, np.int64).reshape(2, -1) for marks in groups]
