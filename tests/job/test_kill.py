"""A run killed at any moment: the next run resumes, and the lake equals that of an undisturbed run."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distributed import Client

from etl.audit.verify.verify import verify
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, end_run, outcome, start_run, version_of
from tests.helpers.lake_rows import addresses, rows
from tests.helpers.paths import NewPlace
from tests.helpers.recipes import MakeRecipe

Kill = Callable[[subprocess.Popen[bytes]], None]


@pytest.fixture(scope="module")
def undisturbed(client: Client, make_recipe: MakeRecipe, new_place: NewPlace) -> Outcome:
    recipe = make_recipe(new_place("undisturbed") / "lake")
    run(recipe, cluster=client)
    return outcome(recipe)


def _kill_driver(process: subprocess.Popen[bytes]) -> None:
    process.kill()


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("moment", "kill"),
    [
        (("documents", 3), _kill_all),
        *(
            pytest.param(moment, kill, marks=pytest.mark.slow)
            for moment, kill in (
                (("documents", 0), _kill_all),
                (("keys", 0), _kill_driver),
                (("documents", 6), _kill_driver),
                (("duplicates", 1), _kill_driver),
                (("keys", 1), _kill_all),
                (("tokens", 2), _kill_all),
            )
        ),
    ],
)
def test_a_killed_run_resumes(
    client: Client,
    recipe: Recipe,
    tmp_path: Path,
    undisturbed: Outcome,
    moment: tuple[str, int],
    kill: Kill,
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = start_run(file)
    try:
        while process.poll() is None and version_of(recipe, moment[0]) < moment[1]:
            time.sleep(0.02)
    finally:
        kill(process)
        process.wait()
    run(recipe, cluster=client)
    assert outcome(recipe) == undisturbed
    end_run(process)


@pytest.mark.parametrize("commit", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_a_run_killed_between_documents_and_texts_reads_the_split_again(
    client: Client, recipe: Recipe, tmp_path: Path, undisturbed: Outcome, commit: int
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = start_run(file, f"texts-{commit}")
    assert process.wait(timeout=120) == -signal.SIGKILL
    end_run(process)
    kept = [row for row in rows(recipe.lake, "documents") if row["verdict"] == "kept"]
    assert set(addresses(rows(recipe.lake, "texts"))) < set(addresses(kept))
    assert verify(str(recipe.lake)) == []
    assert make_plan(recipe).done == commit - 1
    run(recipe, cluster=client)
    assert outcome(recipe) == undisturbed


@pytest.mark.slow
def test_a_run_killed_several_times_resumes(
    client: Client, recipe: Recipe, tmp_path: Path, undisturbed: Outcome
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    for wait in (2.5, 3.5):
        process = start_run(file)
        time.sleep(wait)
        _kill_all(process)
        process.wait()
    run(recipe, cluster=client)
    assert outcome(recipe) == undisturbed


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_result(
    recipe: Recipe, tmp_path: Path, undisturbed: Outcome
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = start_run(file)
    try:
        while process.poll() is None and version_of(recipe, "documents") < 2:
            time.sleep(0.02)
        victims = [p for p in psutil.Process(process.pid).children(recursive=True) if _is_worker(p)]
        for victim in victims[:1]:
            victim.kill()
        assert process.wait(timeout=120) == 0
    finally:
        end_run(process)
    assert outcome(recipe) == undisturbed


@pytest.mark.slow
def test_two_concurrent_drivers_do_not_change_the_result(
    recipe: Recipe, tmp_path: Path, undisturbed: Outcome
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    drivers = [start_run(file), start_run(file)]
    assert [driver.wait(timeout=180) for driver in drivers] == [0, 0]
    assert outcome(recipe) == undisturbed


def _is_worker(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())
