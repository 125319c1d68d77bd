"""Request groups: neighbouring row groups, fetched from an object store in one request.

A request group is a sequence of row groups that are consecutive in one file and in every epoch, that is,
within a run (see ``order/epoch.py``), of about the size of a request. A longer run is cut into equal parts,
which avoids a small request at its end. Request groups depend only on the table and these settings, so an
epoch or rank can use what another one has put into the cache.

Sizes are estimates from the tokens of each row group and the bytes per token of its file; the exact sizes
are in the footers.
"""

from dataclasses import dataclass

import numpy as np

from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochPlan

_PART = 1 << 18  # runs cut at a time


@dataclass(frozen=True)
class RequestGroups:
    """The P request groups of a table, numbered in the order of the table."""

    index: TableIndex
    first_group: np.ndarray  # (P + 1,) int32: request group p has first_group[p]:first_group[p + 1]

    @staticmethod
    def of(index: TableIndex, plan: EpochPlan, request_bytes: int) -> "RequestGroups":
        """Cut the row groups of each run and file into equal parts of about ``request_bytes``."""
        units = np.union1d(index.first_group[:-1], plan.runs())
        ends = np.append(units[1:], len(index.group_tokens))
        units, ends = units[units < ends], ends[units < ends]
        firsts = [
            _cut(index, units[part : part + _PART], ends[part : part + _PART], request_bytes)
            for part in range(0, len(units), _PART)
        ]
        last = np.array([len(index.group_tokens)])
        return RequestGroups(index, np.concatenate([*firsts, last]).astype(np.int32))

    def size(self, groups: range) -> int:
        """Return the approximate size of consecutive row groups in bytes."""
        return int(_sizes(self.index, groups.start, groups.stop).sum())

    def containing(self, groups: np.ndarray) -> np.ndarray:
        """Return the request group of each row group, (n,) int64."""
        return np.searchsorted(self.first_group, groups, side="right") - 1

    def row_groups(self, request_group: int) -> range:
        """Return the row groups of a request group."""
        first, end = self.first_group[request_group : request_group + 2].tolist()
        return range(first, end)


def _cut(index: TableIndex, units: np.ndarray, ends: np.ndarray, request_bytes: int) -> np.ndarray:
    """Return the first row groups of the request groups of consecutive units, each a range of row groups."""
    sizes = _sizes(index, int(units[0]), int(ends[-1]))
    before = np.cumsum(sizes) - sizes
    counts = ends - units
    totals = np.add.reduceat(sizes, units - units[0])
    offsets = before - np.repeat(before[units - units[0]], counts)
    # Each row group belongs to the part that contains its middle.
    num_parts = np.repeat(np.ceil(totals / request_bytes), counts)
    parts = (offsets + sizes / 2) * num_parts // np.repeat(np.maximum(totals, 1), counts)
    parts = np.minimum(parts, num_parts - 1)  # the middle of an empty row group may be the end
    is_first = np.diff(parts, prepend=-1) != 0
    is_first[units - units[0]] = True
    first_groups: np.ndarray = np.flatnonzero(is_first) + units[0]
    return first_groups


def _sizes(index: TableIndex, start: int, stop: int) -> np.ndarray:
    """Return the approximate bytes of the row groups [start, stop), (n,) float64."""
    groups = np.arange(start, stop)
    files = np.searchsorted(index.first_group, groups, side="right") - 1
    rates = index.file_bytes[files] / np.maximum(index.file_tokens[files], 1)
    sizes: np.ndarray = index.stored_tokens[start:stop] * rates
    return sizes
