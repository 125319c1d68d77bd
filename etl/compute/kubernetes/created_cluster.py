"""`created_cluster`: a cluster for a run, which its last user deletes; and what to say if it stays."""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_use import ClusterUse
from etl.compute.kubernetes.dask_cluster import DaskCluster
from etl.compute.kubernetes.driver_restart import is_started_again
from etl.compute.kubernetes.resources import RUN_VARIABLE
from etl.errors import ClusterError, error_line


@contextmanager
def created_cluster(
    api: Api, cluster: DaskCluster, sizes: Mapping[str, int], file: str
) -> Iterator[None]:
    """Create a cluster unless it exists; its last user deletes it at the end if a run has created it.

    A driver whose Job starts it again leaves the cluster to the next one. ``file`` is the cluster file.
    """
    job = os.environ.get(RUN_VARIABLE)
    owner = None if job is None else api.get("Job", job)
    use = ClusterUse(api, cluster.name, job or uuid.uuid4().hex, owner=owner)
    try:
        cluster.create(sizes, use=use)
        with use.renewing():
            yield
    except BaseException:
        with reporting_what_stays(cluster, file):
            if owner is None or not is_started_again(api, owner["metadata"]["name"]):
                cluster.release(use)
            else:
                cluster.listener.note(f"cluster    {cluster.name} stays: {job} starts again")
        raise
    with reporting_what_stays(cluster, file):
        cluster.release(use)


@contextmanager
def reporting_what_stays(cluster: DaskCluster, file: str) -> Iterator[None]:
    """Report a cluster that could not be deleted, with the command that deletes it."""
    try:
        yield
    except BaseException as error:
        cluster.listener.warning(
            f"the {cluster.where} may still run ({error_line(error)}): "
            f"delete it with `etl cluster down {file}`"
        )
        if not isinstance(error, ClusterError):
            raise
