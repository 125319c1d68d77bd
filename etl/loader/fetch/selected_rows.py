"""Which rows of the row groups of a table are read: all but the struck ones, or as often as a view says.

The rows of a table are numbered by file (sorted by path) and in the file. Arrays by row are files that are
mapped into memory, so that all processes of a machine share them.
"""

from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class StruckRows:
    """The rows of a table that its deletion vectors strike; all others are read once in an epoch."""

    first: np.ndarray  # (G,) int64, the number of the first row of each row group of the index
    count: np.ndarray  # (G,) int32
    numbers: np.ndarray  # (S,) int64, of all struck rows of the table, ascending
    starts: np.ndarray  # (S,) int32, the first token of each in its row group
    stops: np.ndarray  # (S,) int32
    stored_tokens: np.ndarray  # (G,) int32, of all rows of each row group
    digest: str  # identifies the struck rows

    def take(self, groups: np.ndarray) -> "StruckRows":
        """Return the same rows for an index of some of the row groups."""
        first, count, tokens = self.first[groups], self.count[groups], self.stored_tokens[groups]
        return replace(self, first=first, count=count, stored_tokens=tokens)

    def struck_counts(self) -> np.ndarray:
        """Return the number of struck rows of each row group, (G,) int64."""
        first, stop = np.searchsorted(self.numbers, (self.first, self.first + self.count))
        counts: np.ndarray = stop - first
        return counts

    def is_whole(self, number: int) -> bool:
        """Return whether all rows of a row group are read."""
        struck = self._slice(number)
        return int(struck.start) == int(struck.stop)

    def selected(self, number: int) -> np.ndarray:
        """Return which rows of a row group are read, (rows,) bool."""
        selected = np.ones(int(self.count[number]), bool)
        selected[self.numbers[self._slice(number)] - self.first[number]] = False
        return selected

    def spans(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and ends of the tokens of a row group that are read, as ``TableRows`` does."""
        struck = self._slice(number)
        starts, stops = self.starts[struck], self.stops[struck]
        has_tokens = starts < stops
        total = self.stored_tokens[number]
        firsts = np.append(0, stops[has_tokens]).astype(np.int64)
        lasts = np.append(starts[has_tokens], total).astype(np.int64)
        is_read = firsts < lasts
        return firsts[is_read], lasts[is_read]

    def _slice(self, number: int) -> slice:
        first = int(self.first[number])
        bounds = np.searchsorted(self.numbers, (first, first + int(self.count[number])))
        return slice(*bounds.tolist())


def stored_offset(spans: tuple[np.ndarray, np.ndarray], token: int) -> tuple[int, int]:
    """Return the span that has a token of those that are read, and its place among all of the row group.

    >>> stored_offset((np.array([10, 30]), np.array([15, 50])), 5)
    (1, 30)
    """
    starts, stops = spans
    sizes = stops - starts
    before = np.cumsum(sizes) - sizes  # the selected tokens before each span
    span = int(np.searchsorted(before, token, side="right")) - 1
    return span, int(starts[span]) + token - int(before[span])
