"""Which part of each step a process reads: its rank among the processes that divide the samples.

Rank and world size are those at the moment when iteration begins, not when the dataset is built: the process
group may not exist before. What another library distributes itself is not divided a second time (see
``prepared_loaders.py``).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from etl.errors import LoaderError


class Rank(NamedTuple):
    """The rank of a process, and the number of processes that divide the samples."""

    rank: int
    world_size: int


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Which processes divide the samples among them; the default fits plain data parallelism.

    Without settings, these are all processes of torch.distributed if it is initialised, else those that
    ``RANK`` and ``WORLD_SIZE`` in the environment count, as torchrun sets them, else only this one. With
    tensor, context or pipeline parallelism, several ranks need the same samples. Name one of:

    - ``mesh``: the dimensions of a DeviceMesh that divide the data, such as ``mesh["dp"]``.
    - ``process_group``: a process group that divides the data.
    - ``rank`` and ``world_size``: both numbers. If torch.distributed is initialised, its world size must be a
      multiple of ``world_size``.

    Raises LoaderError if more than one is given, or a number without the other.

    >>> Shard(rank=1, world_size=4).resolve()
    Rank(rank=1, world_size=4)
    """

    rank: int | None = None
    world_size: int | None = None
    mesh: DeviceMesh | None = None
    process_group: Any | None = None  # a ProcessGroup

    def __post_init__(self) -> None:
        numbers = (self.rank, self.world_size)
        if numbers != (None, None):
            _check(*numbers, where="rank, world_size")
        if [numbers == (None, None), self.mesh is None, self.process_group is None].count(
            False
        ) > 1:
            raise LoaderError(
                "Shard has more than one of mesh, process_group, and rank with world_size",
                hint="name the processes that divide the samples in one way",
            )

    @property
    def is_explicit(self) -> bool:
        """Whether the ranks are named, instead of all processes."""
        return self != Shard()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shard":
        return self

    def __reduce__(self) -> tuple[Callable[..., "Shard"], tuple[Any, ...]]:
        """Name a mesh or a group by numbers for a spawned worker; elsewhere, they mean nothing."""
        if self.mesh is None and self.process_group is None:
            return _numbered, (self.rank, self.world_size)
        if get_spawning_popen() is None:
            raise LoaderError(
                "a Shard with a mesh or a process group belongs to its process and cannot be pickled",
                hint="open the dataset in each process, or use open_shared(..., shard=...)",
            )
        return _numbered, self.resolve()

    def resolve(self) -> Rank:
        """Return the rank of this process and the world size, as they are now.

        Raises LoaderError if they are not valid, or contradict torch.distributed.
        """
        if self.mesh is not None:
            return _rank_in_mesh(self.mesh)
        world = _distributed_rank(self.process_group)
        if self.process_group is not None and (world is None or world.rank < 0):
            raise LoaderError(
                "this process is not in the process group of Shard",
                hint="pass the group of each process, after init_process_group",
            )
        if self.rank is not None and self.world_size is not None:
            return _compare(Rank(self.rank, self.world_size), world)
        if world is not None:
            return world
        rank, world_size = _variable("RANK"), _variable("WORLD_SIZE")
        if rank is None and world_size is None:
            return Rank(0, 1)
        return _check(rank, world_size, where="RANK, WORLD_SIZE in the environment")


def _numbered(rank: int | None, world_size: int | None) -> Shard:
    return Shard(rank=rank, world_size=world_size)


def process_rank() -> int:
    """Return the rank of this process among all, whether they divide the samples or not."""
    world = _distributed_rank(None)
    return (_variable("RANK") or 0) if world is None else world.rank


def _distributed_rank(group: Any | None) -> Rank | None:
    if not (dist.is_available() and dist.is_initialized()):
        return None
    return Rank(dist.get_rank(group), dist.get_world_size(group))


def _rank_in_mesh(mesh: DeviceMesh) -> Rank:
    """Return the position in a mesh of one or more dimensions, counted along the last one first."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise LoaderError("this process is not in the mesh of Shard", hint="pass mesh[...] of it")
    rank = 0
    for index, size in zip(coordinate, mesh.mesh.shape, strict=True):
        rank = rank * size + index
    return Rank(rank, mesh.size())


def _compare(given: Rank, world: Rank | None) -> Rank:
    """Return the given rank; raises LoaderError if torch.distributed contradicts it."""
    if world is None or given == world:
        return given
    if world.world_size % given.world_size or world.world_size == given.world_size:
        raise LoaderError(
            f"rank {given.rank} of {given.world_size} does not fit torch.distributed, "
            f"where this process is rank {world.rank} of {world.world_size}",
            where="Shard",
            hint="leave out rank and world_size, or pass mesh=... for the ranks that divide the data",
        )
    return given


def _check(rank: int | None, world_size: int | None, *, where: str) -> Rank:
    if rank is None or world_size is None or not 0 <= rank < world_size:
        raise LoaderError(
            f"rank {rank} is not valid for world size {world_size}",
            where=where,
            hint="set both, with 0 <= rank < world_size",
        )
    return Rank(rank, world_size)


def _variable(name: str) -> int | None:
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        return int(value)
    except ValueError as error:
        raise LoaderError(f"{name}={value!r} is not an integer", where="the environment") from error
