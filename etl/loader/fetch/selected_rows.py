"""Which rows of the row groups of a table are read, and how often in an epoch.

The rows of a table are numbered by file (sorted by path) and in the file. Arrays by row are files that are
mapped into memory, so that all processes of a machine share them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


class MappedArray:
    """An array in a file, mapped into memory when it is first used; it is pickled as the path."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def values(self) -> np.ndarray:
        """The array."""
        values: np.ndarray = np.load(self.path, mmap_mode="r")
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}


@dataclass(frozen=True)
class Prefixes:
    """Tokens that precede the documents; in the stream of tokens they are negative: -1 - id."""

    ends: MappedArray  # (documents + 1,) int64: document i has tokens[ends[i]:ends[i + 1]]
    tokens: MappedArray  # int32

    def lengths(self, documents: np.ndarray) -> np.ndarray:
        """Return the tokens of the prefix of each of some documents, (n,) int64."""
        lengths: np.ndarray = self.ends.values[documents + 1] - self.ends.values[documents]
        return lengths

    def of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the prefixes of documents as negative numbers, (tokens,) int32, and the end of each."""
        lengths = self.lengths(documents)
        ends = np.cumsum(lengths)
        firsts = self.ends.values[documents] - (ends - lengths)
        return ~self.tokens.values[np.repeat(firsts, lengths) + np.arange(lengths.sum())], ends


@dataclass(frozen=True)
class TableRows:
    """The rows of the G row groups of an index: their numbers in the table, and their tokens.

    A row that is read n times in an epoch is in n row groups of the index: each is a copy of a row group of
    the table, and copy k has the rows that are read more than k times.
    """

    first: np.ndarray  # (G,) int64, the number of the first row of each row group
    count: np.ndarray  # (G,) int32
    lengths: MappedArray  # (rows of the table,) int32, in tokens
    document: MappedArray  # (rows of the table,) int64, the number of the row in ``documents``
    times: MappedArray | None = None  # (rows of the table,) uint8; None: all rows once
    copy: np.ndarray | None = None  # (G,) uint8
    stored_tokens: np.ndarray | None = None  # (G,) int32, of all rows of each row group
    digest: str = ""  # identifies the selection and the prefixes
    prefixes: Prefixes | None = None

    def selected(self, number: int) -> np.ndarray:
        """Return which rows of a row group are read, (rows,) bool."""
        rows = self._slice(number)
        if self.times is None or self.copy is None:
            return np.ones(rows.stop - rows.start, bool)
        selected: np.ndarray = self.times.values[rows] > self.copy[number]
        return selected

    def lengths_of(self, number: int) -> np.ndarray:
        """Return the tokens of each row of a row group, also of those that are not read, (rows,) int32."""
        lengths: np.ndarray = self.lengths.values[self._slice(number)]
        return lengths

    def documents_of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the documents with tokens of a row group: their numbers, and their ends with prefixes."""
        lengths = self.lengths_of(number)
        rows = np.flatnonzero(self.selected(number) & (lengths > 0))
        documents = self.document.values[rows + int(self.first[number])]
        sizes = lengths[rows] + self.prefix_lengths(documents)
        return documents, np.cumsum(sizes, dtype=np.int64)

    def prefix_lengths(self, documents: np.ndarray) -> np.ndarray:
        """Return the tokens of the prefix of each of some documents, (n,) int64."""
        if self.prefixes is None:
            return np.zeros(len(documents), np.int64)
        return self.prefixes.lengths(documents)

    def spans(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and ends of the tokens of a row group that are read, as ranges that do not touch.

        Both are (n,) int64, and n is at least 1.
        """
        lengths = self.lengths_of(number)
        stops = np.cumsum(lengths, dtype=np.int64)
        rows = np.flatnonzero(self.selected(number) & (lengths > 0))
        starts, stops = (stops - lengths)[rows], stops[rows]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = starts[1:] != stops[:-1]
        is_last = np.roll(is_first, -1)
        return starts[is_first], stops[is_last]

    def _slice(self, number: int) -> slice:
        first = int(self.first[number])
        return slice(first, first + int(self.count[number]))
