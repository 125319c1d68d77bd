"""Measure what the workers of a run use: core-seconds, and requests to S3 with their bytes."""

import os
import socket
import time
from collections.abc import Callable

from distributed import Client

from etl.storage.usage import StoreUsage, store_usage

_SECONDS = 5.0  # between two looks at the workers
_SHARE = 0.02  # of the time, at most, for asking all workers

_Clock = Callable[[], float]


def process_usage() -> tuple[str, StoreUsage]:
    """Return the name of this process, and what it has sent to S3 since it started."""
    return f"{socket.gethostname()}:{os.getpid()}", store_usage()


class UsageMeter:
    """What a run has used of the workers of a cluster, and of S3.

    Workers are asked for their requests if ``asks``; lost ones count up to when they were last asked.
    """

    def __init__(self, client: Client, *, asks: bool, clock: _Clock = time.monotonic) -> None:
        self._client = client
        self._asks = asks
        self._clock = clock
        self.core_seconds = 0.0
        self._cores = sum(client.nthreads().values())
        self._counted = clock()  # until when core-seconds are counted
        self._looked = self._counted
        self._min_seconds = _SECONDS
        self._first = self._ask()
        self._last = dict(self._first)

    @property
    def store(self) -> StoreUsage:
        """What all processes have sent to S3."""
        before = (self._first.get(name, StoreUsage()) for name in self._last)
        return sum(
            (now - then for now, then in zip(self._last.values(), before, strict=True)),
            StoreUsage(),
        )

    def update(self, *, now: bool = False) -> None:
        """Count until now; look at the workers only every few seconds, or ``now``."""
        time_ = self._clock()
        self.core_seconds += self._cores * (time_ - self._counted)
        self._counted = time_
        if not now and time_ - self._looked < self._min_seconds:
            return
        self._cores = sum(self._client.nthreads().values())
        self._last |= self._ask()
        self._looked = self._clock()
        self._min_seconds = max(_SECONDS, (self._looked - time_) / _SHARE)

    def _ask(self) -> dict[str, StoreUsage]:
        if not self._asks:
            return {}
        answers = self._client.run(process_usage, on_error="ignore")
        return dict([process_usage(), *answers.values()])
