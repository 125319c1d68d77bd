"""Measure what the workers of a run use: core-seconds, CPU time, and requests to S3 with their bytes."""

import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl.storage.s3_request_counts import StoreUsage, store_usage

if TYPE_CHECKING:
    from distributed import Client

_SECONDS = 1.0  # between two looks at the workers
_SHARE = 0.02  # of the time, at most, for asking all workers


@dataclass(frozen=True)
class ProcessUsage:
    """What a process has used since it started."""

    cpu_seconds: float  # with that of its child processes that have ended
    store: StoreUsage


def process_usage() -> tuple[str, ProcessUsage]:
    """Return the name of this process, and what it has used."""
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    return f"{socket.gethostname()}:{os.getpid()}", ProcessUsage(cpu, store_usage())


class UsageMeter:
    """What a run has used of the workers of a cluster, and of S3.

    Workers that are lost count up to when they were last asked.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.cores: int = sum(client.nthreads().values())
        self.core_seconds = 0.0
        self._first = self._ask()
        self._last = dict(self._first)
        self._counted = self._looked = time.monotonic()  # until when core-seconds are counted
        self._min_seconds = _SECONDS

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the workers; of worker threads in this process it is not known."""
        driver = process_usage()[0]
        workers = {name: usage for name, usage in self._last.items() if name != driver}
        return sum(
            usage.cpu_seconds - (self._first[name].cpu_seconds if name in self._first else 0.0)
            for name, usage in workers.items()
        )

    @property
    def store(self) -> StoreUsage:
        """What the workers and this process have sent to S3."""
        total = StoreUsage()
        for name, usage in self._last.items():
            total += usage.store
            if name in self._first:
                total -= self._first[name].store
        return total

    def update(self, *, now: bool = False) -> None:
        """Count until now; look at the workers at most every second, or ``now``."""
        begun = time.monotonic()
        self.core_seconds += self.cores * (begun - self._counted)
        self._counted = begun
        if not now and begun - self._looked < self._min_seconds:
            return
        self.cores = sum(self._client.nthreads().values())
        self._last |= self._ask()
        self._looked = time.monotonic()
        self._min_seconds = max(_SECONDS, (self._looked - begun) / _SHARE)

    def _ask(self) -> dict[str, ProcessUsage]:
        answers = self._client.run(process_usage, on_error="ignore")
        return dict([process_usage(), *answers.values()])
