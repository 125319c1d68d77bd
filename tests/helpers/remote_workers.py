"""A scheduler and workers as separate processes, which do not see some folders of this machine."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from distributed import Client

from tests.helpers.ports import free_ports, wait_for_port

_UNSHARE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-Urm")


@dataclass
class RemoteCluster:
    """A scheduler; workers are added, each on a machine with its own local directory."""

    address: str
    folder: Path
    hidden: Path  # empty for the workers
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self, machine: str, *, disk_bytes: int | None = None) -> None:
        """Start a worker process of a machine, whose disk may have a limit."""
        local = self.folder / machine
        local.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.address]
        command += ["--no-dashboard", "--no-nanny", "--nthreads", "1"]
        command += ["--local-directory", str(local), "--preload", "etl.job.tasks"]
        script = f"mount -t tmpfs none {shlex.quote(str(self.hidden))}"
        if disk_bytes is not None:
            script += f" && mount -t tmpfs -o size={disk_bytes} none {shlex.quote(str(local))}"
        script += f" && exec {shlex.join(command)}"
        with (self.folder / f"{machine}.log").open("ab") as log:
            process = subprocess.Popen(
                [*_UNSHARE, "sh", "-c", script],
                cwd=local,
                env=_environment(),
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)

    def wait_for(self, workers: int) -> None:
        """Wait until the scheduler has this number of workers."""
        with Client(self.address, timeout="30s") as client:
            client.wait_for_workers(workers, timeout=60)

    def stop_workers(self) -> None:
        """Kill all workers."""
        for process in self.processes[1:]:
            _stop(process)
        del self.processes[1:]


@contextmanager
def remote_cluster(folder: Path, hidden: Path) -> Iterator[RemoteCluster]:
    """Start a scheduler without workers; skip the test if this user may not create mount namespaces."""
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare is not permitted")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    with (folder / "scheduler.log").open("wb") as log:
        scheduler = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=_environment(),
            stdout=log,
            stderr=log,
        )
    cluster = RemoteCluster(f"tcp://127.0.0.1:{port}", folder, hidden, [scheduler])
    try:
        wait_for_port(port)
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            _stop(process)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
