"""What all datasets of the loader share: ranks, DataLoader workers, epochs, the state.

Each sample is of an epoch exactly once; its place in the order depends on neither ranks, workers nor batch
size. Rank r of R takes the samples r, r + R, r + 2R ..., so that the batches of one step, over all ranks,
are the next samples of that order. What does not fill a step of R samples at the end of an epoch is left
out, and ``dropped_samples`` says how many.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from mmap import mmap
from time import perf_counter
from typing import Any, Protocol

import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.message import Message
from etl.loader.state import STATE_FORMAT, State, check_state, find_state, worker_state
from etl.loader.waiting import ahead

Batch = dict[str, torch.Tensor]

_WHOLE = ("cu_seqlens", "max_seqlen")  # of a batch, not of its rows


class Reader(Protocol):
    """Makes batches of an epoch's samples."""

    def batch(self, samples: Sequence[int]) -> Batch:
        """The samples as tensors, a row for each."""


class ShardedDataset(IterableDataset[Batch]):
    """Samples in a reproducible order, dealt to ranks and DataLoader workers, resumable anywhere."""

    def __init__(self, *, num_samples: int, identity: State, rank: int, world_size: int) -> None:
        self.num_samples = num_samples
        """Samples of an epoch, over all ranks."""
        self.rank, self.world_size = rank, world_size
        self.waited = 0.0
        """Seconds that this process has waited for batches."""
        self.identity = identity
        """``plan``, the fingerprint of the order, and what it was made from."""
        # Epoch and first sample; in shared memory, so that persistent workers see set_epoch. Forked ones
        # share the mapping; for spawned ones torch moves it when it is pickled, and not before: 5 ms.
        self._begin = torch.frombuffer(mmap(-1, 16), dtype=torch.int64)
        self._consumed = 0
        self._stride = 0  # samples of a step over all ranks, once iterating has begun
        self._resumed: State | None = None  # in a worker: the state that a StatefulDataLoader gave

    @property
    @abstractmethod
    def where(self) -> str:
        """What errors name: the URL of the table."""

    @abstractmethod
    def reader(self, epoch: int) -> AbstractContextManager[Reader]:
        """What makes batches of the samples of an epoch."""

    @property
    def epoch(self) -> int:
        """The epoch that iterating goes through."""
        return int(self._begin[0])

    @property
    def dropped_samples(self) -> int:
        """Samples at the end of a whole epoch that no rank gets, so that all take the same steps."""
        return self.num_samples % self.world_size

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch."""
        return self.num_samples // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        """The samples of this rank, each a dictionary of tensors without the batch's dimension."""
        batches = iter(self.batches(1, drop_last=False))
        return (
            {name: values if name in _WHOLE else values[0] for name, values in batch.items()}
            for batch in batches
        )

    def batches(self, batch_size: int, *, drop_last: bool = True, prefetch: int = 0) -> "Batches":
        """The samples of this rank as batches, an iterable of its own; see ``Batches``.

        Raises LoaderError if the batch size is not positive.
        """
        return Batches(self, batch_size, drop_last=drop_last, prefetch=prefetch)

    def set_epoch(self, epoch: int) -> None:
        """Go through another epoch, from its beginning; the same one again changes nothing."""
        if epoch < 0:
            raise LoaderError(f"epoch {epoch}", hint="epochs count from 0")
        if epoch != self.epoch:
            self._start_at(epoch, 0)

    def state_dict(self, *, consumed: int | None = None) -> State:
        """Where this epoch stands: a few integers, the same on all ranks after the same step.

        ``consumed`` counts the samples of the epoch that all ranks together have got. In this process
        the dataset counts them itself, up to the batch handed out last. The workers of a plain DataLoader
        go ahead of the training loop, which alone knows: give ``steps * batch_size * world_size``, or use
        torchdata's StatefulDataLoader.
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
        """Go on where a state was saved, at any world size, batch size and number of workers.

        It may be the state of a StatefulDataLoader, or a checkpoint that holds it. Call it before a
        DataLoader is iterated. Raises LoaderError if it is the state of another order of samples.
        """
        if get_worker_info() is not None:
            # In a StatefulDataLoader's worker, of the state's own number: the loader sees to that.
            check_state(state, self.state_dict(), where=self.where)
            self._resumed = state
            return
        state = find_state(state)
        check_state(state, self.state_dict(), where=self.where)
        self._start_at(int(state["epoch"]), int(state["consumed"]))

    def steps(self, batch_size: int, *, drop_last: bool) -> Generator[tuple[int, Batch]]:
        """Batches, each with the position after it; inside a DataLoader worker, of W, every W-th."""
        worker: Any = get_worker_info()
        first, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._stride = batch_size * self.world_size
        epoch, begin = self._begin.tolist()
        if self._resumed is not None:
            epoch, begin = self._resumed_at(first)
        self.reach(begin + first * self._stride)
        count = max(self.num_samples - begin, 0) // self.world_size
        steps = count // batch_size if drop_last else -(-count // batch_size)

        def read() -> Generator[tuple[int, Batch]]:
            with self.reader(epoch) as reader:
                for step in range(first, steps, workers):
                    start, stop = step * batch_size, min((step + 1) * batch_size, count)
                    samples = range(begin + start * self.world_size, begin + stop * self.world_size)
                    batch = reader.batch(samples[self.rank :: self.world_size])
                    ahead = begin + (step + workers) * self._stride  # where this worker goes on
                    yield samples.stop if worker is None else ahead, batch

        return read()

    def reach(self, position: int) -> None:
        """Note that the samples before a position have been handed out."""
        self._consumed = position

    def _resumed_at(self, worker: int) -> tuple[int, int]:
        """Epoch and first sample of the loader's workers, from the state of this one."""
        assert self._resumed is not None
        stride = self._resumed["stride"]
        if stride != self._stride:
            raise LoaderError(
                f"a step of {stride} samples over all ranks when saved, of {self._stride} here",
                hint="give the loader's state to dataset.load_state_dict, before the loader starts",
            )
        return int(self._resumed["epoch"]), int(self._resumed["consumed"]) - worker * stride

    def _start_at(self, epoch: int, consumed: int) -> None:
        self._begin[0], self._begin[1] = epoch, consumed
        self._consumed = consumed


class Batches(IterableDataset[Batch]):
    """The batches of a dataset: iterate it, or hand it to ``DataLoader(..., batch_size=None)``.

    ``prefetch`` batches are made ahead by a thread of this process; the order and the state are the same.
    It has the dataset's state, for torchdata's StatefulDataLoader.
    """

    def __init__(
        self, dataset: ShardedDataset, batch_size: int, *, drop_last: bool, prefetch: int
    ) -> None:
        if batch_size < 1:
            raise LoaderError(f"batch_size={batch_size}", hint="give 1 or more")
        if prefetch < 0:
            raise LoaderError(f"prefetch={prefetch}", hint="give 0 for no thread, or 1 or more")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.prefetch = prefetch

    def __iter__(self) -> Iterator[Batch]:
        # The position is read now, not at the first batch: a StatefulDataLoader asks in between.
        steps = self.dataset.steps(self.batch_size, drop_last=self.drop_last)
        return self._hand_out(ahead(steps, self.prefetch) if self.prefetch else steps)

    def _hand_out(self, steps: Generator[tuple[int, Batch]]) -> Iterator[Batch]:
        """The batches, each noted by the dataset when it leaves, not when it is made."""
        in_worker = get_worker_info() is not None
        with closing(steps):
            while True:
                begin = perf_counter()
                step = next(steps, None)
                self.dataset.waited += perf_counter() - begin
                if step is None:
                    return
                position, batch = step
                self.dataset.reach(position)
                yield Message(batch) if in_worker else batch

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (0 if self.drop_last or not rest else 1)

    def state_dict(self) -> State:
        """The state of the dataset."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go on where a state was saved, as ``dataset.load_state_dict`` does."""
        self.dataset.load_state_dict(state)
