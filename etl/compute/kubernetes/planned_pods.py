"""What a run would create of a cluster file: its pods by group with what they request, and why so many."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from etl.compute.cluster import Cluster
from etl.compute.cluster_request import ClusterRequest
from etl.compute.cluster_settings import BYTES_PER_WORKER, quantity
from etl.compute.kubernetes import resources
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.resources import Resource

_TOTAL: Final = "total"


@dataclass(frozen=True, kw_only=True)
class PlannedPods:
    """The pods of a group, and what all of them request together; sizes are in bytes."""

    group: str
    pods: int
    cpu: float
    memory: int
    disk: int
    node_selector: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class AutoSize:
    """Why a group of `auto` workers has its size."""

    group: str
    workers: int
    input_bytes: int
    bytes_per_worker: int
    max_workers: int


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What a run would create of a cluster file; the driver is a pod if the run is submitted.

    ``total`` is of all pods, with the driver. ``auto`` is None if all groups have a fixed size.
    """

    name: str
    namespace: str
    image: str
    groups: tuple[PlannedPods, ...]
    total: PlannedPods
    auto: AutoSize | None


def plan_pods(cluster: Cluster, planned_bytes: int) -> ClusterPlan | None:
    """Return what a run that reads so many bytes would create; None if its cluster has no cluster file.

    Kubernetes is not asked: a cluster that is up may have some of the pods. Raises ClusterError if the file
    is invalid.
    """
    if cluster.address is None or not cluster.address.startswith(SCHEME):
        return None
    file = ClusterFile.requested(cluster.address, ClusterRequest(memory_limit=cluster.memory_limit))
    settings = file.with_workers(cluster.workers)
    sizes = settings.sizes(planned_bytes)
    groups = tuple(
        _planned(group, pods, template) for group, pods, template in _groups(settings, sizes)
    )
    auto = settings.auto_group()
    return ClusterPlan(
        name=settings.name,
        namespace=settings.namespace,
        image=settings.image,
        groups=groups,
        total=PlannedPods(
            group=_TOTAL,
            pods=sum(each.pods for each in groups),
            cpu=sum(each.cpu for each in groups),
            memory=sum(each.memory for each in groups),
            disk=sum(each.disk for each in groups),
            node_selector={},
        ),
        auto=None
        if auto is None
        else AutoSize(
            group=auto,
            workers=sizes[auto],
            input_bytes=planned_bytes,
            bytes_per_worker=BYTES_PER_WORKER,
            max_workers=settings.max_workers,
        ),
    )


def _groups(settings: ClusterFile, sizes: Mapping[str, int]) -> Iterator[tuple[str, int, Resource]]:
    """Yield the name, the number of pods and the template of each group."""
    cluster = resources.dask_cluster(settings, sizes["default"])
    yield "scheduler", 1, cluster["spec"]["scheduler"]
    yield "default", sizes["default"], cluster["spec"]["worker"]
    for group, workers in sizes.items():
        if group != "default":
            template = resources.worker_group(settings, group, workers)["spec"]["worker"]
            yield group, workers, template
    yield "driver", 1, resources.driver_job(settings, (), {}, "recipe")["spec"]["template"]


def _planned(group: str, pods: int, template: Resource) -> PlannedPods:
    requests = template["spec"]["containers"][0]["resources"]["requests"]
    return PlannedPods(
        group=group,
        pods=pods,
        cpu=round(pods * quantity(requests["cpu"]), 3),
        memory=round(pods * quantity(requests["memory"])),
        disk=round(pods * quantity(requests["ephemeral-storage"])),
        node_selector=template["spec"].get("nodeSelector", {}),
    )
