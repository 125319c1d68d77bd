"""Local workers are forks of a process that has loaded their modules."""

import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest

from etl.compute.cluster import Cluster
from etl.compute.compile_log import follow_compile_log
from etl.compute.fork_server import MODULES
from etl.compute.local_cluster import has_dashboard
from etl.compute.worker_settings import WORKER_ENVIRONMENT
from etl.kernels.compile_clock import NUM_KERNELS, CompileClock

_ANY = "00000000"  # all addresses of this machine
_OF_JEMALLOC = "jemalloc_bg_thd"  # which prepares itself for a fork


def run_python(code: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True)


def test_the_modules_start_no_threads_that_a_fork_would_lack() -> None:
    code = (
        f"import {', '.join(MODULES)}\n"
        "from pathlib import Path\n"
        "tasks = Path('/proc/self/task').iterdir()\n"
        "print(*((task / 'comm').read_text().strip() for task in tasks))"
    )
    result = run_python(code, env={**os.environ, **WORKER_ENVIRONMENT})
    main, *others = result.stdout.split()
    assert main.startswith("python")
    assert {*others} <= {_OF_JEMALLOC}


def test_a_worker_has_the_environment_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(workers=1).connect(1000):
        pass  # the server runs now
    monkeypatch.setenv("SET_LATER", "yes")
    monkeypatch.delenv("PATH")
    with Cluster(workers=1).connect(1000) as client:
        (names,) = client.run(_environment).values()
    assert names["SET_LATER"] == "yes"
    assert names == dict(os.environ)
    assert names.items() >= WORKER_ENVIRONMENT.items()


def test_without_a_place_for_the_socket_of_the_server_workers_are_spawned(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    code = (
        "import os\n"
        "from etl.compute.cluster import Cluster\n"
        "with Cluster(workers=1).connect(1000) as client:\n"
        "    print(*client.run(os.getppid).values(), os.getpid())"
    )
    environment = {**os.environ, "TMPDIR": str(folder)}
    result = run_python(code, env=environment)
    parent, driver = result.stdout.split()
    assert parent == driver


def test_a_fork_of_the_driver_spawns_workers() -> None:
    code = (
        "import os\n"
        "from etl.compute.fork_server import start_fork_server\n"
        "start_fork_server()\n"
        "if os.fork() == 0:\n"
        "    print(start_fork_server())\n"
        "else:\n"
        "    os.wait()"
    )
    assert run_python(code).stdout == "spawn\n"


def test_the_server_imports_what_the_driver_would(tmp_path: Path) -> None:
    """Its own path would begin with the working folder, and lack what the driver has added."""
    for name in ("working", "added"):
        (tmp_path / name).mkdir()
        marker = tmp_path / name / "imported"
        (tmp_path / name / "dask.py").write_text(
            f"open({str(marker)!r}, 'w').close()\nraise ImportError"
        )
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys\n"
        "from multiprocessing import get_context\n"
        "from etl.compute.fork_server import start_fork_server\n"
        "if __name__ == '__main__':\n"
        "    sys.path.insert(0, sys.argv[1])\n"
        "    start_fork_server()\n"
        "    process = get_context('forkserver').Process(target=int)\n"
        "    process.start()\n"
        "    process.join()"
    )
    command = [sys.executable, str(script), str(tmp_path / "added")]
    subprocess.run(command, cwd=tmp_path / "working", check=True)
    assert [path.parent.name for path in tmp_path.glob("*/imported")] == ["added"]


def test_a_script_may_come_from_standard_input() -> None:
    code = (
        "from etl.compute.cluster import Cluster\n"
        "with Cluster(workers=1).connect(1000) as client:\n"
        "    print(*client.run(int, '7').values())"
    )
    command = [sys.executable, "-"]
    result = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    assert result.stdout == "7\n"


def test_ctrl_c_does_not_reach_the_server_while_it_loads() -> None:
    code = (
        "import os, signal\n"
        "from multiprocessing import forkserver, get_context\n"
        "from etl.compute.fork_server import start_fork_server\n"
        "start_fork_server()\n"
        "os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)\n"
        "process = get_context('forkserver').Process(target=int)\n"
        "process.start()\n"
        "process.join()\n"
        "print(process.exitcode)"
    )
    result = run_python(code)
    assert (result.stdout, result.stderr) == ("0\n", "")


def test_a_worker_that_crashes_is_replaced() -> None:
    with Cluster(workers=1).connect(1000) as client:
        (before,) = client.run(os.getpid).values()
        assert _parent(before) != os.getpid(), "it is a fork of the server"
        future = client.submit(os.abort)
        assert type(future.exception(timeout=60)).__name__ == "KilledWorker"
        client.wait_for_workers(1, timeout=60)
        (after,) = client.run(os.getpid).values()
        assert after != before


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_small_run_has_no_dashboard() -> None:
    with Cluster().connect(1000) as client:
        assert not has_dashboard(client)
    with Cluster(workers=1).connect(10**12) as client:
        assert has_dashboard(client)


@pytest.mark.parametrize(("dashboard", "is_open"), [(None, False), ("0.0.0.0:0", True)])
def test_the_dashboard_is_open_to_other_machines_only_if_asked(
    dashboard: str | None, is_open: bool
) -> None:
    with Cluster(workers=1, dashboard=dashboard).connect(10**12) as client:
        [worker] = client.scheduler_info(n_workers=-1)["workers"].values()
        ports = {urlsplit(client.dashboard_link).port, worker["services"]["dashboard"]}
        addresses = [address for address, port in _listening() if port in ports]
    assert len(addresses) == 2
    assert (_ANY in addresses) == is_open


def test_messages_about_compiled_kernels_reach_the_driver() -> None:
    shown: SimpleQueue[str] = SimpleQueue()
    with Cluster(workers=1).connect(1000) as client, follow_compile_log(client, shown.put):
        client.submit(_compile).result()
        assert shown.get(timeout=60) == (
            "kernels    compiling kernels, once per machine: words.split "
            f"(1 of at most {NUM_KERNELS})"
        )


def _listening() -> list[tuple[str, int]]:
    """Return the addresses (as the kernel prints them) and ports on which this machine listens."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split()[1].split(":") for line in lines if line.split()[3] == "0A"]
    return [(address, int(port, 16)) for address, port in sockets]


def _compile() -> None:
    CompileClock().begin("words.split")
