"""The API server is killed or silent during a run from outside, and while its cluster is deleted."""

import time
from pathlib import Path

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, outcome
from tests.k8s.lab.job import Site
from tests.k8s.lab.outside import run, wait_for_splits

pytestmark = pytest.mark.usefixtures("slow")


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
