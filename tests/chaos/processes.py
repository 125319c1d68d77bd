"""The processes of a chaos case: a Dask scheduler, its workers, and the driver of the job.

All are forked from a server that has imported all modules, so that they start quickly. All end with the
process of the test.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import dask
from distributed import Scheduler, Worker

import etl.job.commit_policy
import etl.job.run
import etl.job.shuffle
from etl.compute.cluster import Cluster
from etl.compute.worker_settings import PROFILE_SETTINGS
from etl.errors import TokenlakeError
from etl.recipe.recipe import Recipe

DONE, FAILED, QUARANTINED, CRASHED = 0, 1, 3, 70
"""Exit codes of a driver: all done; a TokenlakeError; some input is quarantined; another exception."""


_SHUFFLE = etl.job.shuffle.ShuffleSettings(bucket_bytes=1 << 12)  # several buckets


def scheduler(log: Path, address: Connection) -> None:
    """Run a scheduler and send its address."""
    settle(log, {})

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", dashboard=False) as server:
            address.send(server.address)
            await server.finished()

    asyncio.run(serve())


def worker(log: Path, environment: Mapping[str, str], address: str, folder: Path) -> None:
    """Run a worker with one thread."""
    settle(log, environment)

    async def serve() -> None:
        server = Worker(
            address, nthreads=1, memory_limit=0, local_directory=str(folder), dashboard=False
        )
        async with server:
            await server.finished()

    asyncio.run(serve())


def driver(log: Path, environment: Mapping[str, str], address: str, recipe: Path) -> None:
    """Do the same as ``etl run RECIPE --cluster ADDRESS``, committing each result, and ``etl shuffle``."""
    settle(log, environment)
    etl.job.commit_policy._MOST_RESULTS = 1
    loaded = Recipe.load(recipe)
    try:
        report = etl.job.run.run(loaded, cluster=Cluster(address))
        if report.ok:
            etl.job.shuffle.shuffle(str(loaded.lake), settings=_SHUFFLE, cluster=Cluster(address))
    except TokenlakeError as error:
        _end(f"error: {error}", FAILED)
    except BaseException:  # noqa: BLE001 - a user should never see any other exception
        _end(traceback.format_exc(), CRASHED)
    counts = f"{report.rows} rows, {report.kept} kept, {report.duplicates} duplicates, {report.tokens} tokens"
    notes = (note.error for note in report.quarantined)
    _end("\n".join([counts, *notes]), DONE if report.ok else QUARANTINED)


def _end(text: str, code: int) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    os._exit(code)


def settle(log: Path, environment: Mapping[str, str]) -> None:
    """Redirect output to a log, set the environment, and end when the test does."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # shows where it hangs
    os.environ.update(environment)
    dask.config.set({"distributed.comm.timeouts.connect": "10s"} | PROFILE_SETTINGS)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
