"""A worker of another version is refused before it works, also if it joins late."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client, LocalCluster

from etl.compute import missing_workers
from etl.compute.library_versions import library_versions
from etl.compute.listener import Progress
from etl.errors import ClusterError
from etl.job.run import run
from etl.lake.quarantine import Quarantine
from etl.recipe.recipe import Recipe
from tests.helpers.cli import ROOT
from tests.helpers.listeners import Calls


class Workers:
    """Worker processes of a scheduler."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.processes: list[subprocess.Popen[bytes]] = []
        self._folder = folder

    def start(self, *first_on_path: Path) -> None:
        """Start a worker that finds packages in these folders first."""
        path = os.pathsep.join(map(str, (*first_on_path, ROOT)))
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.address]
        process = subprocess.Popen(
            [*command, "--no-dashboard", "--no-nanny", "--nthreads", "1"],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)

    def stop(self) -> None:
        """Kill all workers."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as own:
        workers = Workers(own.scheduler_address, tmp_path)
        try:
            yield workers
        finally:
            workers.stop()


@pytest.fixture
def client(workers: Workers) -> Iterator[Client]:
    with Client(workers.address) as client:
        yield client


def other_pyarrow(folder: Path) -> Path:
    """Return a folder for the path of a worker, which then reports pyarrow 1.2.3."""
    metadata = folder / "other" / "pyarrow-1.2.3.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.2.3\n")
    return metadata.parent.parent


def without_tokenlake(folder: Path) -> Path:
    """Return a folder for the path of a worker, which then finds another package of that name."""
    package = folder / "without" / "etl" / "__init__.py"
    package.parent.mkdir(parents=True)
    # An editable installation would find the modules of this package wherever it is.
    package.write_text(
        "import sys\n"
        "sys.meta_path = [m for m in sys.meta_path if 'Editable' not in getattr(m, '__name__', '')]\n"
    )
    return package.parent.parent


def test_workers_of_other_versions_are_refused_before_any_work(
    client: Client, workers: Workers, recipe: Recipe, tmp_path: Path
) -> None:
    workers.start(other_pyarrow(tmp_path))
    workers.start(without_tokenlake(tmp_path))
    client.wait_for_workers(2)
    with pytest.raises(ClusterError) as caught:
        run(recipe, cluster=client)
    addresses = client.nthreads()
    assert all(f"the worker {address} has " in caught.value.what for address in addresses)
    assert f"has pyarrow 1.2.3 (the driver: {pa.__version__});" in f"{caught.value.what};"
    assert "cannot be imported (ModuleNotFoundError" in caught.value.what
    assert f"pip install pyarrow=={pa.__version__}" in str(caught.value.hint)
    assert caught.value.where == workers.address
    assert not (tmp_path / "lake" / "documents").exists()
    assert library_versions()["pyarrow"] == pa.__version__ == version("pyarrow")


@pytest.mark.slow
def test_a_late_worker_of_another_version_stops_the_run_and_quarantines_nothing(
    client: Client, workers: Workers, recipe: Recipe, tmp_path: Path
) -> None:
    workers.start()
    client.wait_for_workers(1)
    replaced: list[Progress] = []

    def replace_worker(progress: Progress) -> None:
        if not replaced:
            replaced.append(progress)
            workers.stop()
            workers.start(other_pyarrow(tmp_path))

    with pytest.raises(ClusterError, match="1\\.2\\.3"):
        run(recipe, cluster=client, listener=Calls(progress=replace_worker))
    assert replaced
    assert Quarantine(str(recipe.lake)).notes() == []
    workers.stop()
    workers.start()
    assert run(recipe, cluster=client).ok


@pytest.mark.slow
def test_a_late_worker_without_the_package_is_reported_and_the_run_waits_for_another(
    client: Client,
    workers: Workers,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Dask ends a worker that cannot read the message with its first task.
    workers.start()
    client.wait_for_workers(1)
    replaced: list[Progress] = []
    reported: list[str] = []

    def replace_worker(progress: Progress) -> None:
        if not replaced:
            replaced.append(progress)
            workers.stop()
            workers.start(without_tokenlake(tmp_path))

    def report(line: str) -> None:
        if not reported:
            reported.append(line)
            workers.start()

    monkeypatch.setattr(missing_workers, "_PATIENCE", 4.0)
    assert run(recipe, cluster=client, listener=Calls(note=report, progress=replace_worker)).ok
    assert "s after it joined: see its log" in reported[0]
    assert Quarantine(str(recipe.lake)).notes() == []
