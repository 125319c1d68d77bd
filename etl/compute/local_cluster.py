"""Start a cluster on this machine: single-threaded worker processes, at most one per core by default."""

import logging
import math
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster

from etl.compute.machine_folder import machine_folders
from etl.compute.request import ClusterRequest
from etl.storage.file_sets import remove_unused

# A worker needs 2 seconds of CPU time to start, in which another one processes about this much.
_BYTES_PER_WORKER = 8 << 20


@contextmanager
def start_local_cluster(_address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Start worker processes, connect a client to them, and stop them at the end of the context."""
    wanted = request.workers
    with warnings.catch_warnings():  # Dask then picks another dashboard port
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        cluster = LocalCluster(
            n_workers=wanted if isinstance(wanted, int) else local_workers(request.planned_bytes),
            threads_per_worker=1,
            memory_limit=request.memory_limit or "auto",
            security=request.security,
            silence_logs=logging.CRITICAL,  # the run reports what tasks raise
        )
    folders: set[Path] = set()
    try:
        with cluster, Client(cluster) as client:
            client.run(_leave_interrupts_to_the_driver)
            folders = machine_folders(client)
            yield client
    finally:
        for folder in folders:
            remove_unused(folder)


@contextmanager
def start_in_process() -> Iterator[Client]:
    """Start one worker as a thread of this process, for a few documents; stop it at the end."""
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


def local_workers(planned_bytes: int | None) -> int:
    """Return as many workers as pay for their start, at most one per core: for unknown input one per core.

    >>> local_workers(1000)
    1
    """
    if planned_bytes is None:
        return num_cores()
    return min(num_cores(), max(math.ceil(planned_bytes / _BYTES_PER_WORKER), 1))


def num_cores() -> int:
    """Return the number of cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_interrupts_to_the_driver() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the driver stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
