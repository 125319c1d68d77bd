"""The byte ranges that a lane requests from an object store, in the order in which it reads them.

A unit is a sequence of row groups that are consecutive in one file and in every epoch, that is, within a run
(see ``order/epoch.py``). It is cut into equal parts of at most ``part_bytes``, wherever that is in a page.
The cuts depend only on the table and these settings, so an epoch or rank can use what another one has put
into the cache; only the parts at the ends of a lane are shorter.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from etl.loader.fetch.table_index import TableIndex

# Pages compress differently: without marks, the end of a lane in a row group is an estimate.
_SLACK_BYTES = 1 << 16


class RequestPart(NamedTuple):
    """A byte range of a file, to be fetched in one request."""

    file: int
    start: int
    stop: int
    end: int  # the tokens of the lane up to about the end of the part


class RequestParts:
    """The parts of the row groups of a lane.

    ``runs`` are the first row groups of all runs, and the end of the last run; ``groups`` (n,) int32 are the
    row groups of the lane in its order. The lane has the tokens [``first``, ``last``) of their tokens.
    """

    __slots__ = ("_ends", "_files", "_first", "_groups", "_index", "_last", "_part_bytes", "_units")

    def __init__(
        self,
        index: TableIndex,
        runs: np.ndarray,
        groups: np.ndarray,
        *,
        first: int,
        last: int,
        part_bytes: int,
    ) -> None:
        self._index = index
        self._groups = groups
        self._part_bytes = part_bytes
        tokens = index.group_tokens[groups].astype(np.int64)
        self._ends = np.cumsum(tokens)
        self._first, self._last = first, last
        files = np.searchsorted(index.first_group, groups, side="right") - 1
        run = np.searchsorted(runs, groups, side="right") - 1
        # (n, 2): the first row group of the unit of each, and the one after the last.
        self._units = np.stack(
            [
                np.maximum(runs[run], index.first_group[files]),
                np.minimum(runs[run + 1], index.first_group[files + 1]),
            ],
            axis=1,
        )
        self._files = files

    def place(self, group: int) -> int:
        """Return the index of a row group in the lane."""
        return int(np.flatnonzero(self._groups == group)[0])

    def parts(self, group: int, start: int = 0) -> Iterator[RequestPart]:
        """Yield the parts of the lane from byte ``start`` of the file of a row group on."""
        place = self.place(group)
        while place < len(self._groups):
            stop = place + 1
            while stop < len(self._groups) and self._continues(stop):
                stop += 1
            yield from self._parts_of(place, stop, start)
            place, start = stop, 0

    def _continues(self, place: int) -> bool:
        """Return whether a row group is of the same unit as the one before it, and later in it."""
        same = self._units[place, 0] == self._units[place - 1, 0]
        return bool(same and self._groups[place] > self._groups[place - 1])

    def _parts_of(self, place: int, stop: int, start: int) -> Iterator[RequestPart]:
        """Yield the parts of the row groups [place, stop) of the lane, which are in one unit."""
        unit_start, unit_stop = self._unit_bytes(place)
        if unit_start == unit_stop:
            return
        first, last = self._needed_start(place), self._needed_stop(stop - 1)
        size = unit_stop - unit_start
        count = -(-size // self._part_bytes)
        before = int(self._ends[place - 1]) if place else 0
        tokens_per_byte = (int(self._ends[stop - 1]) - before) / max(last - first, 1)
        for number in range(count):  # without a list of the cuts: each lane holds this generator
            part_start = max(unit_start + size * number // count, first)
            part_stop = min(unit_start + size * (number + 1) // count, last)
            if part_start < part_stop and part_stop > start:
                position = before + int((part_stop - first) * tokens_per_byte) - self._first
                yield RequestPart(int(self._files[place]), part_start, part_stop, position)

    def _unit_bytes(self, place: int) -> tuple[int, int]:
        """Return the bytes of the unit of a row group; none if it must be read with pyarrow."""
        unit = np.arange(*self._units[place].tolist())
        unit = unit[self._index.group_tokens[unit] > 0]
        if (self._index.chunks["tokens"]["codec"][unit] < 0).any():
            return 0, 0
        return self._bytes(int(unit[0]))[0], self._bytes(int(unit[-1]))[1]

    def _bytes(self, group: int) -> tuple[int, int]:
        """Return the bytes of the columns of a row group in its file."""
        chunks = self._index.chunks[group]
        columns = [chunks[name] for name in ("tokens", "num_tokens") if chunks[name]["codec"] >= 0]
        starts = [int(column["start"]) for column in columns]
        return min(starts), max(int(column["start"]) + int(column["size"]) for column in columns)

    def _needed_start(self, place: int) -> int:
        """Return where the lane begins in the bytes of a row group, or before."""
        group = int(self._groups[place])
        mark = self._mark(group, self._first) if place == 0 else None
        return self._bytes(group)[0] if mark is None else mark[0]

    def _mark(self, group: int, token: int) -> tuple[int, int | None] | None:
        """Return the offset of the last marked page before a token of a row group, and of the next one."""
        marks = self._index.page_marks(group)
        if marks is None:
            return None
        number = int(np.searchsorted(marks[0], token, side="right"))
        following = int(marks[1, number]) if number < marks.shape[1] else None
        return int(marks[1, number - 1]), following

    def _needed_stop(self, place: int) -> int:
        """Return about where the lane ends in the bytes of a row group."""
        group = int(self._groups[place])
        start, stop = self._bytes(group)
        unneeded = int(self._ends[place]) - self._last
        if unneeded <= 0:
            return stop
        mark = self._mark(group, int(self._index.group_tokens[group]) - unneeded - 1)
        if mark is not None:
            return mark[1] or stop
        share = 1 - unneeded / int(self._index.group_tokens[group])
        return min(start + int((stop - start) * share) + _SLACK_BYTES, stop)
