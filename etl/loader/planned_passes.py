"""The readers of a pass over a dataset: what each plans, where it begins, and what it needs to resume."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.order.epochs import Epochs
from etl.loader.read_parts import TrainingPart
from etl.loader.steps import Steps

MAX_WORKERS: Final = 160
"""Workers of a DataLoader; chosen here: more than the cores of most machines."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A reader of a pass: a DataLoader worker, or this process (the only reader, 0 of 1)."""

    id: int
    count: int
    loader: int  # the same number for all workers of a loader's iterator; 0: not a worker

    @staticmethod
    def current() -> "Worker":
        """Return the reader that this process is.

        Workers of an iterator are started one after the other, so their process numbers are consecutive.
        """
        info: Any = get_worker_info()
        if info is None:
            return Worker(id=0, count=1, loader=0)
        if info.num_workers > MAX_WORKERS:
            raise LoaderError(
                f"a DataLoader has {info.num_workers} workers, but at most {MAX_WORKERS} are supported"
            )
        number = multiprocessing.current_process()._identity[-1]  # noqa: SLF001
        return Worker(id=info.id, count=info.num_workers, loader=number - info.id)


class Resumed(NamedTuple):
    """The state of a worker that resumes: the start of its pass, its turn, and its steps."""

    epoch: int
    first_sample: int
    turn: int
    steps: int
    parts: Sequence[TrainingPart]  # that were read up to the start of the pass


class Start(NamedTuple):
    """Where a reader begins a pass."""

    epoch: int
    first_sample: int
    turn: int  # of this reader among the workers, which take the steps in turn
    steps: int  # of this reader that are already done
    number: int  # of the pass


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A pass that a reader wants to begin."""

    steps: Steps
    epochs: Epochs
    repeats: bool  # begin again where a pass that was cut short began
    runs_ahead: bool  # the training loop receives the batches later than they are returned

    def count(self, epoch: int, first_sample: int) -> int:
        """Return the number of steps from a sample of an epoch on."""
        return self.steps.count(self.epochs.of(epoch).num_samples - first_sample)
