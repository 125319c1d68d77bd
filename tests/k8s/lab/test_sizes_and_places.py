"""A real API server accepts what a cluster file can say of its pods, and refuses what the file refuses."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_group import PodGroup
from etl.errors import TokenlakeError
from tests.helpers.manifests import ROOT, pods_of
from tests.k8s.lab.job import Site

IMAGE = "registry.example.com/tokenlake:0.1.0"
LONG = "a" * 63


def try_to_create(site: Site, item: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Ask the API server whether it would create an object."""
    words = ("create", "--dry-run=server", "--filename=-")
    return site.lab.try_kubectl(*words, stdin=json.dumps(item))


def job_of(settings: ClusterFile) -> dict[str, Any]:
    """Return the Job of the driver, without what Kubernetes 1.20 does not know."""
    job = resources.driver_job(settings, ["run", "demo"], {}, "recipe")
    for name in ("podFailurePolicy", "podReplacementPolicy", "ttlSecondsAfterFinished"):
        job["spec"].pop(name, None)
    return job


def as_deployments(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the operator makes of an object: the schemas of Dask's know fewer rules."""
    for pod in pods_of(item):
        template = {"metadata": {"labels": pod.labels}, "spec": pod.spec}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": pod.name, "namespace": "tokenlake"},
            "spec": {"selector": {"matchLabels": pod.labels}, "template": template},
        }


def test_the_example_is_accepted(site: Site) -> None:
    settings = ClusterFile.load(ROOT / "k8s" / "cluster-file.yaml")
    sizes = settings.sizes(10**12)
    assert sizes == {"default": 60, "spot": 100, "high-memory": 4}
    of_dask = [resources.dask_cluster(settings, sizes["default"])]
    of_dask += [
        resources.worker_group(settings, group, sizes[group]) for group in ("spot", "high-memory")
    ]
    deployments = [each for item in of_dask for each in as_deployments(item)]
    assert len(deployments) == 4
    for item in (*of_dask, *deployments, job_of(settings)):
        result = try_to_create(site, item)
        assert result.returncode == 0, (item["metadata"]["name"], result.stderr)


GROUPS: list[dict[str, Any]] = [
    *({"cpu": text} for text in ("1", "0.5", ".5", "2.", "500m", "1e3", "1E3", "1k", "5u", "1 m")),
    *({"cpu": text} for text in ("0.0001", "0x10", "1M", "-1", "1,5", "m", "1e", "1mi")),
    *({"memory": text} for text in ("1Gi", "1e9", "1.5Gi", "2E9", "0.5T", "1gi", "1GB", "1 Gi")),
    *({"ephemeral_storage": text} for text in ("20Gi", "1e10", "20G", "20GiB")),
    *({"node_selector": {key: "x"}} for key in ("a", "a.b/c", f"b/{LONG}", "A_b.c-D", "9")),
    *({"node_selector": {key: "x"}} for key in ("", "/a", "a/", "A/b", "a/b/c", "-a", LONG + "a")),
    *({"node_selector": {"a": text}} for text in ("", "A_b.c-D", LONG, "a b", "-a", LONG + "a")),
    *({"labels": {"example.com/team": text}} for text in ("data", "R&D")),
    *({"annotations": {"example.com/team": text}} for text in ("R&D", "x" * 1000)),
    {"annotations": {"a": "x" * (256 << 10)}},
    {"annotations": {"a b": "x"}},
    *({"priority_class": name} for name in ("high", "a.b", "High", "a_b", "a..b", "a" * 254)),
    *(
        {"tolerations": [{"key": "a", "effect": "NoExecute", **more}]}
        for more in (
            {"value": "b"},
            {"operator": "Exists"},
            {"operator": "Exists", "value": "b"},
            {"operator": "Exists", "toleration_seconds": 5},
            {"operator": "Exists", "effect": "NoSchedule", "toleration_seconds": 5},
            {"value": "b c"},
        )
    ),
    *({"tolerations": [each]} for each in ({"operator": "Exists"}, {"operator": "Equal"})),
    *(
        {"topology_spread": [each, {"topology_key": "b"}]}
        for each in (
            {"topology_key": "a"},
            {"topology_key": "b"},
            {"topology_key": "a b"},
            {"topology_key": "b", "when_unsatisfiable": "DoNotSchedule"},
            {"topology_key": "a", "max_skew": 0},
        )
    ),
]
UNCHECKED = (
    {"cpu": "0.0001"},  # the server rounds it up
    {"cpu": "5u"},
    {"cpu": "m"},  # is 0 there
    {"topology_spread": [{"topology_key": "a b"}, {"topology_key": "b"}]},  # which no node can have
    {"priority_class": "high"},  # that class does not exist
    {"priority_class": "a.b"},
)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: str(group)[:60])
def test_a_value_is_valid_if_the_api_server_accepts_it(site: Site, group: dict[str, Any]) -> None:
    """The rules of Kubernetes are repeated in our errors, which name the key of the file."""
    settings = ClusterFile(image=IMAGE)
    try:
        driver = PodGroup(**group)
    except TokenlakeError:
        is_valid = False
        driver = PodGroup.model_construct(**read(group))
    else:
        is_valid = True
    item = job_of(settings.model_copy(update={"driver": driver}))
    (pod,) = pods_of(item)
    item = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": item["spec"]["template"]["metadata"]
        | {"name": "one", "namespace": "tokenlake"},
        "spec": pod.spec,
    }
    result = try_to_create(site, item)
    if group not in UNCHECKED:
        assert (result.returncode == 0) == is_valid, result.stderr


def read(group: dict[str, Any]) -> dict[str, Any]:
    """Return an invalid group as it would be without our rules."""
    from etl.compute.kubernetes.pod_group import Toleration, TopologySpread

    models = {"tolerations": Toleration, "topology_spread": TopologySpread}
    return {
        name: tuple(models[name].model_construct(**each) for each in value)
        if name in models
        else value
        for name, value in group.items()
    }
