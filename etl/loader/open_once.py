"""Open a dataset on rank 0 and send it to the other ranks.

Opening reads the log and the footer of every file. In an object store these are as many requests as the table
has files, on each machine that has not kept them; 128 machines would send them 128 times. The index takes 8
bytes per row group.

A view reads files of a local cache. Ranks on other machines get them from rank 0, too.
"""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from etl.errors import LoaderError, TokenlakeError
from etl.loader.ranks import Shard
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.views.shared_folders import share_folders

_Dataset = TypeVar("_Dataset", bound=ShardedDataset)


def open_shared(open_dataset: Callable[[], _Dataset], *, shard: Shard | None = None) -> _Dataset:
    """Return the dataset that ``open_dataset`` opens, on all ranks; only rank 0 calls it.

    All ranks of torch.distributed must call this function, after ``init_process_group``. Without a process
    group, it just opens the dataset. Each rank passes its own ``shard``, such as ``Shard(mesh=mesh["dp"])``,
    if not all ranks divide the samples. Raises the error of rank 0 on all ranks, and LoaderError if
    ``open_dataset`` names a Shard, which would be the Shard of rank 0.

    >>> open_shared(lambda: TokenDataset(lake, seq_len=2048))  # doctest: +SKIP
    """
    if not (dist.is_available() and dist.is_initialized()):
        dataset = open_dataset()
    elif dist.get_rank() == 0:
        try:
            dataset = _open_undivided(open_dataset)
        except TokenlakeError as error:
            dist.broadcast_object_list([None, (type(error), error.what, error.where, error.hint)])
            raise
        dist.broadcast_object_list([pickle.dumps(dataset), None])
        share_folders(dataset.cached_folders())
    else:
        dataset = _receive()
    return dataset if shard is None else dataset.with_shard(shard)


def _open_undivided(open_dataset: Callable[[], _Dataset]) -> _Dataset:
    dataset = open_dataset()
    if dataset.place.shard.is_explicit:
        raise LoaderError(
            "the dataset that rank 0 opens for all ranks has a Shard, which is that of rank 0",
            where=dataset.where,
            hint="pass it to open_shared instead: open_shared(..., shard=Shard(...))",
        )
    return dataset


def _receive() -> Any:
    """Return the dataset that rank 0 has opened, or raise its error."""
    message: list[Any] = [None, None]
    dist.broadcast_object_list(message)
    content, failure = message
    if failure is not None:
        kind, what, where, hint = failure
        raise kind(what, where=where, hint=hint)
    received: ShardedDataset = pickle.loads(content)  # noqa: S301 - it comes from rank 0 of this job
    share_folders(received.cached_folders())
    return received
