"""Runs use an existing scheduler and leave it running; an unreachable one is reported."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed import Client

from etl.compute.cluster import Cluster
from etl.errors import ClusterError
from etl.job.run import run
from etl.recipe.recipe import Recipe


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_run_uses_an_existing_scheduler_and_leaves_it_running(
    recipe: Recipe, tmp_path: Path
) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    port = address.rsplit(":", 1)[-1]
    processes = [
        _start("dask_scheduler", "--host", "127.0.0.1", "--port", port, folder=tmp_path),
        _start("dask_worker", address, "--nthreads", "1", "--no-nanny", folder=tmp_path),
    ]
    try:
        _wait_for(port)
        report = run(recipe, cluster=Cluster(address=address))
        assert report.ok
        assert report.rows == 300
        with Client(address, timeout="10s") as client:
            assert len(client.scheduler_info()["workers"]) == 1, "the scheduler outlives the run"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_an_unreachable_scheduler_is_reported(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.compute.cluster._TIMEOUT", "1s")
    with pytest.raises(ClusterError, match="the scheduler does not respond"):
        run(recipe, cluster=Cluster(address=f"tcp://127.0.0.1:{free_port()}"))


def _start(program: str, *arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _wait_for(port: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the scheduler did not start")
