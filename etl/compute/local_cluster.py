"""Start a cluster on this machine: single-threaded worker processes, at most one per core by default."""

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import Client, LocalCluster

from etl.compute.cores import is_small, local_workers
from etl.compute.fork_server import START_METHOD, start_fork_server
from etl.compute.machine_folder import machine_folders
from etl.compute.request import ClusterRequest
from etl.storage.file_sets import remove_unused


@contextmanager
def start_local_cluster(_address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Start worker processes, connect a client to them, and stop them at the end of the context."""
    start_fork_server()
    folders: set[Path] = set()
    try:
        with (
            dask.config.set({"distributed.worker.multiprocessing-method": START_METHOD}),
            _new_cluster(request) as cluster,
            Client(cluster) as client,
        ):
            client.run(_leave_interrupts_to_the_driver)
            folders = machine_folders(client)
            yield client
    finally:
        for folder in folders:
            remove_unused(folder)


def _new_cluster(request: ClusterRequest) -> LocalCluster:
    wanted = request.workers
    with warnings.catch_warnings():  # Dask then picks another dashboard port
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        return LocalCluster(
            n_workers=wanted if isinstance(wanted, int) else local_workers(request.planned_bytes),
            threads_per_worker=1,
            memory_limit=request.memory_limit or "auto",
            # 0.3 s of CPU time, for those who set the number of workers or have much input.
            dashboard_address=None
            if wanted is None and is_small(request.planned_bytes)
            else ":8787",
            security=request.security,
            env={**os.environ},  # a fork has that of the time when its server started
            silence_logs=logging.CRITICAL,  # the run reports what tasks raise
        )


def has_dashboard(client: Client) -> bool:
    """Return whether a client's cluster has a dashboard: a small run on this machine starts none."""
    cluster = client.cluster
    return not isinstance(cluster, LocalCluster) or cluster.scheduler_spec["options"]["dashboard"]


@contextmanager
def start_in_process() -> Iterator[Client]:
    """Start one worker as a thread of this process, for a few documents; stop it at the end."""
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


def _leave_interrupts_to_the_driver() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the driver stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
