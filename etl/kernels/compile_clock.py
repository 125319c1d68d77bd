"""Measure how long this process has compiled kernels, or waited for another process that did."""

import logging
import time
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_LOG_SECONDS: Final = 5.0

NUM_KERNELS: Final = 43
"""The kernels that all stages call together, counted once for all types that they are compiled for."""


class CompileClock:
    """Sums the wall time of compilations; those that begin during another one are part of it.

    >>> clock = CompileClock()
    >>> clock.begin("words")
    >>> clock.begin("characters")
    >>> clock.end()
    >>> clock.seconds
    0.0
    >>> clock.end()
    >>> clock.seconds > 0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._started = 0.0
        self._logged = -_LOG_SECONDS
        self._kernels: set[str] = set()
        self._follow: Callable[[str], None] | None = None

    def follow(self, call: Callable[[str], None]) -> None:
        """Call a function with the name of each kernel that is about to be compiled."""
        self._follow = call

    def begin(self, name: str) -> None:
        """Begin to measure the compilation of a kernel, and log it every few seconds."""
        now = time.perf_counter()
        if self._depth == 0:
            self._started = now
        self._depth += 1
        self._kernels.add(name)
        if self._follow is not None:
            self._follow(name)
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            # A warning, since programs that do not configure logging show nothing less.
            text = "compiling kernels, once per machine: %s (%d of at most %d)"
            _LOG.warning(text, name, len(self._kernels), NUM_KERNELS)

    def end(self) -> None:
        """End the last measurement that began."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._started


CLOCK: Final = CompileClock()
"""The clock of this process; ``etl.kernels.cache`` runs it."""
