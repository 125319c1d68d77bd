"""The commands with a cluster file, by a person with the role `tokenlake-user`, on a real control plane."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.cli import start
from tests.helpers.killed_runs import Outcome, outcome
from tests.k8s.lab.job import WORKERS, Site
from tests.k8s.lab.lab import wait_until
from tests.k8s.lab.outside import FILE, etl


def test_a_run_from_outside(folder: Path, unchanged: None, expected: Outcome) -> None:
    lake = "s3://tokenlake/outside"
    result = etl("run", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert result.returncode == 0, result.stderr
    assert outcome(Recipe.load(folder / "recipe.yaml", settings=[f"lake={lake}"])) == expected


def test_a_run_that_is_terminated_leaves_nothing(site: Site, folder: Path, unchanged: None) -> None:
    process = start(
        *("run", "recipe.yaml", "--lake", "s3://tokenlake/stopped", "--cluster", "k8s:cluster.yaml")
    )
    wait_until(lambda: site.lab.names("pods", WORKERS), seconds=60, what="the cluster starts")
    process.terminate()
    _, error = process.communicate(timeout=120)
    assert process.returncode == 143, error  # SIGTERM
    assert "run the same command to continue" in error


def test_a_submitted_driver(site: Site, folder: Path, expected: Outcome) -> None:
    lake = "s3://tokenlake/submitted"
    before = site.inventory()
    result = etl("submit", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert result.returncode == 0, result.stderr
    try:
        site.wait_for_end()
        status = etl("cluster", "status", "cluster.yaml")
        assert "driver      complete (exit code 0)" in status.stdout
        assert f"lake        {lake}" in etl("logs", "cluster.yaml").stdout
        wait_until(
            lambda: {kind for kind, _ in site.inventory() - before} <= {"Job", "Pod", "ConfigMap"},
            seconds=60,
            what="only the driver is left",
        )
        assert len(site.lab.items("pods", "app.kubernetes.io/name=tokenlake")) == 1  # its log
    finally:
        site.lab.kubectl("delete", "job", "tokenlake-driver")
    assert outcome(Recipe.load(folder / "recipe.yaml", settings=[f"lake={lake}"])) == expected


def failing_run() -> str:
    """Start a run that cannot succeed, and return its error."""
    lake = "s3://tokenlake/never"
    result = etl("run", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert result.returncode == 1, result.stdout
    return result.stderr


def test_an_image_that_does_not_exist(folder: Path, unchanged: None) -> None:
    (folder / "cluster.yaml").write_text(FILE.replace("tokenlake:0.1.0", "tokenlake:0.2.0"))
    error = failing_run()
    assert "registry.example.com/tokenlake:0.2.0" in error
    assert "hint: " in error


def test_a_quota_that_is_too_small(site: Site, folder: Path, unchanged: None) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    site.lab.kubectl("create", "--filename=-", stdin=json.dumps(quota))
    try:
        wait_until(
            lambda: site.lab.items("resourcequotas")[0].get("status", {}).get("used"),
            seconds=60,
            what="the quota is known",
        )
        error = failing_run()
    finally:
        site.lab.kubectl("delete", "resourcequota", "small")
    assert "quota" in error
    assert "hint: " in error


def test_a_namespace_that_grants_less(
    site: Site, folder: Path, unchanged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(site.new_account("stranger", role=None)))
    error = failing_run()
    assert "daskclusters" in error
    assert "hint: " in error
    site.lab.kubectl("delete", "serviceaccount", "stranger")


@pytest.mark.parametrize("slow", [10], indirect=True)
def test_a_driver_is_stopped_with_its_cluster(
    site: Site, folder: Path, unchanged: None, slow: None
) -> None:
    lake = "s3://tokenlake/stopped-driver"
    result = etl("submit", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert result.returncode == 0, result.stderr
    refused = etl("submit", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert "`etl cluster stop FILE`" in refused.stderr
    wait_until(
        lambda: "Registered to" in etl("logs", "cluster.yaml", "--of", "worker").stdout,
        seconds=120,
        what="a worker is connected",
    )
    connected = etl("logs", "cluster.yaml", "--of", "worker", "--grep", "Registered to")
    lines = connected.stdout.splitlines()
    assert lines
    assert all(re.match(r"default-worker-[0-9a-f]{10}  .*Registered to", line) for line in lines)
    worker = lines[0].partition(" ")[0]
    one = etl("logs", "cluster.yaml", "--of", f"tokenlake-{worker}", "--grep", "Registered to")
    assert one.stdout
    assert "Scheduler at" in etl("logs", "cluster.yaml", "--of", "scheduler").stdout
    assert "no pod is called x" in etl("logs", "cluster.yaml", "--of", "x").stderr
    previous = etl("logs", "cluster.yaml", "--of", "worker", "--previous")
    assert "no container of worker has ended" in previous.stderr

    followed = start("logs", "cluster.yaml", "--follow")
    result = etl("cluster", "stop", "cluster.yaml")
    out, err = followed.communicate(timeout=60)
    assert (followed.returncode, err) == (0, "")
    assert "cluster    tokenlake created" in out
    assert result.returncode == 0, result.stderr
    assert "driver     tokenlake-driver has stopped" in result.stderr
    assert "cluster    tokenlake is gone" in result.stderr
    assert "no driver was submitted" in etl("cluster", "stop", "cluster.yaml").stderr


def test_a_cluster_is_up_when_all_workers_are_ready_and_down_when_nothing_is_left(
    site: Site, folder: Path, unchanged: None
) -> None:
    result = etl("cluster", "up", "cluster.yaml", "--workers", 3)
    assert result.returncode == 0, result.stderr
    assert "scheduler  tokenlake-scheduler-" in result.stderr
    assert "workers    3 of 3 ready" in result.stderr
    assert "workers     tokenlake-default: 3 of 3 ready" in result.stdout
    result = etl("cluster", "down", "cluster.yaml")
    assert result.returncode == 0, result.stderr
    owned = "daskclusters,daskworkergroups,deployments,replicasets,pods,services"
    labels = "dask.org/cluster-name=tokenlake"
    assert site.lab.items(owned, labels) == []
