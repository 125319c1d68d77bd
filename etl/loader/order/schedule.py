"""`Schedule`: a setting that changes at given samples."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from etl.errors import LoaderError

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Schedule(Generic[_Value]):
    """A piecewise constant function of the sample number, which counts all ranks and epochs.

    ``phases`` are the sample with which each value begins, and the value; the first begins with sample 0.
    Raises LoaderError unless the samples ascend from 0.

    >>> Schedule([(0, 2048), (1_000_000, 8192)]).at(999_999)
    2048
    """

    phases: Sequence[tuple[int, _Value]]

    def __post_init__(self) -> None:
        starts = self.starts
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise LoaderError(
                f"the phases of a Schedule begin with the samples {starts}",
                hint="begin with sample 0, and list the phases in ascending order",
            )

    @property
    def starts(self) -> list[int]:
        """The sample with which each phase begins."""
        return [start for start, _ in self.phases]

    @property
    def values(self) -> list[_Value]:
        """The value of each phase."""
        return [value for _, value in self.phases]

    def at(self, sample: int) -> _Value:
        """Return the value for a sample."""
        return self.phases[bisect_right(self.starts, sample) - 1][1]

    def between(self, start: int, end: int | None) -> "Schedule[_Value]":
        """Return the function between two samples, counted from the first; None: without end.

        >>> Schedule([(0, "a"), (10, "b"), (20, "c")]).between(12, 20)
        Schedule(phases=[(0, 'b')])
        """
        later = [(at, value) for at, value in self if at > start and (end is None or at < end)]
        return Schedule([(0, self.at(start)), *((at - start, value) for at, value in later)])

    def then(self, start: int, value: _Value) -> "Schedule[_Value]":
        """Return the function with another value from a sample on.

        >>> Schedule([(0, "a"), (10, "b"), (20, "c")]).then(10, "d")
        Schedule(phases=[(0, 'a'), (10, 'd')])
        """
        return Schedule([*((at, old) for at, old in self if at < start), (start, value)])

    def __iter__(self) -> Iterator[tuple[int, _Value]]:
        return iter(self.phases)
