"""`Place`: which part of each step this process reads, as its ranks, DataLoader and accelerate say now."""

import os
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any

from torch.utils.data import get_worker_info

from etl.loader.prepared_loaders import (
    Collation,
    Prepared,
    find_collation,
    find_prepared,
    num_processes,
)
from etl.loader.ranks import Rank, Shard, process_rank


@dataclass(frozen=True)
class Parent:
    """The place of the process that has spawned this DataLoader worker."""

    rank: Rank  # among the processes that divide the samples
    process_rank: int  # among all processes
    prepared: Prepared | None  # how accelerate's loader takes the samples
    collation: Collation  # how a DataLoader takes single samples
    child: int = 0  # the process that was spawned

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields, child=os.getpid())


@dataclass(frozen=True)
class Place:
    """The place of this process among the processes that divide the samples.

    A spawned DataLoader worker knows it from its parent: it is in no process group, and has no loader.
    """

    shard: Shard
    _parent: Parent | None = None

    @property
    def rank(self) -> Rank:
        """The rank of this process, and the world size, as they are now."""
        parent = self._known_by_parent()
        return self.shard.resolve() if parent is None else parent.rank

    @property
    def process_rank(self) -> int:
        """The rank of this process among all, whether they divide the samples or not."""
        parent = self._known_by_parent()
        return process_rank() if parent is None else parent.process_rank

    @property
    def is_divided_by_accelerate(self) -> bool:
        """Whether accelerate divides the samples of a loader that it has prepared."""
        return num_processes() > 1 and not self.shard.is_explicit

    def collation(self) -> Collation:
        """Return how the DataLoader that reads single samples collates them."""
        parent = self._known_by_parent()
        return find_collation() if parent is None else parent.collation

    def prepared_for(self, loaded: object) -> Prepared | None:
        """Return how the loader that accelerate has prepared takes what is loaded, if it has."""
        parent = self._known_by_parent()
        return find_prepared(loaded) if parent is None else parent.prepared

    def of_copy(self, dataset: object) -> "Place":
        """Return the place of a copy of a dataset, in a worker that is being spawned or in this process."""
        if get_spawning_popen() is None:
            return Place(self.shard)
        parent = Parent(self.rank, process_rank(), find_prepared(dataset), find_collation())
        return Place(self.shard, parent)

    def _known_by_parent(self) -> Parent | None:
        """Return what the parent of this spawned worker knew; None in other processes."""
        is_child = self._parent is not None and self._parent.child == os.getpid()
        return self._parent if is_child and get_worker_info() is not None else None
