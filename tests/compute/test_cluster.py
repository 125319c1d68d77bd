"""Runs use an existing scheduler and leave it running; an unreachable one is reported."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Scheduler, Worker
from typer.testing import CliRunner

from etl.cli.app import app
from etl.compute.cluster import Cluster
from etl.compute.cluster_request import ClusterRequest
from etl.compute.connect import CLUSTERS, ClusterType, find_cluster_type
from etl.compute.dask_tasks import map_unordered
from etl.compute.worker_count import num_cores
from etl.errors import ClusterError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cluster import cluster
from tests.helpers.listeners import Calls
from tests.helpers.ports import free_ports, wait_for_port


def test_a_run_uses_an_existing_scheduler_and_leaves_it_running(
    recipe: Recipe, tmp_path: Path
) -> None:
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    port = address.rsplit(":", 1)[-1]
    processes = [
        _start("dask_scheduler", "--host", "127.0.0.1", "--port", port, folder=tmp_path),
        _start("dask_worker", address, "--nthreads", "1", "--no-nanny", folder=tmp_path),
    ]
    try:
        wait_for_port(int(port))
        report = run(recipe, cluster=Cluster(address=address))
        assert report.ok
        assert report.rows == 300
        with Client(address, timeout="10s") as client:
            assert len(client.scheduler_info()["workers"]) == 1, "the scheduler outlives the run"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_local_cluster_has_one_worker_for_little_input() -> None:
    with Cluster().connect(planned_bytes=1000) as client:
        assert len(client.scheduler_info()["workers"]) == 1


def test_without_workers_a_run_stays_in_its_process(recipe: Recipe) -> None:
    addresses: list[str] = []

    def keep_address(client: Client) -> None:
        addresses.append(client.scheduler.address)

    report = run(recipe, cluster=Cluster(workers=0), listener=Calls(connected=keep_address))
    assert (report.ok, report.rows) == (True, 300)
    assert [address.startswith("inproc://") for address in addresses] == [True]


def test_workers_are_not_profiled_by_a_python_that_may_hang() -> None:
    def is_profiled(dask_worker: Worker) -> bool:
        return "profile" in dask_worker.periodic_callbacks

    with Cluster().connect(planned_bytes=1000) as client:
        assert {*client.run(is_profiled).values()} == {sys.version_info >= (3, 11, 12)}


@pytest.mark.slow
@pytest.mark.parametrize("planned_bytes", [10**12, None])
def test_a_local_cluster_has_a_worker_per_core(planned_bytes: int | None) -> None:
    with Cluster().connect(planned_bytes=planned_bytes) as client:
        assert len(client.scheduler_info()["workers"]) == num_cores()


def test_an_unreachable_scheduler_is_reported(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.compute.connect._TIMEOUT", "1s")
    with pytest.raises(ClusterError, match="the scheduler does not respond"):
        run(recipe, cluster=Cluster(address=f"tcp://127.0.0.1:{free_ports(1)[0]}"))


@pytest.mark.parametrize("address", ["tpc://127.0.0.1:8786", "k9s:cluster.yaml"])
def test_an_unknown_type_of_cluster_is_refused_with_the_known_ones(
    recipe: Recipe, address: str
) -> None:
    scheme = address.partition(":")[0]
    with pytest.raises(ClusterError, match=f"unknown type of cluster '{scheme}'") as caught:
        run(recipe, cluster=Cluster(address))
    assert caught.value.where == address
    assert "known names: tcp, tls, k8s" in str(caught.value.hint)
    assert ("did you mean 'tcp'?" in str(caught.value.hint)) == (scheme == "tpc")


def test_an_address_without_a_scheme_is_one_of_a_scheduler() -> None:
    assert find_cluster_type("localhost:8786") is find_cluster_type("tcp://localhost:8786")


@contextmanager
def start_in_process(address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """A type of cluster: one worker in this process, with as many threads as the address says."""
    threads = int(str(address).removeprefix("inprocess://"))
    with cluster(threads) as client:
        yield client


@pytest.mark.slow
def test_a_new_type_of_cluster_needs_one_line(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_type: ClusterType = start_in_process
    monkeypatch.setitem(CLUSTERS, "inprocess", cluster_type)
    threads: list[int] = []
    report = run(
        recipe,
        cluster=Cluster("inprocess://2"),
        time_limit=math.inf,
        listener=Calls(connected=lambda client: threads.extend(client.nthreads().values())),
    )
    assert report.ok
    assert threads == [2]
    with pytest.raises(ClusterError) as caught:
        find_cluster_type("inproces://2")
    assert (
        caught.value.hint
        == "did you mean 'inprocess'? known names: tcp, tls, k8s, slurm, inprocess"
    )
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    command = ["run", str(tmp_path / "recipe.yaml"), "--lake", str(tmp_path / "other")]
    result = CliRunner().invoke(app, [*command, "--cluster", "inprocess://1"])
    assert result.exit_code == 0, result.output


def _start(program: str, *arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow  # Dask connects again after a second
def test_a_unit_does_not_fail_because_the_scheduler_was_replaced(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    arguments = ("--host", "127.0.0.1", "--port", address.rsplit(":", 1)[-1])
    scheduler = _start("dask_scheduler", *arguments, folder=tmp_path)
    try:
        with Cluster(address).connect() as client:
            answers = map_unordered(client, abs, [(-1,), (-2,)], label="test")
            units = iter(answers)
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(next, units)  # it waits: no worker has joined
                while not client.futures:
                    time.sleep(0.05)
                scheduler.kill()
                scheduler.wait()
                scheduler = _start("dask_scheduler", *arguments, folder=tmp_path)
                with pytest.raises(ClusterError, match="the scheduler was lost"):
                    first.result(timeout=60)
    finally:
        scheduler.kill()
        scheduler.wait()


@pytest.mark.slow  # Dask tries for a while to connect again
def test_the_loss_of_the_scheduler_is_one_message(recipe: Recipe, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    port = address.rsplit(":", 1)[-1]
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml(), "utf-8")
    command = "from etl.cli.app import main; main()"
    scheduler = _start("dask_scheduler", "--host", "127.0.0.1", "--port", port, folder=tmp_path)
    try:
        wait_for_port(int(port))
        etl = [sys.executable, "-c", command, "run", str(path), "--cluster", address]
        job = subprocess.Popen(etl, stderr=subprocess.PIPE, text=True)
        with Client(address, timeout="30s") as client:

            def count_clients(dask_scheduler: Scheduler) -> int:
                return len(dask_scheduler.clients)

            # One belongs to the scheduler, and one is this client. The third is the run's, which waits.
            while job.poll() is None and client.run_on_scheduler(count_clients) < 3:
                time.sleep(0.05)
        scheduler.kill()
        _, errors = job.communicate(timeout=120)
    finally:
        scheduler.kill()
        scheduler.wait()
    assert job.returncode == 1
    assert "Traceback" not in errors
    assert "error: " + address + ": the scheduler was lost" in errors


@pytest.mark.parametrize("workers", [-1, "many", 1.5])
def test_a_wrong_number_of_workers_is_an_error(workers: Any) -> None:
    with pytest.raises(ClusterError, match="is not a number of workers"):
        Cluster(workers=workers)


def test_a_cluster_elsewhere_has_workers() -> None:
    with pytest.raises(ClusterError, match="0 is not a number of workers"):
        Cluster("tcp://localhost:8786", workers=0)
