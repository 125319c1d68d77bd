"""`ShardedDataset`, the base of all datasets: ranks, workers, epochs, batches and state."""

import os
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from mmap import mmap
from time import perf_counter
from typing import Any, Protocol

import torch
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.prefetch import prefetch
from etl.loader.batches.worker_message import WorkerBatch
from etl.loader.state import STATE_FORMAT, State, check_state, find_state, worker_state

Batch = dict[str, torch.Tensor]
_PER_BATCH = ("cu_seqlens", "max_seqlen")  # tensors without a row dimension


class Reader(Protocol):
    """A reader of an epoch's batches."""

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as tensors with one row each."""


class ShardedDataset(IterableDataset[Batch]):
    """Samples in a reproducible order, distributed over ranks and DataLoader workers, resumable."""

    def __init__(self, *, num_samples: int, identity: State, rank: int, world_size: int) -> None:
        self.num_samples = num_samples
        """The number of samples of an epoch, over all ranks."""
        self.rank, self.world_size = rank, world_size
        self.waited = 0.0
        """The seconds that this process has waited for batches."""
        self.identity = identity
        """``plan``, the fingerprint of the order, and the values that it covers."""
        # Epoch and first sample, in shared memory: persistent workers must see set_epoch. Forked workers
        # share the mapping. For spawned ones torch moves it to shared memory when it is pickled, in 5 ms.
        self._start = torch.frombuffer(mmap(-1, 16), dtype=torch.int64)
        self._consumed = 0
        self._stride = 0  # samples of a step over all ranks, once iteration has begun
        self._resumed: State | None = None  # in a worker: its state from a StatefulDataLoader

    @property
    @abstractmethod
    def where(self) -> str:
        """The location that errors name: the URL of the table."""

    @abstractmethod
    def reader(self, epoch: int) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches."""

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return int(self._start[0])

    @property
    def dropped_samples(self) -> int:
        """The samples at the end of an epoch that no rank gets, so that all ranks take equal steps."""
        return self.num_samples % self.world_size

    def __len__(self) -> int:
        """Return the number of samples of this rank in an epoch."""
        return self.num_samples // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the samples of this rank, each a dictionary of tensors without a batch dimension."""
        batches = iter(self.batches(1, drop_last=False))
        return (
            {name: values if name in _PER_BATCH else values[0] for name, values in batch.items()}
            for batch in batches
        )

    def batches(self, batch_size: int, *, drop_last: bool = True, prefetch: int = 0) -> "Batches":
        """Return the samples of this rank as an iterable of batches; see ``Batches``.

        Raises LoaderError if the batch size is not positive or ``prefetch`` is negative.
        """
        return Batches(self, batch_size, drop_last=drop_last, prefetch=prefetch)

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, or do nothing if it is the current one."""
        if epoch < 0:
            raise LoaderError(f"epoch must be at least 0, not {epoch}")
        if epoch != self.epoch:
            self._start_at(epoch, 0)

    def state_dict(self, *, consumed: int | None = None) -> State:
        """Return the position in this epoch: a few integers, equal on all ranks after the same step.

        ``consumed`` is the number of samples of the epoch that all ranks together have received. In this
        process the dataset counts them, up to the batch returned last. The workers of a plain DataLoader run
        ahead of the training loop: pass ``steps * batch_size * world_size``, or use torchdata's
        StatefulDataLoader.
        """
        worker: Any = get_worker_info()
        epoch = self.epoch if self._resumed is None else self._resumed["epoch"]
        consumed = self._consumed if consumed is None else consumed
        state = {"format": STATE_FORMAT, **self.identity, "epoch": epoch, "consumed": consumed}
        if worker is None:
            return state
        return worker_state(
            state, worker=worker.id, workers=worker.num_workers, stride=self._stride
        )

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, at any world size, batch size and number of workers.

        The state may be that of a StatefulDataLoader, or a checkpoint that contains it. Call this before
        iterating a DataLoader. Raises LoaderError if the state belongs to another order of samples.
        """
        if get_worker_info() is not None:
            # In a worker of a StatefulDataLoader, which gives each worker its own state.
            check_state(state, self.state_dict(), where=self.where)
            self._resumed = state
            return
        state = find_state(state)
        check_state(state, self.state_dict(), where=self.where)
        self._start_at(int(state["epoch"]), int(state["consumed"]))

    def steps(self, batch_size: int, *, drop_last: bool) -> Generator[tuple[int, Batch]]:
        """Return the batches, each with the position after it; a DataLoader worker of W gets every W-th."""
        worker: Any = get_worker_info()
        first, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._stride = batch_size * self.world_size
        epoch, first_sample = self._start.tolist()
        if self._resumed is not None:
            epoch, first_sample = self._resumed_at(first)
        self.record_consumed(first_sample + first * self._stride)
        count = max(self.num_samples - first_sample, 0) // self.world_size
        steps = count // batch_size if drop_last else -(-count // batch_size)

        def read() -> Generator[tuple[int, Batch]]:
            with self.reader(epoch) as reader:
                for step in range(first, steps, workers):
                    start, stop = step * batch_size, min((step + 1) * batch_size, count)
                    samples = range(
                        first_sample + start * self.world_size,
                        first_sample + stop * self.world_size,
                    )
                    batch = reader.batch(samples[self.rank :: self.world_size])
                    next_sample = first_sample + (step + workers) * self._stride  # of this worker
                    yield samples.stop if worker is None else next_sample, batch

        return read()

    def record_consumed(self, position: int) -> None:
        """Record that the samples before a position have been returned."""
        self._consumed = position

    def _check_sample(self, sample: int) -> None:
        if not 0 <= sample < self.num_samples:
            raise LoaderError(
                f"sample index {sample} is out of range: the dataset has {self.num_samples} samples",
                where=self.where,
            )

    def _resumed_at(self, worker: int) -> tuple[int, int]:
        """Return the epoch and first sample of all workers, computed from the state of this worker."""
        assert self._resumed is not None
        stride = self._resumed["stride"]
        if stride != self._stride:
            raise LoaderError(
                f"the state was saved with {stride} samples per step over all ranks, "
                f"but this loader has {self._stride}",
                hint="pass the loader's state to dataset.load_state_dict, before the loader starts",
            )
        return int(self._resumed["epoch"]), int(self._resumed["consumed"]) - worker * stride

    def _start_at(self, epoch: int, consumed: int) -> None:
        self._start[0], self._start[1] = epoch, consumed
        self._consumed = consumed


class Batches(IterableDataset[Batch]):
    """The batches of a dataset: iterate it, or pass it to ``DataLoader(..., batch_size=None)``.

    A thread of this process prepares ``prefetch`` batches ahead; this changes neither order nor state. The
    state methods are those of the dataset, for torchdata's StatefulDataLoader.
    """

    def __init__(
        self, dataset: ShardedDataset, batch_size: int, *, drop_last: bool, prefetch: int
    ) -> None:
        if batch_size < 1:
            raise LoaderError(f"batch_size must be at least 1, not {batch_size}")
        if prefetch < 0:
            raise LoaderError(f"prefetch must be at least 0, not {prefetch}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.prefetch = prefetch

    def __iter__(self) -> Iterator[Batch]:
        # Read the position now, not at the first batch: a StatefulDataLoader saves it in between.
        steps = self.dataset.steps(self.batch_size, drop_last=self.drop_last)
        return self._iterate(prefetch(steps, self.prefetch) if self.prefetch else steps)

    def _iterate(self, steps: Generator[tuple[int, Batch]]) -> Iterator[Batch]:
        """Yield the batches; the dataset records each when it is returned, not when it is prepared."""
        in_worker = get_worker_info() is not None
        with closing(steps):
            while True:
                started = perf_counter()
                step = next(steps, None)
                self.dataset.waited += perf_counter() - started
                if step is None:
                    return
                position, batch = step
                self.dataset.record_consumed(position)
                yield WorkerBatch(batch) if in_worker else batch

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (0 if self.drop_last or not rest else 1)

    def state_dict(self) -> State:
        """Return the state of the dataset."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, as ``dataset.load_state_dict`` does."""
        self.dataset.load_state_dict(state)


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
