"""`Pass`: the batches that one reader returns in a pass over the rest of an epoch."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from etl.loader.batches.document_boundaries import PER_BATCH, Batch, PositionedBatch
from etl.loader.planned_passes import Start, Worker
from etl.loader.steps import Steps

_ROWS_AT_ONCE = 8  # samples that are read together, at least, if they are returned one by one


class Reader(Protocol):
    """A reader of an epoch's batches."""

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as tensors with one row each."""


class Pass:
    """The steps of one reader in a pass. Of W DataLoader workers, each takes every W-th step."""

    def __init__(
        self,
        start: Start,
        steps: Steps,
        worker: Worker,
        *,
        num_samples: int,
        runs_ahead: bool,
        is_cut: bool = False,
    ) -> None:
        self.start = start
        self.worker = worker
        self.steps = steps
        remaining = num_samples - start.first_sample
        self.end = start.first_sample + steps.end(remaining)
        """The sample of the epoch after the last step of all readers."""
        self.numbers = range(start.turn, steps.count(remaining), worker.count)[start.steps :]
        """The steps of this reader, counted from the beginning of the pass."""
        self.is_cut = is_cut
        """Whether it ends before samples that are left out, and not with its epoch."""
        self.is_left = False
        """Whether steps were skipped since, so that it must not go on."""
        self.runs_ahead = runs_ahead
        """Whether accelerate receives the batches earlier than the training loop."""
        self.returned = start.steps
        """The steps that this reader has returned."""
        self.reached = start.first_sample
        """The sample of the epoch after the last step that a thread has begun to read."""
        self.lock = threading.Lock()
        """Protects ``reached``."""
        self.is_whole = True
        """Whether the last one was returned with all its rows."""

    def read(
        self,
        open_reader: Callable[[], AbstractContextManager[Reader]],
        *,
        samples_before: int | None,
    ) -> Generator[PositionedBatch]:
        """Yield the batches; ``samples_before`` adds the numbers of the samples over all epochs to them."""
        with open_reader() as reader:
            for number in self.numbers:
                step = self._samples_of(number)
                self._reach(step.stop)
                samples = self.steps.samples(step, number=number)
                batch = _read(reader, samples, samples_before)
                yield PositionedBatch(step.stop, True, number == self.numbers[-1], batch)

    def read_rows(
        self,
        open_reader: Callable[[], AbstractContextManager[Reader]],
        *,
        samples_before: int | None,
        is_separable: bool,
    ) -> Generator[PositionedBatch]:
        """Yield the rows of the batches, without a batch dimension.

        Rows that are not separable are read one by one, others several at once.
        """
        world_size = self.steps.rank.world_size
        together = max(_ROWS_AT_ONCE // self.steps.batch_size, 1)
        with open_reader() as reader:
            for done in range(0, len(self.numbers), together):
                some = self.numbers[done : done + together]
                self._reach(self._samples_of(some[-1]).stop)
                samples = [
                    sample
                    for number in some
                    for sample in self.steps.samples(self._samples_of(number), number=number)
                ]
                parts = [samples] if is_separable else [[sample] for sample in samples]
                rows = (
                    row for part in parts for row in rows_of(_read(reader, part, samples_before))
                )
                for number in some:
                    step = self._samples_of(number)
                    for position in range(step.start + world_size, step.stop + 1, world_size):
                        is_whole = position == step.stop
                        is_last = is_whole and number == self.numbers[-1]
                        yield PositionedBatch(position, is_whole, is_last, next(rows))

    def _reach(self, position: int) -> None:
        with self.lock:
            self.reached = position

    def _samples_of(self, number: int) -> range:
        """Return the samples of a step, over all ranks."""
        first = self.start.first_sample + number * self.steps.stride
        return range(first, min(first + self.steps.stride, self.end))

    def worker_state(self) -> dict[str, int]:
        """Return what the state of a worker has besides the start of its pass."""
        return {
            "worker": self.start.turn,
            "workers": self.worker.count,
            "steps": self.returned,
            "stride": self.steps.stride,
            "end": self.end,
        }


def _read(reader: Reader, samples: Sequence[int], samples_before: int | None) -> Batch:
    batch = reader.batch(samples)
    if samples_before is not None:
        batch["sample"] = torch.tensor(samples, dtype=torch.int64) + samples_before
    return batch


def rows_of(batch: Batch) -> list[Batch]:
    """Return the rows of a batch as views; a batch with values of a whole batch has one row."""
    if all(
        isinstance(values, torch.Tensor) and name not in PER_BATCH for name, values in batch.items()
    ):
        rows = zip(*(values.unbind() for values in batch.values()), strict=True)
        return [dict(zip(batch, row, strict=True)) for row in rows]
    return [{name: v if name in PER_BATCH else v[0] for name, v in batch.items()}]
