"""Join, leave and delete a cluster that several runs may use."""

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_end import delete_cluster
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.cluster_use import (
    ClusterUse,
    creator_of,
    describe_abandoned,
    is_abandoned,
    living_uses,
    names_of,
)
from etl.compute.kubernetes.resources import RUN, Resource
from etl.compute.listener import Listener
from etl.errors import ClusterError


def join_cluster(
    api: Api, settings: ClusterFile, listener: Listener, found: Resource, use: ClusterUse | None
) -> Resource | None:
    """Record the use of a cluster that exists, and return it; None if it does not exist any more.

    Without a use, it stays when all its runs have ended.
    """
    text, now = f"{settings.name} is up in namespace {settings.namespace}", api.now()
    if use is None:
        listener.note(f"cluster    {text}")
        kept = {"metadata": {"annotations": {RUN: None}, "ownerReferences": None}}
        return api.patch("DaskCluster", settings.name, kept)
    others = [each for each in living_uses(found, now) if each.run != use.run]
    if others:
        text += f", in use by {names_of(others)}"
    elif is_abandoned(found, now) and creator_of(found) != use.run:
        text = f"{describe_abandoned(found)}; this run uses it, and deletes it at its end"
    listener.note(f"cluster    {text}")
    return use.join(found)


def release_cluster(api: Api, settings: ClusterFile, listener: Listener, use: ClusterUse) -> None:
    """End the use of a run; delete the cluster if a run has created it and no other run uses it."""
    while True:
        version, others = use.leave()
        if others:
            listener.note(f"cluster    {settings.name} stays, in use by {names_of(others)}")
        if version is None or delete_cluster(api, settings, listener, version=version):
            return


def delete_unused(api: Api, settings: ClusterFile, listener: Listener) -> None:
    """Delete a cluster and what is left of it; raise ClusterError with the runs that use it."""
    while True:
        found = api.get("DaskCluster", settings.name)
        if uses := [] if found is None else living_uses(found, api.now()):
            raise ClusterError(
                f"the cluster is in use by {names_of(uses)}",
                where=f"cluster {settings.name} in namespace {settings.namespace}",
                hint="wait until its runs have ended, or delete it under them with "
                "`etl cluster down FILE --force`",
            )
        version = None if found is None else str(found["metadata"]["resourceVersion"])
        if delete_cluster(api, settings, listener, version=version):
            return


def list_abandoned(api: Api, settings: ClusterFile) -> list[str]:
    """Return which other clusters of the namespace runs have left, with the command to delete each."""
    command = f"kubectl -n {settings.namespace} delete daskcluster"
    return [
        f"the cluster {describe_abandoned(each)}: {command} {each['metadata']['name']}"
        for each in api.list("DaskCluster")
        if each["metadata"]["name"] != settings.name and is_abandoned(each, api.now())
    ]
