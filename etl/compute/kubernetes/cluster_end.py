"""Delete a cluster, and wait until everything that the operator has created for it is gone."""

from collections.abc import Mapping, Sequence
from typing import Final

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.resources import Resource, cluster_labels
from etl.compute.kubernetes.waiting import Waiting
from etl.compute.listener import Listener
from etl.errors import ClusterError
from etl.plural import many

_STALLED_SECONDS: Final = 120.0  # pods have 20 to end; the controllers may have other work
_OWNED: Final = ("Deployment", "ReplicaSet", "Pod", "Service")
"""What the operator and the controllers of Kubernetes create for a cluster, with its label."""
_NOUNS: Final = {"DaskCluster": "cluster", "DaskWorkerGroup": "worker group"}

Left = Mapping[str, Sequence[Resource]]
"""What is left of a cluster, by kind."""


def delete_cluster(
    api: Api, settings: ClusterFile, listener: Listener, *, version: str | None = None
) -> bool:
    """Delete a cluster with all its workers, and wait until everything is gone.

    With ``version``, return False if the cluster has changed since: then it is not deleted. Raises
    ClusterError that names what is left if nothing ends any more.
    """
    if not api.delete("DaskCluster", settings.name, version=version):
        return False
    _delete_groups(api, _groups(api, settings))
    await_end(api, settings, listener)
    listener.note(f"cluster    {settings.name} deleted")
    return True


def await_end(api: Api, settings: ClusterFile, listener: Listener) -> None:
    """Wait until everything of a cluster that was deleted is gone, or until a cluster is up.

    Raises ClusterError that names what is left if nothing ends any more.
    """
    waiting = Waiting(listener)
    fewest, changed, was_left = None, 0.0, False
    # Twice nothing, since the operator may still be creating Deployments, which Kubernetes deletes at once.
    while (left := list_left(api, settings)) or was_left:
        was_left = bool(left)
        if not all(map(_is_ending, left.get("DaskCluster", ()))):
            return
        # The operator may create a group while the cluster is deleted, and then does not delete it.
        _delete_groups(api, left.get("DaskWorkerGroup", ()))
        count = sum(map(len, left.values()))
        if fewest is None or count < fewest:
            fewest, changed = count, waiting.seconds
        if waiting.seconds - changed > _STALLED_SECONDS:
            raise _error(settings, left)
        if left:
            waiting.report(f"the cluster to end, {describe(left)} left")
        waiting.pause(count)


def list_left(api: Api, settings: ClusterFile) -> Left:
    """Return what exists of a cluster."""
    groups = _groups(api, settings)  # first: then they are not of a later cluster
    cluster = api.get("DaskCluster", settings.name)
    labels = cluster_labels(settings)
    found: dict[str, Sequence[Resource]] = {
        "DaskCluster": [] if cluster is None else [cluster],
        "DaskWorkerGroup": groups,
    }
    found |= {kind: api.list(kind, labels, only_metadata=True) for kind in _OWNED}
    return {kind: items for kind, items in found.items() if items}


def describe(left: Left) -> str:
    """Return how much is left of a cluster.

    >>> describe({"DaskWorkerGroup": [{}], "Pod": [{}, {}]})
    '1 worker group, 2 pods'
    """
    nouns = {kind: _NOUNS.get(kind, kind.lower()) for kind in left}
    return ", ".join(many(len(items), nouns[kind]) for kind, items in left.items())


def _groups(api: Api, settings: ClusterFile) -> list[Resource]:
    """Return the worker groups of a cluster, also those that the operator has not adopted."""
    groups = api.list("DaskWorkerGroup")
    return [group for group in groups if group["spec"].get("cluster") == settings.name]


def _delete_groups(api: Api, groups: Sequence[Resource]) -> None:
    for group in groups:
        if not _is_ending(group):
            metadata = group["metadata"]
            api.delete("DaskWorkerGroup", metadata["name"], uid=metadata["uid"])


def _is_ending(item: Resource) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _error(settings: ClusterFile, left: Left) -> ClusterError:
    """Return the error that names what is left, and what the first of it waits for."""
    kind, items = next(iter(left.items()))
    metadata = items[0]["metadata"]
    finalizers = ", ".join(metadata.get("finalizers", []))
    reason = f", which waits for {finalizers}" if finalizers else ""
    return ClusterError(
        f"{describe(left)} left, and none has ended for {_STALLED_SECONDS:.0f} seconds: "
        f"{kind} {metadata['name']}{reason}",
        where=f"cluster {settings.name} in namespace {settings.namespace}",
        hint="check that Dask's operator and the nodes run: kubectl "
        f"-n {settings.namespace} describe {kind.lower()} {metadata['name']}",
    )
