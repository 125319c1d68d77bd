"""Shuffles on worker processes that die, stop or run out of disk space: the right rows, or ShuffleError."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Scheduler, Worker
from distributed.diagnostics.plugin import SchedulerPlugin

from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.connect import follow_client
from etl.compute.frame_shuffles import shuffle_by_value
from etl.compute.row_checksums import sum_rows
from etl.errors import ShuffleError
from tests.helpers.listeners import Calls
from tests.helpers.ports import free_ports
from tests.helpers.remote_workers import remote_cluster
from tests.helpers.shuffle_faults import Fault, install_in_worker
from tests.helpers.shuffle_frames import PARTS, ROWS, frame, read, values

pytestmark = pytest.mark.slow

WORKERS = 3
LIMITS = {
    "distributed.comm.timeouts.connect": "2s",
    "distributed.comm.timeouts.tcp": "12s",
    "distributed.p2p.comm.retry.count": 2,
}


class SlowRemoval(SchedulerPlugin):
    """Delays what follows the removal of a worker: another may have its address by then."""

    name = "slow-removal"

    async def remove_worker(self, *_: Any, **known: Any) -> None:
        """Wait."""
        await asyncio.sleep(1)


def put_first(name: str, dask_scheduler: Scheduler) -> None:
    plugins = dask_scheduler.plugins
    others = {key: plugins.pop(key) for key in [*plugins] if key != name}
    plugins.update(others)


@contextmanager
def workers(**settings: Any) -> Iterator[Client]:
    """Start worker processes; each that dies is replaced, with the same address."""
    first = free_ports(1)[0]
    with (
        dask.config.set({**LIMITS, **settings}),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            dashboard_address=":0",
            worker_port=f"{first}:{first + 2 * WORKERS}",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(SlowRemoval())
        client.run_on_scheduler(put_first, SlowRemoval.name)
        client.run(sum_rows, read(0), np.zeros(ROWS, np.int64), 1)  # compiles its kernels
        yield client


def shuffled_twice(client: Client) -> list[tuple[str, ...]]:
    """Return the rows of a shuffle of a frame that another shuffle has made and workers hold."""
    held = hold_frame(client, shuffle_by_value(frame(), "value", 5), label="first")
    rows = compute_frame(client, shuffle_by_value(held, "value", 7), label="second")
    return values(rows)


EXPECTED = values(pd.concat(map(read, range(PARTS))))
PHASES = ["transfer", "receive", "barrier", "unpack"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_worker_does_not_change_the_rows(tmp_path: Path, phase: str) -> None:
    fault = Fault(f"killed at {phase}", tmp_path / "done")
    with workers() as client:
        client.run(install_in_worker, fault)
        assert shuffled_twice(client) == EXPECTED
        assert fault.marker.exists()


@pytest.mark.parametrize(
    ("phase", "ttl", "seconds"), [*((phase, 3600, 30) for phase in PHASES), ("receive", 45, 80)]
)
def test_an_unresponsive_worker_does_not_change_the_rows(
    tmp_path: Path, phase: str, ttl: int, seconds: int
) -> None:
    """A worker stops, and continues when its peers have given it up, or the scheduler has removed it."""
    fault = Fault(f"stopped at {phase}", tmp_path / "done")
    with workers(**{"distributed.scheduler.worker-ttl": ttl}) as client:
        client.run(install_in_worker, fault)
        with continuing(fault, seconds), suppress(ShuffleError):
            assert shuffled_twice(client) == EXPECTED
        assert fault.marker.exists()


@contextmanager
def continuing(fault: Fault, seconds: int) -> Iterator[None]:
    """Let the process that a fault has stopped continue after some time, and at the latest at the end."""
    ended = threading.Event()

    def continue_later() -> None:
        while not fault.marker.exists() and not ended.wait(0.1):
            pass
        ended.wait(seconds)
        with suppress(OSError):
            os.kill(int(fault.marker.read_text()), signal.SIGCONT)

    thread = threading.Thread(target=continue_later)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def fill_disk(dask_worker: Worker) -> None:
    """Write a file that takes what is left on the disk of a worker."""
    with filler(dask_worker).open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


def free_disk(dask_worker: Worker) -> None:
    filler(dask_worker).unlink()


def filler(worker: Worker) -> Path:
    return Path(worker.local_directory) / "filler"


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_full_disk_fails_the_last_attempt_only_if_it_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_freed: bool
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__P2P__COMM__RETRY__COUNT", "2")
    (tmp_path / "hidden").mkdir()
    lines: list[str] = []
    warned = threading.Event()
    listener = Calls(note=lambda text: (lines.append(text), warned.set()))
    with remote_cluster(tmp_path, tmp_path / "hidden") as cluster:
        for number in range(WORKERS):
            cluster.add_worker(f"machine-{number}", disk_bytes=1 << 20)
        cluster.wait_for(WORKERS)
        with Client(cluster.address) as client, follow_client(client, listener):
            full = next(iter(client.scheduler_info()["workers"]))
            client.run(fill_disk, workers=[full])

            def free_when_warned() -> None:
                if warned.wait(120) and is_freed:
                    client.run(free_disk, workers=[full])

            thread = threading.Thread(target=free_when_warned)
            thread.start()
            if is_freed:
                assert shuffled_twice(client) == EXPECTED
            else:
                with pytest.raises(
                    ShuffleError, match="^first: .* disk of a worker is full .*4 of 4"
                ):
                    shuffled_twice(client)
            thread.join()
    expected = (
        "warning: first: a shuffle failed: the disk of a worker is full; starting again (1 of 3)"
    )
    assert lines[0] == expected
