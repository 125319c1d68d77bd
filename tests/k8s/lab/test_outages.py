"""The API server is killed or silent during a run from outside, and while its cluster is deleted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.cli import start
from tests.helpers.killed_runs import Outcome, outcome
from tests.k8s.lab.job import Site
from tests.k8s.lab.test_cluster_file import folder, person, unchanged

__all__ = ["folder", "person", "unchanged"]


@pytest.fixture(autouse=True)
def slow(site: Site) -> Iterator[None]:
    """Let each split take a while, so that a run is in progress when the API server is lost."""
    patch = ("patch", "configmap", "tokenlake-settings", "--type=merge", "--patch")
    site.lab.kubectl(*patch, '{"data": {"LAB_SECONDS": "1.5"}}')
    yield
    site.lab.kubectl(*patch, '{"data": {"LAB_SECONDS": null}}')


@contextmanager
def run(lake: str, *options: str) -> Iterator["Popen[str]"]:
    """Start a run from outside, and kill it at the end."""
    words = ("run", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    process = start(*words, *options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_splits(process: "Popen[str]") -> None:
    """Wait until splits are done."""
    assert process.stderr is not None
    seen = ""
    while not (line := process.stderr.readline()).startswith("documents   "):
        seen += line
        assert line, seen


@pytest.mark.parametrize(("how", "seconds"), [("kill", 1), ("kill", 30), ("silence", 60)])
def test_a_run_continues_after_an_outage(
    site: Site, folder: Path, unchanged: None, expected: Outcome, how: str, seconds: int
) -> None:
    lake = f"s3://tokenlake/{how}-{seconds}"
    plane = site.lab.plane
    with run(lake) as process:
        wait_for_splits(process)
        with plane.without_api_server() if how == "kill" else plane.with_silent_api_server():
            time.sleep(seconds)
        _, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert "Traceback" not in error
    assert "does not respond" in error
    assert "responds again" in error
    assert outcome(Recipe.load(folder / "recipe.yaml", settings=[f"lake={lake}"])) == expected


def test_a_cluster_is_deleted_after_an_outage(site: Site, folder: Path, unchanged: None) -> None:
    with run("s3://tokenlake/deleted-late") as process:
        wait_for_splits(process)
        with site.lab.plane.without_api_server():
            process.terminate()
            time.sleep(20)
            assert process.poll() is None
        _, error = process.communicate(timeout=120)
    assert process.returncode == 143, error
    assert "cluster    tokenlake deleted" in error
    assert "Traceback" not in error
