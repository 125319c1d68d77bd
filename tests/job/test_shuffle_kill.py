"""A shuffle killed at any moment: the next one resumes, and each row is in the table once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from distributed import Client

from etl import storage
from etl.job.shuffle import ShuffleSettings, shuffle
from tests.helpers.killed_runs import end_run
from tests.helpers.shuffled_lakes import Documents, add_tokens, all_rows, shuffled_rows

DOCUMENTS: Documents = {f"s3://in/{i}": [3 * i + 5, 0, 40, 7] * 3 for i in range(40)}

Kill = Callable[[subprocess.Popen[bytes]], None]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    add_tokens(str(tmp_path / "lake"), DOCUMENTS)
    return str(tmp_path / "lake")


@pytest.fixture
def start(lake: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Return a function that starts a shuffle of the lake; end all of them."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.helpers.shuffle_driver", lake]
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        end_run(process)
        process.wait()


def _notes(lake: str, name: str) -> int:
    return len(list(Path(lake).glob(f"scratch/shuffle/*/{name}-*.json")))


def _check(lake: str, client: Client) -> None:
    shuffle(lake, settings=ShuffleSettings(bucket_bytes=256), cluster=client)
    assert sorted(shuffled_rows(lake)) == sorted(all_rows(DOCUMENTS))
    assert not storage.is_folder(str(Path(lake) / "scratch"))


def _kill_driver(process: subprocess.Popen[bytes]) -> None:
    process.kill()


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "kill"),
    [
        (("split", 0), _kill_all),
        (("split", 7), _kill_driver),
        (("sort", 1), _kill_all),
        (("sort", 60), _kill_driver),
    ],
)
def test_a_killed_shuffle_resumes(
    client: Client,
    lake: str,
    start: Callable[[], subprocess.Popen[bytes]],
    moment: tuple[str, int],
    kill: Kill,
) -> None:
    process = start()
    while process.poll() is None and _notes(lake, moment[0]) < moment[1]:
        time.sleep(0.005)
    kill(process)
    process.wait()
    _check(lake, client)


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_result(
    client: Client, lake: str, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = start()
    while process.poll() is None and _notes(lake, "split") < 5:
        time.sleep(0.005)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    for worker in workers[:1]:
        worker.kill()
    assert process.wait(timeout=120) == 0
    _check(lake, client)


@pytest.mark.slow
def test_two_concurrent_shuffles_add_each_row_once(
    client: Client, lake: str, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    drivers = [start(), start()]
    assert [driver.wait(timeout=120) for driver in drivers] == [0, 0]
    _check(lake, client)
