"""Start a cluster on this machine: single-threaded worker processes, at most one per core by default."""

import asyncio
import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import dask
from distributed import Client, LocalCluster, Worker, WorkerPlugin

from etl.compute.cluster_request import ClusterRequest
from etl.compute.fork_server import start_fork_server
from etl.compute.machine_folder import machine_folders
from etl.compute.scheduler_client import SchedulerClient
from etl.compute.worker_count import is_small, local_workers
from etl.compute.worker_settings import PROFILE_SETTINGS
from etl.errors import ClusterError, error_line
from etl.storage.file_sets import remove_unused
from etl.visible_text import escape_output

_DASHBOARD: Final = "127.0.0.1:8787"  # it has no password
_KILL_SECONDS: Final = 0.5
_NO_DASHBOARD: Final = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Options of a scheduler. By default, it serves its state on port 8787, or warns that this is in use."""

_DIED: Final = "failed to start worker process"
_DIED_HINT: Final = (
    "free memory or use fewer --workers; where workers are spawned (macOS), a script must call etl below "
    '`if __name__ == "__main__":`'
)


@contextmanager
def start_local_cluster(_address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Start worker processes, connect a client to them, and stop them at the end of the context."""
    if request.workers == 0:
        with start_in_process(request.memory_limit) as client:
            yield client
        return
    folders: set[Path] = set()
    try:
        with (
            dask.config.set({"distributed.worker.multiprocessing-method": start_fork_server()}),
            _start(request) as cluster,
            SchedulerClient(cluster) as client,
        ):
            client.register_plugin(_WorkerSetup(os.environ))
            folders = machine_folders(client)
            with _killing_workers(cluster):
                yield client
    finally:
        for folder in folders:
            remove_unused(folder)


@contextmanager
def _killing_workers(cluster: LocalCluster) -> Iterator[None]:
    """Kill the workers when the command is stopped: Dask waits 4 seconds while they compile a kernel."""

    async def kill() -> None:
        nannies = cluster.workers.values()
        closings = (nanny.close(timeout=_KILL_SECONDS) for nanny in nannies)
        await asyncio.gather(*closings, return_exceptions=True)

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        cluster.sync(kill)
        raise


def _start(request: ClusterRequest) -> LocalCluster:
    """Start the scheduler in this process and the workers in others; raise ClusterError if that fails."""
    wanted, dashboard = request.workers, request.dashboard
    if dashboard is None and (wanted is not None or not is_small(request.planned_bytes)):
        dashboard = _DASHBOARD  # 0.3 s of CPU time, for those who set the number or have much input
    start = partial(
        LocalCluster,
        n_workers=wanted if isinstance(wanted, int) else local_workers(request.planned_bytes),
        threads_per_worker=1,
        memory_limit=request.memory_limit or "auto",
        dashboard_address=dashboard,
        scheduler_kwargs=_NO_DASHBOARD if dashboard is None else None,
        security=request.security,
        env={**os.environ},
        silence_logs=logging.CRITICAL,  # the run reports what tasks raise
    )
    with warnings.catch_warnings():  # Dask then picks another dashboard port
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        try:
            cluster = _close_if_interrupted(start)
        except (OSError, RuntimeError, ValueError) as error:
            raise _start_error(error) from error
    wanted_port = (request.dashboard or "").rpartition(":")[2]
    if wanted_port not in ("", "0", str(urlsplit(cluster.dashboard_link).port)):
        request.listener.note(f"dashboard  port {wanted_port} is in use, so it has another")
    return cluster


def _start_error(error: Exception) -> ClusterError:
    """Return the error that says why workers did not start, which Dask's last exception does not."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    reason = [error_line(each) for each in causes if str(each)][-1]
    hint = "check --dashboard, and that this machine has free memory and ports"
    if any(isinstance(each, TimeoutError) for each in causes):
        reason = "they did not answer in time: the machine is busy"
        hint = "use fewer --workers, or run again when other programs need fewer cores"
    elif _DIED in reason:
        reason, hint = "one ended while it started", _DIED_HINT
    return ClusterError(f"the workers on this machine did not start ({reason})", hint=hint)


def _close_if_interrupted(start: Callable[[], LocalCluster]) -> LocalCluster:
    """Start a cluster in another thread: a half-started cluster could not be closed after Ctrl-C."""
    with ThreadPoolExecutor(1, "start-cluster") as pool:
        starting = pool.submit(start)
        try:
            return starting.result()
        except KeyboardInterrupt:
            with suppress(Exception):
                starting.result().close()
            raise


def has_dashboard(client: Client) -> bool:
    """Return whether a client's cluster has a dashboard: a small run on this machine starts none."""
    cluster = client.cluster
    return not isinstance(cluster, LocalCluster) or cluster.scheduler_spec["options"]["dashboard"]


@contextmanager
def start_in_process(memory_limit: str | None = None) -> Iterator[Client]:
    """Start one worker as a thread of this process, for a little work; stop it at the end."""
    with (
        dask.config.set(PROFILE_SETTINGS),
        SchedulerClient(
            processes=False,
            n_workers=1,
            threads_per_worker=1,
            memory_limit=memory_limit or "auto",
            dashboard_address=None,
            scheduler_kwargs=_NO_DASHBOARD,
            silence_logs=logging.CRITICAL,
        ) as client,
    ):
        yield client


class _WorkerSetup(WorkerPlugin):
    """Leave Ctrl-C, which reaches all processes of a terminal, to the driver, and remove old variables.

    A fork has the variables that were set when its server started. What is printed, by a user's code for
    example, is escaped as in the driver. Workers that replace others are set up, too.
    """

    def __init__(self, environment: Iterable[str]) -> None:
        self._variables = frozenset(environment)

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 - Dask passes it
        """Set up the process of a worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        escape_output()
        for name in os.environ.keys() - self._variables:
            del os.environ[name]
