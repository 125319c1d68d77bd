"""Runs on a real control plane give the tables of a local run, and leave nothing behind."""

import time
from pathlib import Path

from etl.compute.cluster import Cluster
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import rows_by_table
from tests.k8s.lab.job import OVERLAY, WORKERS, Site
from tests.k8s.lab.lab import wait_until


def test_the_demo_runs_as_documented_and_leaves_nothing(
    site: Site, tmp_path: Path, figures: list[str]
) -> None:
    before = site.inventory()
    used = site.lab.plane.cpu_seconds()
    started = time.monotonic()
    site.lab.kubectl("apply", "--kustomize", OVERLAY)
    try:
        wait_until(lambda: " splits " in site.driver_log(), seconds=200, what="a split is done")
        first = time.monotonic() - started
        site.wait_for_end()
        total = time.monotonic() - started
        figures.append(f"first split after {first:.1f} s, complete after {total:.1f} s")
        now = site.lab.plane.cpu_seconds()
        spent = {name: round(seconds - used[name], 1) for name, seconds in now.items()}
        figures.append(f"CPU seconds of the control plane in this time: {spent}")
        assert len(site.lab.names("pods", WORKERS)) == 2
    finally:
        site.delete()
    assert site.inventory() == before

    local = Recipe.load("demo").model_copy(update={"lake": str(tmp_path / "lake")})
    run(local, cluster=Cluster(workers=2))
    remote = local.model_copy(update={"lake": "s3://tokenlake/demo"})
    assert rows_by_table(remote) == rows_by_table(local)


def test_requests_of_pods_were_never_denied(site: Site) -> None:
    """The operator, the driver and a person need no verb that they lack.

    Requests of kubectl, and of the account without rights, belong to other tests.
    """
    denied = [
        (entry["user"]["username"], entry["verb"], entry["requestURI"])
        for entry in site.lab.plane.audited()
        if entry.get("responseStatus", {}).get("code") == 403
        and not entry["userAgent"].startswith("kubectl")
        and not entry["user"]["username"].endswith(":stranger")
    ]
    assert denied == []
