"""Measure how long each part of the work on a batch takes, without the time to compile kernels.

Kernels are compiled once per machine, however long a run is.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from etl.kernels.compile_clock import CLOCK

Item = TypeVar("Item")


class StageClock:
    """Sums wall time by name; a worker runs one task at a time and waits for its child processes.

    >>> clock = StageClock()
    >>> with clock.measure("read"):
    ...     pass
    >>> clock.add({"read": 1.5, "write": 2.0})
    >>> [f"{name} {seconds:.1f}" for name, seconds in clock.seconds().items()]
    ['read 1.5', 'write 2.0']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._compiled_before = CLOCK.seconds

    @property
    def compile_seconds(self) -> float:
        """The seconds in which kernels were compiled since the clock was made."""
        return CLOCK.seconds - self._compiled_before

    @property
    def total_seconds(self) -> float:
        """The seconds of all parts together."""
        return sum(self._seconds.values())

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the seconds that a block takes, apart from those in which it compiles kernels."""
        start, compiling = time.perf_counter(), CLOCK.seconds
        try:
            yield
        finally:
            self.add({name: time.perf_counter() - start - (CLOCK.seconds - compiling)})

    def measure_each(self, name: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and add the seconds spent waiting for them."""
        iterator = iter(items)
        while True:
            try:
                with self.measure(name):
                    item = next(iterator)
            except StopIteration:
                return
            yield item

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds that were measured elsewhere."""
        for name, value in seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + value

    def seconds(self) -> dict[str, float]:
        """Return the seconds by name."""
        return dict(self._seconds)
