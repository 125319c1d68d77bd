"""`Batches`: the batches of a dataset, which a loop or a DataLoader iterates."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from etl.errors import LoaderError
from etl.loader.batches.delivery import Delivery, check_batch_size
from etl.loader.batches.document_boundaries import Batch
from etl.loader.prepared_loaders import UNPREPARED_HINT, check_stateless, num_processes
from etl.loader.state import State
from etl.loader.steps import Steps


class Batches(IterableDataset[Batch]):
    """The batches of a dataset: iterate it, or pass it to ``DataLoader(..., batch_size=None)``.

    A thread of this process prepares ``prefetch`` batches ahead, and batches are copied to ``device``, the
    next one while a GPU uses the current one; this changes neither order nor state. The state is the state of
    the dataset, also for torchdata's StatefulDataLoader.
    """

    def __init__(
        self,
        dataset: Any,  # a ShardedDataset, whose module imports this one
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
        prepared = self.dataset.place.prepared_for(self)
        if prepared is not None and num_processes() > 1:
            raise LoaderError(
                "each rank has its own batches already, but accelerate would distribute them again",
                where=self.dataset.where,
                hint=f"{UNPREPARED_HINT}, or prepare DataLoader(dataset, batch_size=...)",
            )
        self._delivery.check(self.dataset.where)
        batches: Iterator[Batch] = self.dataset.iterate(
            self._steps(), delivery=self._delivery, runs_ahead=prepared is not None
        )
        return batches

    def skip(self, num_steps: int, *, after: int = 0) -> None:
        """Leave out steps of all ranks, for example those before and during a loss spike.

        By default, the next steps are left out, otherwise the steps ``after`` so many others; steps that are
        to be left out count among these. Later steps come as if all were read. Call it on all ranks, after
        ``load_state_dict`` and before a loop. States record what was skipped, and is to be: ``etl replay``
        refuses such steps, and ``etl trace --state`` does not count their samples as seen; ``samples_seen``
        and ``consumed`` do. If a training resumes with other steps, samples before a gap that are too few for
        one are left out, too. Raises LoaderError if a loader has read ahead, so that the next step is
        unknown, or if a training skips more than 32 times.
        """
        self.dataset._position.skip(num_steps, self._steps(), after=after)  # noqa: SLF001 - a part of the dataset

    def _steps(self) -> Steps:
        steps: Steps = self.dataset.plan_steps(self.batch_size, drop_last=self.drop_last)
        return steps

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        full, rest = divmod(
            int(self.dataset.num_samples // self.dataset.world_size), self.batch_size
        )
        return full + (0 if self.drop_last or not rest else 1)

    def state_dict(self, *, consumed: int | None = None, samples_seen: int | None = None) -> State:
        """Return the state of the dataset; all ``samples_seen`` must have come in batches of this size."""
        steps = None if samples_seen is None else self._steps()
        seen = {"consumed": consumed, "samples_seen": samples_seen}
        state: State = self.dataset.state_dict(**seen, steps=steps)
        return state

    def load_state_dict(self, state: State) -> None:
        """Resume from a saved state, as ``dataset.load_state_dict`` does."""
        self.dataset.load_state_dict(state)
