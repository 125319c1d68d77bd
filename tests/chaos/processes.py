"""What the processes of a case run: a Dask scheduler, its workers, and the driver of the job.

Each is forked from a server that has imported what they need, so that starting one costs little; each
ends when the test's process does.
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

import etl.job.cadence
import etl.job.run
from etl.cluster import Cluster
from etl.errors import TokenlakeError
from etl.recipe import Recipe

DONE, TOLD, PUT_ASIDE, TRACEBACK = 0, 1, 3, 70
"""How a driver ends: all is done; an error of ours; something is in quarantine; another exception."""


def scheduler(log: Path, address: Connection) -> None:
    """A scheduler, which says its address."""
    _settle(log, {})

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", dashboard=False) as server:
            address.send(server.address)
            await server.finished()

    asyncio.run(serve())


def worker(log: Path, environment: Mapping[str, str], address: str, folder: Path) -> None:
    """A worker of one thread."""
    _settle(log, environment)

    async def serve() -> None:
        server = Worker(
            address, nthreads=1, memory_limit=0, local_directory=str(folder), dashboard=False
        )
        async with server:
            await server.finished()

    asyncio.run(serve())


def driver(log: Path, environment: Mapping[str, str], address: str, recipe: Path) -> None:
    """What ``etl run RECIPE --cluster ADDRESS`` does, with a commit for every result."""
    _settle(log, environment)
    etl.job.cadence._MOST_RESULTS = 1
    try:
        report = etl.job.run.run(Recipe.load(recipe), cluster=Cluster(address))
    except TokenlakeError as error:
        _end(f"error: {error}", TOLD)
    except BaseException:  # noqa: BLE001 - whatever it is, it is not what a user should see
        _end(traceback.format_exc(), TRACEBACK)
    counts = f"{report.rows} rows, {report.kept} kept, {report.duplicates} duplicates, {report.tokens} tokens"
    notes = (note.error for note in report.quarantined)
    _end("\n".join([counts, *notes]), DONE if report.ok else PUT_ASIDE)


def _end(text: str, code: int) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    os._exit(code)


def _settle(log: Path, environment: Mapping[str, str]) -> None:
    """Write to a log, take the environment, and end when the test does."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # where does it hang?
    os.environ.update(environment)
    dask.config.set({"distributed.comm.timeouts.connect": "10s"})
    above = parent_process()
    assert above is not None

    def follow() -> None:
        above.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
