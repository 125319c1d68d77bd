"""`ShardedDataset`, the base of all datasets: ranks, workers, epochs, batches and state."""

import os
import warnings
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from copy import copy
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.delivery import Delivery, check_batch_size
from etl.loader.batches.document_boundaries import Batch, Format, PositionedBatch
from etl.loader.batches.worker_message import WorkerBatch
from etl.loader.evaluation import Evaluation
from etl.loader.one_pass import Pass, Reader
from etl.loader.order.schedule import Schedule
from etl.loader.pass_starts import Passes, Planned, Resumed, Worker
from etl.loader.prepared_loaders import (
    UNPREPARED_HINT,
    Prepared,
    check_divisible,
    check_stateless,
    count_samples,
    find_collation,
    find_prepared,
    num_processes,
)
from etl.loader.ranks import Rank, Shard, process_rank
from etl.loader.spawned import Parent
from etl.loader.state import (
    STATE_FORMAT,
    State,
    check_position,
    check_state,
    find_state,
    whole_number,
)
from etl.loader.steps import Steps
from etl.loader.version_lease import HeldVersions
from etl.plural import many

_MANY_SAMPLES = 1 << 19  # a billion tokens in windows of 2,048; smaller tables are read quickly

_DIRECT = Delivery()


class ShardedDataset(IterableDataset[Batch]):
    """Samples in a reproducible order, distributed over ranks and DataLoader workers, resumable."""

    format: Format
    """The tensors of the batches."""

    columns: Sequence[str] = ()
    """The columns of the documents that come with the batches."""

    seq_lens: Schedule[int]
    """The lengths of the windows."""

    def __init__(
        self, *, num_samples: int, identity: State, shard: Shard, repeat: bool = False
    ) -> None:
        self._num_samples = num_samples
        self.shard = shard
        """Which processes divide the samples."""
        self.repeat = repeat
        """Whether a pass that was cut short begins again with the same samples."""
        self.waited = 0.0
        """The seconds that this process has waited for batches."""
        self.identity = identity
        """``plan``, the fingerprint of the order, and the values that it covers."""
        self._passes = Passes()
        self._pass: Pass | None = None  # the newest one of this reader
        self._has_failed = False  # in a worker: its pass could not begin
        self._resumed: State | None = None  # in a worker: its state from a StatefulDataLoader
        self._loaded_epoch: int | None = None  # until the first pass after a state was loaded
        self._versions = HeldVersions()
        self._parent: Parent | None = None  # of a spawned process

    @property
    @abstractmethod
    def where(self) -> str:
        """The location that errors name: the URL of the table."""

    @abstractmethod
    def tables(self) -> Sequence[tuple[str, int]]:
        """Return the URL and the version of each table that is read."""

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the dataset reads besides the tables."""
        return ()

    @abstractmethod
    def reader(self, epoch: int, *, world_size: int = 1) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches on one of some ranks."""

    @abstractmethod
    def lanes_of(self, epoch: int) -> int:
        """Return the number of lanes: sample g is in lane g % lanes, which few ranks should share."""

    def samples_of(self, epoch: int) -> int:  # noqa: ARG002 - most datasets have equal epochs
        """Return the number of samples of an epoch, over all ranks."""
        return self._num_samples

    def samples_before(self, epoch: int) -> int:
        """Return the number of samples of all epochs before one, over all ranks."""
        return epoch * self._num_samples

    def find_epochs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        return np.divmod(numbers, self._num_samples)

    @property
    def lanes(self) -> int:
        """The number of lanes of the present epoch."""
        return self.lanes_of(self.epoch)

    @property
    def num_samples(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return self.samples_of(self.epoch)

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
        return self._passes.epoch

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
        check_stateless(self.where)
        prepared = self.prepared_for(self)
        if prepared is None:
            if num_processes() > 1 and not self.shard.is_explicit:
                raise LoaderError(
                    "accelerate is in use, but it has not prepared the loader that reads these samples",
                    where=self.where,
                    hint=f"pass the loader to Accelerator.prepare, or {UNPREPARED_HINT}",
                )
            parent = self._known_by_parent()
            collation = find_collation() if parent is None else parent.collation
            steps = self.plan_steps(collation.batch_size, drop_last=collation.drop_last)
            return self.iterate(steps, as_rows=True)
        check_divisible(self.shard, self.format, self.columns, where=self.where)
        steps = prepared.steps(self.lanes)
        return prepared.in_places(self.iterate(steps, runs_ahead=True))

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

    def with_shard(self, shard: Shard) -> Self:
        """Return a copy of the dataset of which other processes divide the samples."""
        other = copy(self)
        other.shard = shard
        return other

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, or do nothing while that epoch is being read.

        Not needed to advance: the pass after a complete one reads the next epoch. Raises LoaderError if a
        state of a later epoch was just loaded.
        """
        epoch = whole_number("epoch", epoch, where=self.where)
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
            self._passes.move(epoch, 0, is_set=True)
            self._pass = None

    def state_dict(self, *, consumed: int | None = None, samples_seen: int | None = None) -> State:
        """Return the position in this epoch: a few integers, equal on all ranks after the same step.

        In this process, the dataset counts the samples up to the batch returned last. The workers of a plain
        DataLoader run ahead of the training loop, and so do loaders that accelerate has prepared. Then use
        torchdata's StatefulDataLoader, or pass the samples that all ranks together have received:
        ``consumed`` in this epoch, or ``samples_seen`` in all epochs since the first, which is ``steps *
        batch_size * world_size`` if these were the same in all steps. Raises LoaderError if a count is
        missing then, or does not fit.
        """
        if get_worker_info() is not None:
            return self._worker_state()
        if samples_seen is not None:
            if consumed is not None:
                raise LoaderError("state_dict has both consumed and samples_seen", hint="pass one")
            return self.state_after(samples_seen, self._passes.steps)
        if consumed is None:
            if self._passes.runs_ahead:
                raise LoaderError(
                    "the loader reads ahead, so the dataset cannot tell which samples were received",
                    where=self.where,
                    hint="pass samples_seen=steps * batch_size * world_size, or save the state_dict() of a "
                    "StatefulDataLoader",
                )
            consumed = self._passes.consumed
            self._check_whole_steps()
        state = self._state(self.epoch, consumed)
        check_position(state, self.samples_of, where=self.where)
        return state

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, at any world size, batch size and number of workers.

        The state may be that of a StatefulDataLoader, or a checkpoint that contains it. Call this before
        iterating a DataLoader. Raises LoaderError if the state belongs to another order of samples, or if
        its position does not exist.
        """
        in_worker = get_worker_info() is not None  # of a StatefulDataLoader: it gets its own state
        state = state if in_worker else find_state(state)
        check_state(state, self._state(0, 0), where=self.where)
        check_position(state, self.samples_of, where=self.where)
        if in_worker:
            self._resumed = state
            return
        self._loaded_epoch = int(state["epoch"])
        self._pass, loader = None, state.get("loader")
        self._passes.move(self._loaded_epoch, int(state["consumed"]), loader=loader)

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

    def iterate(
        self,
        steps: Steps,
        *,
        delivery: Delivery = _DIRECT,
        as_rows: bool = False,
        runs_ahead: bool = False,
    ) -> Iterator[Batch]:
        """Begin a pass now, and return its batches; each is recorded when it is returned.

        ``as_rows`` returns the rows of the batches one by one, without a batch dimension.
        """
        # Begin now, not at the first batch: a StatefulDataLoader saves the state in between.
        self._has_failed = False
        try:
            begun = self._begin(steps, runs_ahead=runs_ahead)
        except LoaderError as error:
            if get_worker_info() is None:
                raise
            # A persistent worker would die here: only what the first batch raises reaches the loop.
            self._has_failed = True
            return _failed(error)
        epoch = begun.start.epoch
        before = self.samples_before(epoch) if self.format.sample_numbers else None

        def open_reader() -> AbstractContextManager[Reader]:
            return self.reader(epoch, world_size=steps.rank.world_size)

        if as_rows:
            is_separable = not (self.format.cu_seqlens or self.columns)
            batches = begun.read_rows(open_reader, samples_before=before, is_separable=is_separable)
        else:
            batches = begun.read(open_reader, samples_before=before)
        return self._return(delivery.deliver(batches), begun)

    def prepared_for(self, loaded: object) -> Prepared | None:
        """Return how the loader that accelerate has prepared takes what this dataset yields, if it has."""
        parent = self._known_by_parent()
        return find_prepared(loaded) if parent is None else parent.prepared

    def _begin(self, steps: Steps, *, runs_ahead: bool) -> Pass:
        """Begin a pass in this reader."""
        self._check_whole_steps()
        worker = Worker.current()
        planned = Planned(
            steps=steps,
            samples_of=self.samples_of,
            repeats=self.repeat,
            runs_ahead=runs_ahead,
        )
        start = self._passes.begin(worker, planned, self._take_resumed(steps))
        if start is None:
            raise _abandoned(self.epoch, self.where)
        # Another worker may have begun the epoch before this one planned its steps.
        steps = replace(steps, lanes=self.lanes_of(start.epoch))
        num_samples = self.samples_of(start.epoch)
        if not steps.count(num_samples):
            raise LoaderError(
                f"an epoch has {many(num_samples, 'sample')}, fewer than the {steps.stride:,} of one step "
                f"of {steps.batch_size:,} on {steps.rank.world_size:,} ranks",
                where=self.where,
                hint="use a smaller batch size, shorter windows, or a larger table",
            )
        self._pass = Pass(start, steps, num_samples, runs_ahead=runs_ahead)
        self._loaded_epoch = None
        parent = self._known_by_parent()
        rank = process_rank() if parent is None else parent.process_rank
        if worker.id == 0 and rank == 0:
            self._warn_of_few_lanes(steps.rank.world_size)
            self._versions.hold(self.tables())
        if not self._pass.numbers:
            self._passes.end(worker, start.number)
        return self._pass

    def _return(self, batches: Generator[PositionedBatch], begun: Pass) -> Iterator[Batch]:
        """Yield the batches of a pass, and record each before it is returned."""
        worker = Worker.current()
        with closing(batches):
            while True:
                started = perf_counter()
                item = next(batches, None)
                self.waited += perf_counter() - started
                if item is None:
                    break
                begun.returned += item.is_whole
                begun.is_whole = item.is_whole
                if not worker.loader:
                    self._passes.record(item.position)
                if item.is_last:
                    self._passes.end(worker, begun.start.number)
                yield WorkerBatch(item.batch) if worker.loader else item.batch
        if worker.loader:  # the next pass may be that of another worker
            self._versions.end()

    def _warn_of_few_lanes(self, world_size: int) -> None:
        if world_size > self.lanes and self.num_samples >= _MANY_SAMPLES:
            times = world_size / self.lanes
            warnings.warn(
                f"{self.where}: {world_size:,} ranks share {self.lanes:,} lanes, so each byte of the table "
                f"is read {times:.1f} times or more; Shuffle(lanes={world_size}) avoids this",
                RuntimeWarning,
                stacklevel=2,
            )

    def _state(self, epoch: int, consumed: int) -> State:
        state = {"format": STATE_FORMAT, **self.identity, "epoch": epoch, "consumed": consumed}
        loader = self._passes.loader
        return {**state, "loader": loader} if loader and epoch == self.epoch else state

    def state_after(self, samples_seen: int, steps: Steps | None) -> State:
        """Return the state after some samples since the first epoch, each epoch in the same steps."""
        rest, epoch = whole_number("samples_seen", samples_seen, where=self.where), 0
        if rest <= self.samples_of(0):
            return self._state(0, rest)
        used = 0 if steps is None else steps.end(self.samples_of(0))
        while steps is not None and 0 < used < rest:
            rest, epoch = rest - used, epoch + 1
            used = steps.end(self.samples_of(epoch))
        if not used:
            raise LoaderError(
                f"samples_seen={samples_seen:,} is more than the {self.samples_of(0):,} samples of an epoch, "
                "and the size of the steps is unknown, which decides how many of these are in no step",
                where=self.where,
                hint="call dataset.batches(batch_size).state_dict(samples_seen=...)",
            )
        return self._state(epoch, rest)

    def _worker_state(self) -> State:
        """Return the state of this worker: the start of its pass, and the steps that it has returned."""
        if self._has_failed:  # the first batch says why
            return self._state(0, 0)
        if self._pass is None or self._pass.runs_ahead:
            raise LoaderError("a worker has a state only while it is read by a StatefulDataLoader")
        self._check_whole_steps()
        start = self._pass.start
        return {**self._state(start.epoch, start.first_sample), **self._pass.worker_state()}

    def _check_whole_steps(self) -> None:
        """Raise LoaderError if the samples that all ranks and workers have returned are not consecutive."""
        if self._pass is None or self._pass.is_whole:
            return
        if get_worker_info() is not None or self._pass.steps.rank.world_size > 1:
            raise LoaderError(
                "a dataset between this one and its DataLoader does not pass on all samples of a step, so "
                "that no state can say which ones were received",
                where=self.where,
                hint="drop rows after the loader, or use a View to select documents",
            )

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

    def _check_sample(self, sample: int, epoch: int | None = None) -> None:
        num_samples = self.samples_of(self.epoch if epoch is None else epoch)
        if not 0 <= sample < num_samples:
            raise LoaderError(
                f"sample index {sample} is out of range: the dataset has {many(num_samples, 'sample')}",
                where=self.where,
            )

    def _resolve(self) -> Rank:
        parent = self._known_by_parent()
        return self.shard.resolve() if parent is None else parent.rank

    def _known_by_parent(self) -> Parent | None:
        """Return what the parent of this spawned worker knew of the ranks; None in other processes."""
        is_child = self._parent is not None and self._parent.child == os.getpid()
        return self._parent if is_child and get_worker_info() is not None else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields of a copy, which begins where this dataset continues."""
        own: dict[str, Any] = {"_pass": None, "_versions": HeldVersions(), "_parent": None}
        if get_spawning_popen() is None:
            own["_passes"] = copy(self._passes)
        else:
            check_stateless(self.where)
            own["_parent"] = Parent(
                self._resolve(), process_rank(), find_prepared(self), find_collation()
            )
        return {**self.__dict__, **own}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        if self._parent is not None:
            self._parent = replace(self._parent, child=os.getpid())


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
        check_batch_size(batch_size)
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._delivery = Delivery.of(prefetch, device)

    def __iter__(self) -> Iterator[Batch]:
        """Begin a pass, which reads on where the last one ended."""
        check_stateless(self.dataset.where)
        prepared = self.dataset.prepared_for(self)
        if prepared is not None and num_processes() > 1:
            raise LoaderError(
                "each rank has its own batches already, but accelerate would distribute them again",
                where=self.dataset.where,
                hint=f"{UNPREPARED_HINT}, or prepare DataLoader(dataset, batch_size=...)",
            )
        self._delivery.check(self.dataset.where)
        return self.dataset.iterate(
            self._steps(), delivery=self._delivery, runs_ahead=prepared is not None
        )

    def _steps(self) -> Steps:
        return self.dataset.plan_steps(self.batch_size, drop_last=self.drop_last)

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        full, rest = divmod(self.dataset.num_samples // self.dataset.world_size, self.batch_size)
        return full + (0 if self.drop_last or not rest else 1)

    def state_dict(self, *, consumed: int | None = None, samples_seen: int | None = None) -> State:
        """Return the state of the dataset; ``samples_seen`` are those of batches like these."""
        if samples_seen is not None and consumed is None:
            return self.dataset.state_after(samples_seen, self._steps())
        return self.dataset.state_dict(consumed=consumed, samples_seen=samples_seen)

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, as ``dataset.load_state_dict`` does."""
        self.dataset.load_state_dict(state)


def _failed(error: LoaderError) -> Iterator[Batch]:
    raise error
    yield {}


def _abandoned(epoch: int, where: str) -> LoaderError:
    return LoaderError(
        f"the last pass over epoch {epoch} was cut short, and its loader had read ahead, so that the sample "
        "that comes next is unknown",
        where=where,
        hint="continue with dataset.load_state_dict(dataset.state_dict(samples_seen=...)), or with "
        "load_state_dict of a StatefulDataLoader; to read the same samples again, open the dataset with "
        "repeat=True, or use dataset.evaluation(...) for validation",
    )
