"""Rank and world size of this process."""

import os

import torch.distributed

from etl.errors import LoaderError


def resolve_shard(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and world size, by default those of this process.

    Defaults come from torch.distributed if it is initialised, else from the environment variables ``RANK``
    and ``WORLD_SIZE``, as torchrun sets them, else they are 0 and 1.

    Raises LoaderError if only one of the two is known, or if the rank is not below the world size.

    >>> resolve_shard(1, 4)
    (1, 4)
    """
    where = "rank, world_size"
    if rank is None and world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        where = "RANK, WORLD_SIZE in the environment"
        rank, world_size = _variable("RANK"), _variable("WORLD_SIZE")
        if rank is None and world_size is None:
            return 0, 1
    if rank is None or world_size is None or not 0 <= rank < world_size:
        raise LoaderError(
            f"rank {rank} is not valid for world size {world_size}",
            where=where,
            hint="set both, with 0 <= rank < world_size",
        )
    return rank, world_size


def _variable(name: str) -> int | None:
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        return int(value)
    except ValueError as error:
        raise LoaderError(f"{name}={value!r} is not an integer", where="the environment") from error
