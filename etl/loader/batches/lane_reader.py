"""`LaneReader`, the base of the readers of batches: it opens the lanes of an epoch on demand."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, Self, TypeVar

from etl.loader.fetch.row_group_files import Lanes


class Lane(Protocol):
    """One lane of an epoch."""

    def prepare(self, position: int) -> None:
        """Prepare to read the lane from a position."""

    def close(self) -> None:
        """Free the memory."""


_Lane = TypeVar("_Lane", bound=Lane)


class LaneReader(ABC, Generic[_Lane]):
    """The open lanes of an epoch; sample g is at position g // num_lanes of lane g % num_lanes."""

    def __init__(self, files: Lanes, num_lanes: int) -> None:
        self.files = files
        self._num_lanes = num_lanes
        self._lanes: dict[int, _Lane] = {}

    @abstractmethod
    def _open_lane(self, number: int) -> _Lane:
        """Return a lane that is read for the first time."""

    def _find(self, samples: Iterable[int]) -> list[tuple[_Lane, int]]:
        """Return the lane of each sample, and its position there; all new lanes are prepared first."""
        found = []
        for sample in samples:
            position, number = divmod(sample, self._num_lanes)
            lane = self._lanes.get(number)
            if lane is None:
                lane = self._lanes[number] = self._open_lane(number)
                lane.prepare(position)
            found.append((lane, position))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()  # they refer to this reader
        self.files.close()
