"""Start local workers as forks of a process that has loaded their modules.

A spawned worker takes 2 seconds of CPU time to import what it needs; a fork has most of it at once. The
process loads ``MODULES`` while the driver still loads Dask. It runs no task, and ends with the driver.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import Final

from etl.compute.worker_settings import WORKER_ENVIRONMENT

START_METHOD: Final = "forkserver" if sys.platform == "linux" else "spawn"
"""How workers of this machine are started; elsewhere, a library of the system may not survive a fork."""

MODULES: Final = (
    "distributed.nanny",
    "dask.dataframe",
    "etl.kernels.signals.word_counts",
    "etl.text.tokenizer",
)
"""What all workers import. Not Polars, and so no stage: it starts a thread, which a fork would lack."""


def start_fork_server() -> None:
    """Start the process that loads ``MODULES`` and forks workers, and return at once.

    A process has one such server: later calls do nothing.
    """
    if START_METHOD != "forkserver":
        return
    with _environment(WORKER_ENVIRONMENT):  # libraries read it as they are loaded
        forkserver.set_forkserver_preload([*MODULES])
        forkserver.ensure_running()


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set those environment variables that are not set, for the duration of the context."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
