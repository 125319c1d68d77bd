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
from typing import Final, Literal

from etl.compute.worker_settings import WORKER_ENVIRONMENT

MODULES: Final = (
    "distributed.nanny",
    "dask.dataframe",
    "etl.kernels.signals.word_counts",
    "etl.text.tokenizer",
)
"""What all workers import. Not Polars, and so no stage: it starts a thread, which a fork would lack."""


def start_fork_server() -> Literal["forkserver", "spawn"]:
    """Start the process that loads ``MODULES`` and forks workers, and return at once.

    A process has one such server: later calls do nothing. Returns the method with which workers are to be
    started: ``spawn`` where there is no server. Its socket is in ``TMPDIR``, whose path may be too long, and
    a fork of this process cannot use it.
    """
    if sys.platform != "linux":  # a library of the system may not survive a fork
        return "spawn"
    forkserver.set_forkserver_preload([*MODULES])
    # Libraries read the environment as they are loaded.
    with _environment(WORKER_ENVIRONMENT), _without_interrupts():
        try:
            forkserver.ensure_running()
        except OSError:
            return "spawn"
    return "forkserver"


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set those environment variables that are not set, for the duration of the context."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which reaches all processes of a terminal."""
    resource_tracker.ensure_running()  # otherwise the server starts it, which unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
