"""A cluster without nodes and without the operator: plain pods, whose statuses a test writes."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.cluster_file import ClusterFile
from tests.helpers.manifests import build
from tests.k8s.lab.api import Api, Json
from tests.k8s.lab.control_plane import control_plane
from tests.k8s.lab.job import OVERLAY, Site
from tests.k8s.lab.lab import Lab, install_kinds, wait_until
from tests.k8s.lab.network import Network

_KINDS = ("Namespace", "ServiceAccount", "Role", "RoleBinding")
_AT_ONCE = 20  # requests

READY: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@contextmanager
def site_without_nodes(folder: Path) -> Iterator[Site]:
    """Run a control plane with the accounts and roles of Tokenlake."""
    network = Network(0)  # not created: there are no pods that run
    with control_plane(folder / "control-plane", network.services) as plane:
        lab = Lab(plane, network, folder)
        install_kinds(lab)
        items = [item for item in build(OVERLAY) if item["kind"] in _KINDS]
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        lab.kubectl("apply", "--server-side", "--filename=-", stdin=content)
        wait_until(
            lambda: "default" in lab.names("serviceaccounts"), seconds=60, what="pods are allowed"
        )
        yield Site(lab)


def unscheduled(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [condition | {"message": message}]}


def waiting(reason: str, message: str) -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    status = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Pending", "containerStatuses": [status | {"state": state}]}


def add_cluster(site: Site, settings: ClusterFile, workers: Mapping[str, Json]) -> None:
    """Create a DaskCluster with its default group and pods, as the operator does."""
    cluster = _create(site, resources.dask_cluster(settings, len(workers)))
    group: Json = {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskWorkerGroup",
        "metadata": _metadata(settings, f"{settings.name}-default", cluster),
        "spec": {"cluster": settings.name, "worker": cluster["spec"]["worker"]},
    }
    owner = _create(site, group)
    labels = {"dask.org/workergroup-name": group["metadata"]["name"]}
    pods = {name: _metadata(settings, name, owner, labels) for name in workers}
    asyncio.run(_add_pods(site.lab.kubeconfig, pods, workers))


def add_deployments(site: Site, settings: ClusterFile, names: list[str]) -> None:
    """Create Deployments of workers, and the Service of the scheduler."""
    found = site.lab.items("daskworkergroups")
    (group,) = (each for each in found if each["spec"]["cluster"] == settings.name)
    items: list[Json] = []
    for name in names:
        metadata = _metadata(settings, name, group)
        template = {"metadata": {"labels": metadata["labels"]}, "spec": _SPEC}
        spec = {"selector": {"matchLabels": metadata["labels"]}, "template": template}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        items.append(deployment | {"spec": spec})
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 8786}]}}
    metadata = _metadata(settings, f"{settings.name}-scheduler", group)
    items.append(service | {"metadata": metadata})
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    site.lab.kubectl("create", "--filename=-", stdin=content)


_SPEC: Json = {
    "schedulerName": "none",
    "containers": [{"name": "worker", "image": "registry.example.com/tokenlake:0.1.0"}],
}


def _create(site: Site, item: Json) -> Json:
    output = site.lab.kubectl("create", "--filename=-", "--output=json", stdin=json.dumps(item))
    created: Json = json.loads(output)
    return created


def _metadata(
    settings: ClusterFile, name: str, owner: Json, labels: Mapping[str, str] | None = None
) -> Json:
    own = {
        "app.kubernetes.io/name": "tokenlake",
        "dask.org/cluster-name": settings.name,
        "dask.org/component": "worker",
        "pod": name,
    }
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"name": name, "labels": own | dict(labels or {}), "ownerReferences": [reference]}


async def _add_pods(
    kubeconfig: Path, metadata: Mapping[str, Json], statuses: Mapping[str, Any]
) -> None:
    api = Api(kubeconfig)
    slots = asyncio.Semaphore(_AT_ONCE)
    path = "/api/v1/namespaces/tokenlake/pods"

    async def add(name: str) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata[name], "spec": _SPEC}
        async with slots:
            await api.request("POST", path, pod)
            await api.patch(f"{path}/{name}/status", {"status": statuses[name]})

    try:
        await asyncio.gather(*map(add, metadata))
    finally:
        await api.close()
