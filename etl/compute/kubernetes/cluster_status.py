"""`Status`: what a cluster and its pods are doing, and what is wrong with them."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_end import list_left
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.cluster_use import (
    creator_of,
    describe_abandoned,
    is_abandoned,
    living_uses,
)
from etl.compute.kubernetes.pod_problems import Names, is_ending, read_problems, state_of
from etl.compute.kubernetes.resources import Resource, cluster_labels
from etl.compute.kubernetes.shared_cluster import list_abandoned


@dataclass(frozen=True, kw_only=True)
class Status:
    """A cluster: the image and users of its DaskCluster, and its pods by role, with what each is doing.

    ``abandoned`` has this and other clusters of the namespace whose runs have died.
    """

    image: str | None  # None: the cluster does not exist
    run: str | None
    scheduler: str
    workers: Mapping[str, Mapping[str, int]]  # by group and state
    wanted: Mapping[str, int]  # workers of each group
    problems: tuple[str, ...]
    left: Mapping[str, int]  # of a deleted cluster, by kind
    users: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()


def read_status(api: Api, settings: ClusterFile) -> Status:
    """Return what a cluster is doing, or what is left of it."""
    found = api.get("DaskCluster", settings.name)
    abandoned = tuple(list_abandoned(api, settings))
    if found is None:
        left = {kind: len(items) for kind, items in list_left(api, settings).items()}
        return Status(
            image=None,
            run=None,
            scheduler="none",
            workers={},
            wanted={},
            problems=(),
            left=left,
            abandoned=abandoned,
        )
    pods = [pod for pod in api.list("Pod", cluster_labels(settings)) if not is_ending(pod)]
    workers: dict[str, Counter[str]] = {}
    scheduler = "none"
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if labels.get("dask.org/component") == "scheduler":
            scheduler = state_of(pod)
        else:
            group = labels.get("dask.org/workergroup-name", "")
            workers.setdefault(group, Counter())[state_of(pod)] += 1
    if is_abandoned(found, api.now()):
        own = f"the cluster {describe_abandoned(found)}: etl cluster down FILE"
        abandoned = (own, *abandoned)
    groups = [g for g in api.list("DaskWorkerGroup") if g["spec"].get("cluster") == settings.name]
    problems = read_problems(
        api, pods, names=names_of(settings), since=found["metadata"]["creationTimestamp"]
    )
    return Status(
        image=image_of(found),
        run=creator_of(found),
        scheduler=scheduler,
        workers=workers,
        wanted={g["metadata"]["name"]: int(g["spec"]["worker"]["replicas"]) for g in groups},
        problems=tuple(problem.what for problem in problems),
        left={},
        users=tuple(map(str, living_uses(found, api.now()))),
        abandoned=abandoned,
    )


def names_of(settings: ClusterFile) -> Names:
    """Return a pattern of the names of all objects of a cluster."""
    return re.compile(rf"{settings.name}(-(scheduler|default|spot|high-memory)(-.*)?)?")


def image_of(cluster: Resource) -> str:
    """Return the image of a DaskCluster."""
    return str(cluster["spec"]["scheduler"]["spec"]["containers"][0].get("image"))
