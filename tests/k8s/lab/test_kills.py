"""Pods are lost while a run is in progress: it goes on, and its result is exact."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, outcome
from tests.k8s.lab.job import DRIVER, SCHEDULER, WORKERS, Site
from tests.k8s.lab.lab import wait_until

SECONDS = "1.5"
"""How long each of the 24 splits takes at least, so that a run is in progress when a pod is lost."""


@contextmanager
def killed_run(
    site: Site,
    recipe_file: Path,
    lake: str,
    expected: Outcome,
    *,
    workers: int = 2,
    splits: int = 1,
) -> Iterator[None]:
    """Start a run in which the caller kills pods; check its result and what it leaves behind.

    Pods are killed once ``splits`` are done, and before the run ends; with 0, at any time.
    """
    url = f"s3://tokenlake/{lake}"
    with site.run(recipe_file, {"TOKENLAKE_LAKE": url, "LAB_SECONDS": SECONDS}, workers=workers):
        if splits:
            site.wait_for_splits(splits)
        yield
        assert site.is_running() or not splits
        site.wait_for_end()
    assert not site.lab.names("daskclusters,daskworkergroups,jobs,deployments", f"{MANAGED}")
    assert outcome(Recipe.load(recipe_file, settings=[f"lake={url}"])) == expected


MANAGED = "app.kubernetes.io/name=tokenlake"


@pytest.mark.parametrize(
    "role", [WORKERS, SCHEDULER, DRIVER], ids=["worker", "scheduler", "driver"]
)
@pytest.mark.parametrize("how", ["lose", "crash"])
def test_a_pod_is_lost(
    site: Site, recipe_file: Path, expected: Outcome, role: str, how: str
) -> None:
    name = role.split("=")[1]
    with killed_run(site, recipe_file, f"{name}-{how}", expected):
        pod = site.lab.names("pods", role)[0]
        getattr(site, how)(pod)


def test_each_of_four_workers_is_lost_once(
    site: Site, recipe_file: Path, expected: Outcome
) -> None:
    with killed_run(site, recipe_file, "four", expected, workers=4):
        wait_until(lambda: len(running(site)) == 4, seconds=60, what="4 workers")
        for pod in running(site):
            site.lose(pod)
            wait_until(lambda: len(running(site)) == 4, seconds=60, what="the worker is replaced")


@pytest.mark.parametrize("seed", [1, 2])
def test_pods_are_lost_at_random(
    site: Site, recipe_file: Path, expected: Outcome, seed: int
) -> None:
    chance = random.Random(seed)
    with killed_run(site, recipe_file, f"random-{seed}", expected, workers=3, splits=0):
        for _ in range(6):
            time.sleep(chance.uniform(0, 8))
            role = chance.choices([WORKERS, SCHEDULER, DRIVER], weights=[3, 1, 1])[0]
            how = chance.choice([site.lose, site.crash])
            pods = running(site, role)
            with suppress(AssertionError):  # the pod, or the run, has just ended
                if pods and site.is_running():
                    how(chance.choice(pods))


def running(site: Site, role: str = WORKERS) -> list[str]:
    """Return the pods of a role whose containers run."""
    return [
        pod["metadata"]["name"]
        for pod in site.lab.items("pods", role)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
