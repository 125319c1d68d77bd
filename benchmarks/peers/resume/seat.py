"""The samples of resume.py, and the place of a process among the ranks of a training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SAMPLES, BATCH, SEED = 1000, 5, 42

State = Any
Batches = Iterator[tuple[list[int], Callable[[], State]]]
"""The numbers of the samples of each batch, and a function that returns the state after it."""


@dataclass(frozen=True)
class Seat:
    """A rank, its DataLoader workers, the epochs of the training, and a variant of the loader."""

    rank: int
    world: int
    workers: int
    epochs: int
    variant: str

    def own(self, states: list[State]) -> State | None:
        """Return this rank's state of the previous run, which may have had fewer ranks, or none."""
        return states[min(self.rank, len(states) - 1)] if states else None


def in_epoch(epoch: int, loader: Any) -> Callable[[], State]:
    """Return a function that saves a loader's state with the epoch, which the training counts."""
    return lambda: {"epoch": epoch, "loader": loader.state_dict()}
