"""Start local workers as forks of a process that has loaded their modules.

A spawned worker takes 2 seconds of CPU time to import what it needs; a fork has most of it at once. The
process loads ``MODULES`` while the driver still loads Dask. It runs no task, and ends with the driver.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Final, Literal

from etl.compute.driver_script import describe_script
from etl.compute.worker_settings import WORKER_ENVIRONMENT

MODULES: Final = (
    "distributed.nanny",
    "dask.dataframe",
    "etl.kernels.signals.quality_counts",
    "etl.text.tokenizer",
    "etl.compute.driver_script",
)
"""What all workers import. Not Polars, and so no stage: it starts a thread, which a fork would lack."""


def start_fork_server() -> Literal["forkserver", "spawn"]:
    """Start the process that loads ``MODULES`` and forks workers, and return at once.

    A process has one such server: later calls do nothing. Returns the method with which workers are to be
    started: ``spawn`` if the server cannot be used, because the path of ``TMPDIR`` is too long for its
    socket, or because this process is itself a fork of a process that has a server.
    """
    if sys.platform != "linux":  # a library of the system may not survive a fork
        return "spawn"
    forkserver.set_forkserver_preload([*MODULES])
    with _environment(_server_environment() | describe_script()), without_interrupts():
        try:
            forkserver.ensure_running()
        except OSError:
            return "spawn"
    return "forkserver"


def _server_environment() -> dict[str, str]:
    """Return what libraries read as they are loaded, and where the driver would find them."""
    environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {**environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which reaches all processes of a terminal."""
    resource_tracker.ensure_running()  # otherwise the server starts it, which unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
