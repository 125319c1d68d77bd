"""Pods are lost while a run is in progress: it goes on, and its result is exact."""

from collections.abc import Iterator
from contextlib import contextmanager
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
    site: Site, recipe_file: Path, lake: str, expected: Outcome, *, workers: int = 2
) -> Iterator[None]:
    """Start a run in which the caller kills pods; check its result and what it leaves behind."""
    url = f"s3://tokenlake/{lake}"
    with site.run(recipe_file, {"TOKENLAKE_LAKE": url, "LAB_SECONDS": SECONDS}, workers=workers):
        site.wait_for_splits(1)
        yield
        assert site.is_running()
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
        wait_until(lambda: len(ready(site)) == 4, seconds=60, what="4 workers")
        for pod in ready(site):
            site.lose(pod)
            wait_until(lambda: len(ready(site)) == 4, seconds=60, what="the worker is replaced")


def ready(site: Site) -> list[str]:
    """Return the workers whose containers run."""
    return [
        pod["metadata"]["name"]
        for pod in site.lab.items("pods", WORKERS)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
