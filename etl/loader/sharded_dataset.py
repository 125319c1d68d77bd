"""`ShardedDataset`, the base of all datasets: ranks, workers, epochs, batches and state."""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from copy import copy
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.batch_loop import Batches
from etl.loader.batches.delivery import Delivery
from etl.loader.batches.document_boundaries import Batch, Format, PositionedBatch
from etl.loader.batches.worker_message import WorkerBatch
from etl.loader.evaluation import Evaluation
from etl.loader.one_pass import Pass, Reader
from etl.loader.order.epochs import Epochs
from etl.loader.place import Place
from etl.loader.position import Position
from etl.loader.prepared_loaders import (
    UNPREPARED_HINT,
    check_divisible,
    check_stateless,
    count_samples,
)
from etl.loader.ranks import Shard
from etl.loader.state import State
from etl.loader.steps import Steps, warn_of_few_lanes
from etl.loader.version_lease import HeldVersions

_DIRECT = Delivery()


class ShardedDataset(IterableDataset[Batch]):
    """Samples in a reproducible order, distributed over ranks and DataLoader workers, resumable."""

    format: Format
    """The tensors of the batches."""

    columns: Sequence[str] = ()
    """The columns of the documents that come with the batches."""

    def __init__(
        self,
        *,
        where: str,
        identity: State,
        epochs: Epochs,
        shard: Shard,
        repeat: bool,
    ) -> None:
        self.where = where
        """The location that errors name: the URL of the table, or the names of the sources."""
        self.identity = identity
        """What states have besides the position: the values that decide the order."""
        self.epochs = epochs
        """The samples of each epoch."""
        self.place = Place(shard)
        """Which part of each step this process reads."""
        self.repeat = repeat
        """Whether a pass that was cut short begins again with the same samples."""
        self.waited = 0.0
        """The seconds that this process has waited for batches."""
        self._position = Position(identity, epochs, where=where, repeats=repeat)
        self._versions = HeldVersions()

    @abstractmethod
    def tables(self) -> Sequence[tuple[str, int]]:
        """Return the URL and the version of each table that is read."""

    @abstractmethod
    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the dataset reads besides the tables."""

    @abstractmethod
    def reader(self, epoch: int, *, world_size: int = 1) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches on one rank of ``world_size``."""

    @property
    def epoch(self) -> int:
        """The epoch of the newest pass, or of the first one."""
        return self._position.epoch

    @property
    def lanes(self) -> int:
        """The number of lanes of the present epoch."""
        return self.epochs.of(self.epoch).lanes

    @property
    def num_samples(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return self.epochs.of(self.epoch).num_samples

    @property
    def seq_len(self) -> int:
        """The number of tokens of a window, in this pass if it changes."""
        return self.epochs.of(self.epoch).seq_len

    @property
    def rank(self) -> int:
        """The rank of this process among the processes that divide the samples, as it is now."""
        return self.place.rank.rank

    @property
    def world_size(self) -> int:
        """The number of processes that divide the samples, as it is now."""
        return self.place.rank.world_size

    @property
    def dropped_samples(self) -> int:
        """The samples at the end of an epoch that no rank gets, so that all ranks take equal steps."""
        return self.num_samples % self.world_size

    def __repr__(self) -> str:
        tables = ", ".join(f"{url} version {version}" for url, version in self.tables())
        lengths = ", then ".join(f"{length:,}" for _, length in self.epochs.seq_lens)
        size = f"{self.num_samples:,} samples of {lengths} tokens"
        return f"<{type(self).__name__}: {size} from {tables}>"

    def __len__(self) -> int:
        """Return the number of samples of this rank in an epoch; of all ranks if accelerate divides them."""
        if self.place.is_divided_by_accelerate:
            return count_samples(self.num_samples)
        return self.num_samples // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the samples of this rank, each a dictionary of tensors without a batch dimension."""
        check_stateless(self.where)
        prepared = self.place.prepared_for(self)
        if prepared is None:
            if self.place.is_divided_by_accelerate:
                raise LoaderError(
                    "accelerate is in use, but it has not prepared the loader that reads these samples",
                    where=self.where,
                    hint=f"pass the loader to Accelerator.prepare, or {UNPREPARED_HINT}",
                )
            collation = self.place.collation()
            steps = self.plan_steps(collation.batch_size, drop_last=collation.drop_last)
            return self.iterate(steps, as_rows=True)
        check_divisible(self.place.shard, self.format, self.columns, where=self.where)
        steps = prepared.steps(self.lanes)
        return prepared.in_places(self.iterate(steps, runs_ahead=True))

    def batches(
        self,
        batch_size: int,
        *,
        drop_last: bool = True,
        prefetch: int = 0,
        device: str | torch.device | None = None,
    ) -> Batches:
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
        other.place = Place(shard)
        return other

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, or do nothing while that epoch is being read.

        Not needed to advance: the pass after a complete one reads the next epoch. Raises LoaderError if a
        state of a later epoch was just loaded.
        """
        self._position.set_epoch(epoch)

    def state_dict(
        self,
        *,
        consumed: int | None = None,
        samples_seen: int | None = None,
        steps: Steps | None = None,
    ) -> State:
        """Return the position in this epoch: a few integers, equal on all ranks after the same step.

        In this process, the dataset counts the samples up to the batch returned last. The workers of a plain
        DataLoader run ahead of the training loop, and so do loaders that accelerate has prepared. Then use
        torchdata's StatefulDataLoader, or pass the samples that all ranks together have received:
        ``consumed`` in this epoch, or ``samples_seen`` in all epochs since the first, which is ``steps *
        batch_size * world_size`` if these were the same in all steps. Raises LoaderError if a count is
        missing then, or does not fit.

        ``steps`` are the steps in which ``samples_seen`` were received, by default the steps of the newest
        pass.
        """
        if samples_seen is None or get_worker_info() is not None:
            return self._position.state(consumed)
        if consumed is not None:
            raise LoaderError("state_dict has both consumed and samples_seen", hint="pass one")
        return self._position.state_after(samples_seen, steps)

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, at any world size, batch size and number of workers.

        A StatefulDataLoader's state, or a checkpoint that contains a state, will do. Call this before
        iterating a DataLoader. Raises LoaderError if the state belongs to another order of samples, or if
        its position does not exist.
        """
        self._position.load(state)

    def plan_steps(self, batch_size: int, *, drop_last: bool) -> Steps:
        """Return how the samples become steps of all ranks, for the rank that this process has now."""
        return Steps(
            batch_size=batch_size, rank=self.place.rank, lanes=self.lanes, drop_last=drop_last
        )

    def step_samples(self, step: int, batch_size: int) -> list[int]:
        """Return the samples of this rank's batch at a step of an epoch, counted from 0, for ``locate``.

        Steps are counted from the beginning of the epoch: after resuming with another batch size or number
        of ranks, earlier steps of the epoch had other samples.
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
        try:
            begun = self._position.begin(steps, runs_ahead=runs_ahead)
            if begun.worker.id == 0 and self.place.process_rank == 0:  # one process of a training
                warn_of_few_lanes(self.epochs.of(self.epoch), steps, where=self.where)
                self._versions.hold(self.tables())
        except LoaderError as error:
            if get_worker_info() is None:
                raise
            # A persistent worker would die here: only what the first batch raises reaches the loop.
            return _failed(error)
        batches = delivery.deliver(_read(self, begun, as_rows=as_rows))
        if not begun.is_cut:
            return self._return(batches, begun)

        def read_on() -> Iterator[Batch]:
            yield from self._return(batches, begun)
            self._position.leave_out(steps)
            if self._position.has_steps(begun.start.epoch, steps):
                yield from self.iterate(steps, delivery=delivery, as_rows=as_rows)

        return read_on()

    def _return(self, batches: Generator[PositionedBatch], begun: Pass) -> Iterator[Batch]:
        """Yield the batches of a pass, and record each before it is returned."""
        in_worker = begun.worker.loader > 0
        with closing(batches):
            while True:
                started = perf_counter()
                item = next(batches, None)
                self.waited += perf_counter() - started
                if item is None:
                    break
                self._position.record(begun, item)
                yield WorkerBatch(item.batch) if in_worker else item.batch
        if in_worker:  # the next pass may be that of another worker
            self._versions.end()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields of a copy, which begins where this dataset continues."""
        if get_spawning_popen() is not None:
            check_stateless(self.where)
        place, position = self.place.of_copy(self), copy(self._position)
        return {**vars(self), "place": place, "_position": position, "_versions": HeldVersions()}


def _read(dataset: ShardedDataset, begun: Pass, *, as_rows: bool) -> Generator[PositionedBatch]:
    """Return what reads the batches of a pass, or its rows."""
    number, batch_format = begun.start.epoch, dataset.format
    before = dataset.epochs.of(number).first_sample if batch_format.sample_numbers else None

    def open_reader() -> AbstractContextManager[Reader]:
        return dataset.reader(number, world_size=begun.steps.rank.world_size)

    if not as_rows:
        return begun.read(open_reader, samples_before=before)
    is_separable = not (batch_format.cu_seqlens or dataset.columns)
    return begun.read_rows(open_reader, samples_before=before, is_separable=is_separable)


def _failed(error: LoaderError) -> Iterator[Batch]:
    raise error
    yield {}
