"""What is fetched from an object store at once: row groups that lie together and are wanted together.

A parcel is row groups of one file that follow each other there and in every epoch, which is so within a run
(see ``plan.py``), up to about as many bytes as a request should have. A longer run is cut into equal parts,
so that its rest is no small request. Parcels depend on the table and these settings alone: what one epoch or
rank has put into the cache, another finds.

Sizes are estimates, each row group by its tokens and the bytes per token of its file; footers tell exactly.
"""

from dataclasses import dataclass

import numpy as np

from etl.loader.index import Index
from etl.loader.plan import Plan

_PART = 1 << 18  # runs that are cut together


@dataclass(frozen=True)
class Parcels:
    """The parcels of a table; P of them, numbered in the table's order."""

    index: Index
    first_group: np.ndarray  # (P + 1,) int32: parcel p has first_group[p]:first_group[p + 1]

    @staticmethod
    def of(index: Index, plan: Plan, request_bytes: int) -> "Parcels":
        """Cut the row groups of a table: those of a run and a file into equal parts of a request's size."""
        units = np.union1d(index.first_group[:-1], plan.runs())
        ends = np.append(units[1:], len(index.group_tokens))
        units, ends = units[units < ends], ends[units < ends]
        firsts = [
            _cut(index, units[part : part + _PART], ends[part : part + _PART], request_bytes)
            for part in range(0, len(units), _PART)
        ]
        last = np.array([len(index.group_tokens)])
        return Parcels(index, np.concatenate([*firsts, last]).astype(np.int32))

    def num_bytes(self, parcel: int) -> int:
        """About how many bytes a parcel has."""
        groups = self.groups(parcel)
        return int(_sizes(self.index, groups.start, groups.stop).sum())

    def holding(self, groups: np.ndarray) -> np.ndarray:
        """The parcel of each row group, (n,) int64."""
        return np.searchsorted(self.first_group, groups, side="right") - 1

    def groups(self, parcel: int) -> range:
        """The row groups of a parcel."""
        first, end = self.first_group[parcel : parcel + 2].tolist()
        return range(first, end)


def _cut(index: Index, units: np.ndarray, ends: np.ndarray, request_bytes: int) -> np.ndarray:
    """The first row groups of the parcels of units, which begin at row groups and follow each other."""
    sizes = _sizes(index, int(units[0]), int(ends[-1]))
    before = np.cumsum(sizes) - sizes
    counts = ends - units
    totals = np.add.reduceat(sizes, units - units[0])
    offsets = before - np.repeat(before[units - units[0]], counts)
    # The part that the middle of a row group lies in.
    wanted = np.repeat(np.ceil(totals / request_bytes), counts)
    parts = (offsets + sizes / 2) * wanted // np.repeat(np.maximum(totals, 1), counts)
    parts = np.minimum(parts, wanted - 1)  # an empty row group has its middle at the end
    is_first = np.diff(parts, prepend=-1) != 0
    is_first[units - units[0]] = True
    found: np.ndarray = np.flatnonzero(is_first) + units[0]
    return found


def _sizes(index: Index, start: int, stop: int) -> np.ndarray:
    """About the bytes of the row groups [start, stop), (n,) float64."""
    groups = np.arange(start, stop)
    files = np.searchsorted(index.first_group, groups, side="right") - 1
    rates = index.file_bytes[files] / np.maximum(index.file_tokens[files], 1)
    sizes: np.ndarray = index.group_tokens[start:stop] * rates
    return sizes
