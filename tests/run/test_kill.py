"""Kill -9 at any moment; the next run goes on, and the lake is that of an undisturbed run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distributed import Client

from etl import storage
from etl.plan import make_plan
from etl.recipe import Recipe
from etl.runner import run
from etl.table import Table
from tests.run.test_run import other_lake, rows

Kill = Callable[[subprocess.Popen[bytes]], None]


def _driver(process: subprocess.Popen[bytes]) -> None:
    process.kill()


def _all(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def _version(recipe: Recipe, name: str) -> int:
    url = storage.join(str(recipe.lake), name)
    return Table.open(url).version if Table.exists(url) else -1


@pytest.mark.parametrize("kill", [_driver, _all])
@pytest.mark.parametrize(
    "moment", [("documents", 0), ("documents", 2), ("duplicates", 0), ("duplicates", 1), ("tokens", 2)]
)
def test_a_killed_run_goes_on(
    client: Client, recipe: Recipe, tmp_path: Path, moment: tuple[str, int], kill: Kill
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = _start(file)
    try:
        while process.poll() is None and _version(recipe, moment[0]) < moment[1]:
            time.sleep(0.02)
    finally:
        kill(process)
        process.wait()
    run(recipe, cluster=client)
    _same_as_undisturbed(client, recipe)
    _end(process)


def test_killed_again_and_again(client: Client, recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    for wait in (2.5, 3.0, 3.5):
        process = _start(file)
        time.sleep(wait)
        _all(process)
        process.wait()
    run(recipe, cluster=client)
    _same_as_undisturbed(client, recipe)


def test_a_worker_is_killed(client: Client, recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = _start(file)
    try:
        while process.poll() is None and _version(recipe, "documents") < 2:
            time.sleep(0.02)
        victims = [p for p in psutil.Process(process.pid).children(recursive=True) if _works(p)]
        for victim in victims[:1]:
            victim.kill()
        assert process.wait(timeout=120) == 0
    finally:
        _end(process)
    _same_as_undisturbed(client, recipe)


def test_two_drivers_at_once(client: Client, recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    drivers = [_start(file), _start(file)]
    assert [driver.wait(timeout=180) for driver in drivers] == [0, 0]
    _same_as_undisturbed(client, recipe)


def _start(file: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.run.driver", str(file)]
    return subprocess.Popen(command, start_new_session=True)


def _works(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of a killed run outlives its test."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _same_as_undisturbed(client: Client, recipe: Recipe) -> None:
    undisturbed = other_lake(recipe, "undisturbed")
    run(undisturbed, cluster=client)
    for name in recipe.steps:
        assert rows(recipe.lake, name) == rows(undisturbed.lake, name)
    assert not make_plan(recipe).has_work()
