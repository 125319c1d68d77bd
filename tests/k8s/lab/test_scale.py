"""A cluster of a thousand workers: its status, what is wrong, and its end."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.compute.kubernetes import cluster_end
from etl.compute.kubernetes.cluster_file import ClusterFile
from tests.helpers.cli import etl
from tests.k8s.lab.job import Site
from tests.k8s.lab.lab import wait_until
from tests.k8s.lab.stand_ins import READY, add_cluster, add_deployments, unscheduled, waiting

FILE = "image: registry.example.com/tokenlake:0.1.0\n"
WORKERS = [f"tokenlake-default-worker-{number:04}-6c5d7f8b9-x2x9k" for number in range(1000)]
NO_NODE = "0/5 nodes are available: 5 Insufficient cpu."
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "small"},
    "spec": {"hard": {"pods": "1000"}},
}
OWNED = "daskclusters,daskworkergroups,deployments,replicasets,pods,services"


@pytest.fixture
def folder(bare: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "cluster.yaml").write_text(FILE, "utf-8")
    monkeypatch.setenv("KUBECONFIG", str(bare.lab.kubeconfig))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    bare.lab.kubectl("delete", "daskclusters,pods", "--all", "--wait=false")


def status(number: int) -> dict[str, object]:
    """Return the status of a pod: 513 are ready."""
    if number < 400:
        return unscheduled(NO_NODE)
    if number < 487:
        return waiting("ImagePullBackOff", f'Back-off pulling image "x" for {WORKERS[number]}')
    return READY


def refused(site: Site) -> set[str]:
    """Return the ReplicaSets that could not create a pod."""
    events = [each for each in site.lab.items("events") if each["reason"] == "FailedCreate"]
    return {each["involvedObject"]["name"] for each in events}


@pytest.fixture
def quota(bare: Site) -> Iterator[None]:
    """Allow as many pods as the test creates, and none of those that Deployments would add."""
    yield
    bare.lab.kubectl("delete", "resourcequota", "small", "--ignore-not-found")


@pytest.mark.usefixtures("quota")
def test_the_problems_of_a_thousand_pods_are_a_few_and_down_leaves_none(
    bare: Site, folder: Path, figures: list[str]
) -> None:
    settings = ClusterFile.load("cluster.yaml")
    add_cluster(bare, settings, {name: status(n) for n, name in enumerate(WORKERS)})
    bare.lab.kubectl("create", "--filename=-", stdin=json.dumps(QUOTA))
    wait_until(
        lambda: bare.lab.items("resourcequotas")[0].get("status", {}).get("used") == {"pods": "1k"},
        seconds=60,
        what="the quota is known",
    )
    add_deployments(bare, settings, [f"tokenlake-default-worker-more-{n}" for n in range(20)])
    wait_until(lambda: len(refused(bare)) == 20, seconds=60, what="the quota is exceeded")
    started = time.monotonic()
    result = etl("cluster", "status", "cluster.yaml")
    figures.append(f"status of 1,000 pods in {time.monotonic() - started:.1f} s")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert (
        "workers     tokenlake-default: 513 of 1,000 ready, 87 ImagePullBackOff, 400 pending"
        in (lines)
    )
    problems = [line for line in lines if line.startswith("problem ")]
    assert len(problems) == 3
    (image,) = (line for line in problems if "87 pods do not start: ImagePullBackOff" in line)
    assert WORKERS[400] in image, "an example"
    assert any(f"400 pods have no node yet, for example {WORKERS[0]}" in line for line in problems)
    (quota,) = (line for line in problems if "exceeded quota: small" in line)
    assert "20 pods cannot be created, for example tokenlake-default-worker-more-" in quota

    started = time.monotonic()
    result = etl("cluster", "down", "cluster.yaml")
    figures.append(f"end of 1,000 pods in {time.monotonic() - started:.1f} s")
    assert result.exit_code == 0, result.output
    assert bare.lab.items(OWNED) == []
    left = r"the cluster to end, \d+ deployments, \d+ replicasets, [\d,]+ pods, 1 service left"
    assert re.search(left, result.stderr)
    assert "cluster    tokenlake deleted" in result.stderr


def test_down_names_what_is_left(bare: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_end, "_STALLED_SECONDS", 2.0)
    add_cluster(bare, ClusterFile.load("cluster.yaml"), dict.fromkeys(WORKERS[:3], READY))
    held = ("patch", "pod", WORKERS[1], "--type=merge", "--patch")
    bare.lab.kubectl(*held, '{"metadata": {"finalizers": ["example.com/hold"]}}')
    result = etl("cluster", "down", "cluster.yaml")
    assert result.exit_code == 1
    assert f"1 pod left, and none has ended for 2 seconds: Pod {WORKERS[1]}" in result.stderr
    assert "waits for example.com/hold" in result.stderr
    assert f"kubectl -n tokenlake describe pod {WORKERS[1]}" in result.stderr
    assert "left        1 Pod" in etl("cluster", "status", "cluster.yaml").stdout
    bare.lab.kubectl(*held, '{"metadata": {"finalizers": null}}')
    assert etl("cluster", "down", "cluster.yaml").exit_code == 0
