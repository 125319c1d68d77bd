"""Measure how long each part of the work on a batch takes."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

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

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the seconds that a block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add({name: time.perf_counter() - start})

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
