"""What is fetched from an object store at once: row groups that lie together and are wanted together.

A parcel is row groups of one file that follow each other there and in every epoch, which is so within a run
(see ``plan.py``), up to about as many bytes as a request should have. Parcels depend on the table and these
settings alone: what one epoch or rank has put into the cache, another finds.

Sizes are estimates, each row group by its tokens and the bytes per token of its file; footers tell exactly.
"""

from dataclasses import dataclass

import numpy as np

from etl.loader.index import Index
from etl.loader.plan import Plan


@dataclass(frozen=True)
class Parcels:
    """The parcels of a table; P of them, numbered in the table's order."""

    first_group: (
        np.ndarray
    )  # (P + 1,) int64: parcel p is row groups first_group[p]:first_group[p + 1]
    num_bytes: np.ndarray  # (P,) int64, estimated

    @staticmethod
    def of(index: Index, plan: Plan, request_bytes: int) -> "Parcels":
        """Cut the row groups of a table."""
        tokens = index.group_tokens.astype(np.int64)
        files = np.repeat(np.arange(len(index.file_tokens)), np.diff(index.first_group))
        rates = index.file_bytes / np.maximum(index.file_tokens, 1)
        sizes = np.ceil(tokens * rates[files]).astype(np.int64)
        ends = np.cumsum(sizes)
        parts = (
            ends - sizes
        ) // request_bytes  # of the whole table: a file may begin in one's middle
        is_first = np.ones(len(tokens), bool)
        for kind in (files, plan.runs, parts):
            is_first[1:] &= kind[1:] == kind[:-1]
        is_first[1:] = ~is_first[1:]
        first_group = np.append(np.flatnonzero(is_first), len(tokens))
        return Parcels(first_group, np.diff(np.append(0, ends)[first_group]))

    def holding(self, groups: np.ndarray) -> np.ndarray:
        """The parcels of row groups, each named once where it comes first in a row: (n,) int64."""
        found = np.searchsorted(self.first_group, groups, side="right") - 1
        kept: np.ndarray = found[np.diff(found, prepend=-1) != 0]
        return kept

    def groups(self, parcel: int) -> range:
        """The row groups of a parcel."""
        first, end = self.first_group[parcel : parcel + 2].tolist()
        return range(first, end)
