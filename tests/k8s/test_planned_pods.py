"""`etl plan --cluster k8s:FILE` prints the pods that a run would create, and why so many."""

import json
from pathlib import Path

import pytest

from etl.compute.cluster import Cluster
from etl.compute.cluster_settings import BYTES_PER_WORKER, quantity
from etl.compute.kubernetes import resources
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.planned_pods import plan_pods
from tests.helpers.cli import etl
from tests.helpers.manifests import pods_of

FILE = """
image: registry.example.com/tokenlake:0.1.0
workers: 3
driver: {cpu: 250m, memory: 2Gi, ephemeral_storage: 5Gi}
spot: {workers: auto, cpu: 500m, node_selector: {pool: cheap}}
high_memory: {workers: 2, memory: 32Gi}
max_workers: 40
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    (tmp_path / "cluster.yaml").write_text(FILE, "utf-8")
    return f"k8s:{tmp_path / 'cluster.yaml'}"


@pytest.mark.parametrize(("workers", "spot"), [(None, 12), (7, 7), ("auto", 12)])
def test_the_pods_are_those_of_the_resources(address: str, workers: int | None, spot: int) -> None:
    planned_bytes = 11 * BYTES_PER_WORKER + 1
    found = plan_pods(Cluster(address, workers=workers), planned_bytes)
    assert found is not None
    settings = ClusterFile.load(address.removeprefix("k8s:"))
    numbers = {"scheduler": 1, "default": 3, "spot": spot, "high-memory": 2, "driver": 1}
    assert {each.group: each.pods for each in found.groups} == numbers
    requests = [
        pod.spec["containers"][0]["resources"]["requests"]
        for item in (
            resources.dask_cluster(settings, 3),
            resources.worker_group(settings, "spot", spot),
            resources.worker_group(settings, "high-memory", 2),
            resources.driver_job(settings, [], {}, "recipe"),
        )
        for pod in pods_of(item)
    ]
    total = found.total
    assert total.pods == sum(numbers.values())
    for name, size in {
        "cpu": total.cpu,
        "memory": total.memory,
        "ephemeral-storage": total.disk,
    }.items():
        pairs = zip(numbers.values(), requests, strict=True)
        assert size == sum(number * quantity(each[name]) for number, each in pairs)
    assert [each.node_selector for each in found.groups] == [
        *({}, {}, {"pool": "cheap"}, {"pool": "high-memory"}, {})
    ]
    if workers == 7:
        assert found.auto is None
    else:
        assert found.auto is not None
        assert (found.auto.group, found.auto.workers) == ("spot", 12)
        assert (found.auto.input_bytes, found.auto.max_workers) == (planned_bytes, 40)


@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:1"])
def test_other_clusters_have_no_planned_pods(address: str | None) -> None:
    assert plan_pods(Cluster(address), 1) is None


def test_the_command_prints_them(address: str, tmp_path: Path) -> None:
    words = ("plan", "demo", "--lake", tmp_path / "lake", "--no-sample", "--cluster", address)
    lines = etl(*words).stdout.splitlines()
    (spot,) = (line.split() for line in lines if line.startswith("spot "))
    assert spot == ["spot", "1", "0.5", "4.0", "10.0", "pool=cheap"]
    (total,) = (line.split() for line in lines if line.startswith("total "))
    assert total == ["total", "8", "6.75", "86.0", "66.0"]
    (auto,) = (line for line in lines if line.startswith("auto "))
    assert auto.startswith("auto        1 worker in spot: ")
    assert auto.endswith("one for each 16,800 MB (10 minutes at 28 MB/s), at most 40")
    found = json.loads(etl(*words, "--json").stdout)["cluster"]
    assert [each["group"] for each in found["groups"]] == [
        *("scheduler", "default", "spot", "high-memory", "driver")
    ]
    assert found["auto"]["bytes_per_worker"] == BYTES_PER_WORKER
    assert found["total"]["cpu"] == 6.75


def test_the_command_reports_a_wrong_file(address: str, tmp_path: Path) -> None:
    path = Path(address.removeprefix("k8s:"))
    path.write_text(FILE.replace("spot:", "spott:"))
    result = etl("plan", "demo", "--lake", tmp_path / "lake", "--no-sample", "--cluster", address)
    assert result.exit_code == 1
    assert "unknown key 'spott'" in result.stderr
