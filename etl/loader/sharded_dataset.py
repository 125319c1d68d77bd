"""`ShardedDataset`, the base of all datasets: ranks, workers, epochs, batches and state."""

import os
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.device import copy_ahead
from etl.loader.batches.document_boundaries import PER_BATCH, Batch, Format
from etl.loader.batches.prefetch import prefetch
from etl.loader.batches.worker_message import WorkerBatch
from etl.loader.evaluation import Evaluation
from etl.loader.order.schedule import Schedule
from etl.loader.passes import Passes, Resumed, Start, Worker
from etl.loader.prepared_loaders import Prepared, count_samples, find_prepared, num_processes
from etl.loader.ranks import Rank, Shard
from etl.loader.state import STATE_FORMAT, State, check_state, find_state
from etl.loader.steps import Steps
from etl.loader.version_lease import VersionLease

_ROWS_AT_ONCE = 8  # samples that are read together if they are returned one by one
_MANY_SAMPLES = 1 << 19  # a billion tokens in windows of 2,048; smaller tables are read quickly
_BATCHES_HINT = "iterate over dataset.batches(...), without Accelerator.prepare"


class Reader(Protocol):
    """A reader of an epoch's batches."""

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as tensors with one row each."""


class ShardedDataset(IterableDataset[Batch]):
    """Samples in a reproducible order, distributed over ranks and DataLoader workers, resumable."""

    format: Format
    """The tensors of the batches."""

    columns: Sequence[str] = ()
    """The columns of the documents that come with the batches."""

    seq_lens: Schedule[int]
    """The lengths of the windows."""

    def __init__(self, *, num_samples: int, identity: State, shard: Shard) -> None:
        self._num_samples = num_samples
        self.shard = shard
        """Which processes divide the samples."""
        self.waited = 0.0
        """The seconds that this process has waited for batches."""
        self.identity = identity
        """``plan``, the fingerprint of the order, and the values that it covers."""
        self._passes = Passes()
        self._consumed = 0  # position after the batch returned last in this process
        self._pass: tuple[Start, Steps] | None = None  # the newest one that this process reads
        self._worker_steps = 0  # returned in it by this worker
        self._resumed: State | None = None  # in a worker: its state from a StatefulDataLoader
        self._loaded_epoch: int | None = None  # until the first pass after a state was loaded
        self._reads_ahead = False  # see ``Prepared``
        self._leases: list[VersionLease] = []
        self._pickled: tuple[int, Rank, Prepared | None] | None = None

    @property
    @abstractmethod
    def where(self) -> str:
        """The location that errors name: the URL of the table."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """The number of lanes: sample g is in lane g % lanes, and few ranks should read the same one."""

    @abstractmethod
    def tables(self) -> Sequence[tuple[str, int]]:
        """Return the URL and the version of each table that is read."""

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the dataset reads besides the tables."""
        return ()

    @abstractmethod
    def reader(self, epoch: int, *, world_size: int = 1) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches on one of some ranks."""

    @property
    def num_samples(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return self.samples_of(self.epoch)

    def samples_of(self, epoch: int) -> int:  # noqa: ARG002 - most datasets have equal epochs
        """Return the number of samples of an epoch, over all ranks."""
        return self._num_samples

    def samples_before(self, epoch: int) -> int:
        """Return the number of samples of all epochs before one, over all ranks."""
        return epoch * self._num_samples

    def find_epochs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        return np.divmod(numbers, self._num_samples)

    def lanes_of(self, epoch: int) -> int:  # noqa: ARG002 - as in samples_of
        """Return the number of lanes of an epoch."""
        return self.lanes

    @property
    def rank(self) -> int:
        """The rank of this process among those that divide the samples, as it is now."""
        return self._resolve().rank

    @property
    def world_size(self) -> int:
        """The number of processes that divide the samples, as it is now."""
        return self._resolve().world_size

    @property
    def epoch(self) -> int:
        """The epoch of the newest pass, or of the first one."""
        return self._passes.position[0]

    @property
    def dropped_samples(self) -> int:
        """The samples at the end of an epoch that no rank gets, so that all ranks take equal steps."""
        return self.num_samples % self.world_size

    def __len__(self) -> int:
        """Return the number of samples of this rank in an epoch; of all ranks if accelerate divides them."""
        if num_processes() > 1 and not self.shard.is_explicit:
            return count_samples(self.num_samples)
        return self.num_samples // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the samples of this rank, each a dictionary of tensors without a batch dimension."""
        prepared = self._prepared(self)
        if prepared is not None:
            return self._prepared_samples(prepared)
        if num_processes() > 1 and not self.shard.is_explicit:
            raise LoaderError(
                "accelerate is in use, but it has not prepared the loader that reads these samples",
                where=self.where,
                hint=f"pass the loader to Accelerator.prepare, or {_BATCHES_HINT}",
            )
        return self.iterate(self.plan_steps(1, drop_last=False), as_rows=True)

    def batches(
        self,
        batch_size: int,
        *,
        drop_last: bool = True,
        prefetch: int = 0,
        device: str | torch.device | None = None,
    ) -> "Batches":
        """Return the samples of this rank as an iterable of batches; see ``Batches``.

        Ranks take equal steps, so even ``drop_last=False`` leaves out up to one sample less than there are
        ranks: to evaluate on all samples, use ``evaluation``.

        Raises LoaderError if the batch size is not positive or ``prefetch`` is negative.
        """
        return Batches(self, batch_size, drop_last=drop_last, prefetch=prefetch, device=device)

    def evaluation(
        self,
        batch_size: int,
        *,
        prefetch: int = 0,
        device: str | torch.device | None = None,
    ) -> Evaluation:
        """Return each window once, in the same order every time, on any number of ranks.

        See ``Evaluation``, also for what it raises.
        """
        return Evaluation(self, batch_size, prefetch=prefetch, device=device)

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, or do nothing while that epoch is being read.

        Not needed to advance: the pass after a complete one reads the next epoch. Raises LoaderError if a
        state of a later epoch was just loaded.
        """
        if epoch < 0:
            raise LoaderError(f"epoch must be at least 0, not {epoch}")
        if self._loaded_epoch is not None and epoch < self._loaded_epoch:
            raise LoaderError(
                f"the state that was loaded is in epoch {self._loaded_epoch}, "
                f"but set_epoch({epoch}) would begin an earlier one",
                where=self.where,
                hint=f"continue with set_epoch({self._loaded_epoch}); a loader that accelerate prepared "
                "counts epochs itself, from 0: call its set_epoch too",
            )
        if epoch == self.epoch and not self._passes.has_ended:
            self._passes.keep_epoch()
        else:
            self._move(epoch, 0, is_set=True)

    def state_dict(self, *, consumed: int | None = None) -> State:
        """Return the position in this epoch: a few integers, equal on all ranks after the same step.

        ``consumed`` is the number of samples of the epoch that all ranks together have received. In this
        process the dataset counts them, up to the batch returned last. The workers of a plain DataLoader run
        ahead of the training loop, and so do loaders that accelerate has prepared: pass ``steps * batch_size
        * world_size``, or use torchdata's StatefulDataLoader. Raises LoaderError if it is missing then.
        """
        if get_worker_info() is not None:
            return self._worker_state()
        if consumed is None:
            if self._passes.is_read_by_workers or self._reads_ahead:
                raise LoaderError(
                    "the loader reads ahead, so the dataset cannot tell which samples were received",
                    where=self.where,
                    hint="pass consumed=steps * batch_size * world_size, or save the state_dict() of a "
                    "StatefulDataLoader",
                )
            consumed = self._consumed
        return self._state(self.epoch, consumed)

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, at any world size, batch size and number of workers.

        The state may be that of a StatefulDataLoader, or a checkpoint that contains it. Call this before
        iterating a DataLoader. Raises LoaderError if the state belongs to another order of samples.
        """
        if get_worker_info() is not None:
            # In a worker of a StatefulDataLoader, which gives each worker its own state.
            check_state(state, self._state(0, 0), where=self.where)
            self._resumed = state
            return
        state = find_state(state)
        check_state(state, self._state(0, 0), where=self.where)
        self._loaded_epoch = int(state["epoch"])
        self._move(self._loaded_epoch, int(state["consumed"]))

    def plan_steps(self, batch_size: int, *, drop_last: bool) -> Steps:
        """Return how the samples become steps of all ranks, for the rank that this process has now."""
        return Steps(
            batch_size=batch_size, rank=self._resolve(), lanes=self.lanes, drop_last=drop_last
        )

    def step_samples(self, step: int, batch_size: int) -> list[int]:
        """Return the samples of this rank's batch at a step of an epoch, counted from 0, for ``locate``.

        Steps are counted from the beginning of the epoch: after resuming with another batch size or number
        of ranks, the steps of this one would have been others.
        """
        steps = self.plan_steps(batch_size, drop_last=False)
        end = min((step + 1) * steps.stride, self.num_samples)
        last = end - (end - step * steps.stride) % steps.rank.world_size
        return list(steps.samples(range(step * steps.stride, last)))

    def steps(self, steps: Steps, *, as_rows: bool = False) -> Generator[tuple[int, bool, Batch]]:
        """Return the batches of a pass, each with the position after it, and whether it is the last.

        A DataLoader worker of W gets every W-th. If the steps have one sample, ``as_rows`` returns the rows
        alone, without a batch dimension.
        """
        worker = Worker.current()
        start = self._passes.begin(
            worker,
            lambda epoch, first: steps.count(self.samples_of(epoch) - first),
            self._take_resumed(steps),
        )
        # Another worker may have begun the epoch before this one planned its steps.
        steps = replace(steps, lanes=self.lanes_of(start.epoch))
        num_samples = self.samples_of(start.epoch)
        if not steps.count(num_samples):
            raise LoaderError(
                f"an epoch has {num_samples:,} samples, fewer than the {steps.stride:,} of one step "
                f"of {steps.batch_size:,} on {steps.rank.world_size:,} ranks",
                where=self.where,
                hint="use a smaller batch size, shorter windows, or a larger table",
            )
        self._pass, self._worker_steps, self._loaded_epoch = (start, steps), start.steps, None
        self._consumed = start.first_sample
        if worker.id == 0 and self._passes.rank == 0:
            self._warn_of_few_lanes(steps.rank.world_size)
            self._protect_versions()
        remaining = num_samples - start.first_sample
        numbers = range(start.turn, steps.count(remaining), worker.count)[start.steps :]
        if not numbers:
            self._passes.end(worker, start.number)
        return self._read_steps(start, steps, numbers, as_rows=as_rows)

    def _read_steps(
        self, start: Start, steps: Steps, numbers: range, *, as_rows: bool
    ) -> Generator[tuple[int, bool, Batch]]:
        """Yield the batches of some steps of a pass, or their rows, as ``steps`` returns them."""
        end = start.first_sample + steps.end(self.samples_of(start.epoch) - start.first_sample)
        is_separable = not (self.format.cu_seqlens or self.columns)
        together = _ROWS_AT_ONCE if as_rows and is_separable else 1
        with self.reader(start.epoch, world_size=steps.rank.world_size) as reader:
            for done in range(0, len(numbers), together):
                some = numbers[done : done + together]
                firsts = [start.first_sample + number * steps.stride for number in some]
                ranges = [range(first, min(first + steps.stride, end)) for first in firsts]
                samples = [sample for step in ranges for sample in steps.samples(step)]
                batch = reader.batch(samples)
                if self.format.sample_numbers:
                    before = self.samples_before(start.epoch)
                    batch["sample"] = torch.tensor(samples, dtype=torch.int64) + before
                parts = _rows(batch) if as_rows else (batch,)
                for number, step, part in zip(some, ranges, parts, strict=True):
                    yield step.stop, number == numbers[-1], part
        if Worker.current().loader:  # the next pass may be that of another worker
            self._end_leases()

    def _warn_of_few_lanes(self, world_size: int) -> None:
        if world_size > self.lanes and self.num_samples >= _MANY_SAMPLES:
            times = world_size / self.lanes
            warnings.warn(
                f"{self.where}: {world_size:,} ranks share {self.lanes:,} lanes, so each byte of the table "
                f"is read {times:.1f} times or more; Shuffle(lanes={world_size}) avoids this",
                RuntimeWarning,
                stacklevel=2,
            )

    def _protect_versions(self) -> None:
        """Take leases for the versions of the tables, unless this process holds them already."""
        if any(lease.is_held for lease in self._leases):
            return
        self._leases = [VersionLease(*table) for table in self.tables()]
        weakref.finalize(self, _end, self._leases)

    def _end_leases(self) -> None:
        _end(self._leases)
        self._leases = []

    def record(self, position: int, *, is_last: bool, start: Start) -> None:
        """Record that the samples before a position have been returned, in this reader."""
        self._consumed = position
        self._worker_steps += 1
        if is_last:
            self._passes.end(Worker.current(), start.number)

    def iterate(
        self,
        steps: Steps,
        *,
        num_prefetch: int = 0,
        device: torch.device | None = None,
        as_rows: bool = False,
    ) -> Iterator[Batch]:
        """Begin a pass now, and return its batches; each is recorded when it is returned."""
        # Begin now, not at the first batch: a StatefulDataLoader saves the state in between.
        batches = self.steps(steps, as_rows=as_rows)
        assert self._pass is not None
        start, _ = self._pass
        batches = prefetch(batches, num_prefetch) if num_prefetch else batches
        return self._iterate(batches if device is None else copy_ahead(batches, device), start)

    def _iterate(
        self, batches: Generator[tuple[int, bool, Batch]], start: Start
    ) -> Iterator[Batch]:
        in_worker = get_worker_info() is not None
        with closing(batches):
            while True:
                started = perf_counter()
                item = next(batches, None)
                self.waited += perf_counter() - started
                if item is None:
                    return
                position, is_last, batch = item
                self.record(position, is_last=is_last, start=start)
                yield WorkerBatch(batch) if in_worker else batch

    def check_unprepared(self, loaded: object) -> None:
        """Raise LoaderError if accelerate distributes what already is the part of this rank."""
        prepared = self._prepared(loaded)
        if prepared is None:
            return
        self._reads_ahead = prepared.reads_ahead
        if num_processes() > 1:
            raise LoaderError(
                "each rank has its own batches already, but accelerate would distribute them again",
                where=self.where,
                hint=f"{_BATCHES_HINT}, or prepare DataLoader(dataset, batch_size=...)",
            )

    def _prepared(self, loaded: object) -> Prepared | None:
        pickled = self._from_parent()
        return find_prepared(loaded) if pickled is None else pickled[2]

    def _prepared_samples(self, prepared: Prepared) -> Iterator[Batch]:
        """Yield the samples that a prepared loader takes, empty ones in the places of other ranks."""
        if self.shard.is_explicit and num_processes() > 1:
            raise LoaderError(
                "accelerate distributes the samples of a prepared loader, but the dataset has a Shard",
                where=self.where,
                hint=f"leave out shard, or {_BATCHES_HINT}",
            )
        if self.format.cu_seqlens or self.columns:
            what = "document lengths" if self.format.cu_seqlens else "columns"
            raise LoaderError(
                f"the {what} of single rows cannot be stacked, as a prepared loader would do",
                where=self.where,
                hint=f"leave them out of Format and View, or {_BATCHES_HINT}",
            )
        self._reads_ahead = prepared.reads_ahead
        steps = Steps(
            batch_size=prepared.batch_size,
            rank=prepared.rank,
            lanes=self.lanes,
            drop_last=num_processes() > 1,
            multiple=prepared.multiple,
        )
        return _in_places(self.iterate(steps), prepared)

    def _check_sample(self, sample: int, epoch: int | None = None) -> None:
        num_samples = self.samples_of(self.epoch if epoch is None else epoch)
        if not 0 <= sample < num_samples:
            raise LoaderError(
                f"sample index {sample} is out of range: the dataset has {num_samples} samples",
                where=self.where,
            )

    def _state(self, epoch: int, consumed: int) -> State:
        return {"format": STATE_FORMAT, **self.identity, "epoch": epoch, "consumed": consumed}

    def _worker_state(self) -> State:
        """Return the state of this worker: the start of its pass, and the steps that it has returned."""
        if self._pass is None or self._reads_ahead:
            raise LoaderError("a worker has a state only while it is read by a StatefulDataLoader")
        start, steps = self._pass
        remaining = self.samples_of(start.epoch) - start.first_sample
        return {
            **self._state(start.epoch, start.first_sample),
            "worker": start.turn,
            "workers": Worker.current().count,
            "steps": self._worker_steps,
            "stride": steps.stride,
            "end": start.first_sample + steps.end(remaining),
        }

    def _take_resumed(self, steps: Steps) -> Resumed | None:
        """Return the state with which this worker resumes; only the first pass resumes."""
        state, self._resumed = self._resumed, None
        if state is None:
            return None
        if state["stride"] != steps.stride:
            raise LoaderError(
                f"the state was saved with {state['stride']} samples per step over all ranks, "
                f"but this loader has {steps.stride}",
                hint="pass the loader's state to dataset.load_state_dict, before the loader starts",
            )
        return Resumed(state["epoch"], state["consumed"], state["worker"], state["steps"])

    def _move(self, epoch: int, consumed: int, *, is_set: bool = False) -> None:
        self._passes.move(epoch, consumed, is_set=is_set)
        self._consumed = consumed

    def _resolve(self) -> Rank:
        pickled = self._from_parent()
        return self.shard.resolve() if pickled is None else pickled[1]

    def _from_parent(self) -> tuple[int, Rank, Prepared | None] | None:
        """Return what the parent of this spawned worker knew about the ranks; None in other processes."""
        if get_worker_info() is None or self._pickled is None or self._pickled[0] != os.getpid():
            return None
        return self._pickled

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields with the present rank, for a spawned worker, which is in no process group."""
        rank, prepared = self._resolve(), find_prepared(self)
        fields = {**self.__dict__, "_pickled": (0, rank, prepared), "_leases": []}
        if self.shard.mesh is not None or self.shard.process_group is not None:
            fields["shard"] = Shard(rank=rank.rank, world_size=rank.world_size)
        return fields

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        assert self._pickled is not None
        self._pickled = (os.getpid(), *self._pickled[1:])


class Batches(IterableDataset[Batch]):
    """The batches of a dataset: iterate it, or pass it to ``DataLoader(..., batch_size=None)``.

    A thread of this process prepares ``prefetch`` batches ahead, and batches are copied to ``device``, the
    next one while a GPU uses the current one; this changes neither order nor state. The state methods are
    those of the dataset, for torchdata's StatefulDataLoader.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        batch_size: int,
        *,
        drop_last: bool,
        prefetch: int,
        device: str | torch.device | None = None,
    ) -> None:
        if batch_size < 1:
            raise LoaderError(f"batch_size must be at least 1, not {batch_size}")
        if prefetch < 0:
            raise LoaderError(f"prefetch must be at least 0, not {prefetch}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.prefetch = prefetch
        self.device = None if device is None else torch.device(device)

    def __iter__(self) -> Iterator[Batch]:
        self.dataset.check_unprepared(self)
        if self.device is not None and get_worker_info() is not None:
            raise LoaderError(
                "a DataLoader worker cannot copy batches to a device",
                where=self.dataset.where,
                hint="pass prefetch=4 and device=... without a DataLoader, or leave out device",
            )
        steps = self.dataset.plan_steps(self.batch_size, drop_last=self.drop_last)
        return self.dataset.iterate(steps, num_prefetch=self.prefetch, device=self.device)

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        full, rest = divmod(self.dataset.num_samples // self.dataset.world_size, self.batch_size)
        return full + (0 if self.drop_last or not rest else 1)

    def state_dict(self) -> State:
        """Return the state of the dataset."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, as ``dataset.load_state_dict`` does."""
        self.dataset.load_state_dict(state)


def _end(leases: Sequence[VersionLease]) -> None:
    for lease in leases:
        lease.end()


def _rows(batch: Batch) -> list[Batch]:
    """Return the rows of a batch as views; a batch with values of a whole batch has one row."""
    if all(
        isinstance(values, torch.Tensor) and name not in PER_BATCH for name, values in batch.items()
    ):
        rows = zip(*(values.unbind() for values in batch.values()), strict=True)
        return [dict(zip(batch, row, strict=True)) for row in rows]
    return [{name: v if name in PER_BATCH else v[0] for name, v in batch.items()}]


def _in_places(batches: Iterator[Batch], prepared: Prepared) -> Iterator[Batch]:
    for batch in batches:
        yield from ({} for _ in range(prepared.before))
        yield from _rows(batch)
        yield from ({} for _ in range(prepared.after))
