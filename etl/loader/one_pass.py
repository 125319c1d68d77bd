"""`Pass`: the batches that one reader returns in a pass over the rest of an epoch."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from etl.loader.batches.document_boundaries import PER_BATCH, Batch, Format
from etl.loader.passes import Start, Worker
from etl.loader.steps import Steps

_ROWS_AT_ONCE = 8  # samples that are read together if they are returned one by one


class Reader(Protocol):
    """A reader of an epoch's batches."""

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as tensors with one row each."""


class Pass:
    """The steps of one reader in a pass. Of W DataLoader workers, each takes every W-th step."""

    def __init__(self, start: Start, steps: Steps, num_samples: int, *, runs_ahead: bool) -> None:
        self.start = start
        self.steps = steps
        remaining = num_samples - start.first_sample
        self.end = start.first_sample + steps.end(remaining)
        """The sample of the epoch after the last step of all readers."""
        self.numbers = range(start.turn, steps.count(remaining), Worker.current().count)[
            start.steps :
        ]
        """The steps of this reader, counted from the beginning of the pass."""
        self.runs_ahead = runs_ahead
        """Whether accelerate receives the batches earlier than the training loop."""
        self.returned = start.steps
        """The steps that this reader has returned."""

    def read(
        self,
        open_reader: Callable[[], AbstractContextManager[Reader]],
        batch_format: Format,
        *,
        samples_before: int,
        as_rows: bool,
        is_separable: bool,
    ) -> Generator[tuple[int, bool, Batch]]:
        """Yield each batch with the sample of the epoch after it, and whether it is the last.

        If the steps have one sample, ``as_rows`` yields the rows alone, without a batch dimension.
        ``is_separable`` batches can be read together and divided into rows.
        """
        together = _ROWS_AT_ONCE if as_rows and is_separable else 1
        with open_reader() as reader:
            for done in range(0, len(self.numbers), together):
                some = self.numbers[done : done + together]
                ranges = [self._samples_of(number) for number in some]
                samples = [sample for step in ranges for sample in self.steps.samples(step)]
                batch = reader.batch(samples)
                if batch_format.sample_numbers:
                    batch["sample"] = torch.tensor(samples, dtype=torch.int64) + samples_before
                parts = rows_of(batch) if as_rows else (batch,)
                for number, step, part in zip(some, ranges, parts, strict=True):
                    yield step.stop, number == self.numbers[-1], part

    def _samples_of(self, number: int) -> range:
        """Return the samples of a step, over all ranks."""
        first = self.start.first_sample + number * self.steps.stride
        return range(first, min(first + self.steps.stride, self.end))

    def worker_state(self) -> dict[str, int]:
        """Return what the state of a worker has besides the start of its pass."""
        return {
            "worker": self.start.turn,
            "workers": Worker.current().count,
            "steps": self.returned,
            "stride": self.steps.stride,
            "end": self.end,
        }


def rows_of(batch: Batch) -> list[Batch]:
    """Return the rows of a batch as views; a batch with values of a whole batch has one row."""
    if all(
        isinstance(values, torch.Tensor) and name not in PER_BATCH for name, values in batch.items()
    ):
        rows = zip(*(values.unbind() for values in batch.values()), strict=True)
        return [dict(zip(batch, row, strict=True)) for row in rows]
    return [{name: v if name in PER_BATCH else v[0] for name, v in batch.items()}]
