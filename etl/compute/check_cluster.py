"""Check that a run could use a cluster, without starting anything: for `etl doctor`."""

from datetime import datetime

from etl.compute.certificates import expires_at, tls_settings
from etl.compute.cluster_request import ClusterRequest
from etl.compute.connect import connect_cluster, find_cluster_type
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.connect_k8s import connect_to_kubernetes
from etl.compute.kubernetes.dask_cluster import DaskCluster
from etl.compute.kubernetes.tls_secret import TlsSecret
from etl.compute.listener import Listener
from etl.compute.slurm import SlurmFile, connect_to_slurm, require_sbatch
from etl.compute.worker_versions import WorkerVersions
from etl.plural import many


def check_cluster(address: str, tls: str | None = None) -> str:
    """Return what a cluster offers; raise ClusterError if a run could not use it.

    A scheduler must respond, and its workers must have the versions of this machine. For a cluster file, the
    API server must grant what a run needs, or Slurm's programs must be installed.
    """
    cluster_type = find_cluster_type(address)
    if cluster_type is connect_to_kubernetes:
        return _check_kubernetes(ClusterFile.requested(address, ClusterRequest()))
    if cluster_type is connect_to_slurm:
        return _check_slurm(SlurmFile.requested(address, ClusterRequest()))
    with connect_cluster(address, ClusterRequest(), tls) as client:
        WorkerVersions(client).check()
        threads = client.nthreads()
        workers, num_threads = many(len(threads), "worker"), many(sum(threads.values()), "thread")
        return f"{workers} with {num_threads} and equal versions"


def check_certificates(address: str | None, tls: str | None) -> datetime | None:
    """Return when the certificates of a folder or of a cluster file expire; None if there are none.

    Raises ClusterError if they have expired, or if the cluster cannot be asked.
    """
    if tls is not None:
        return expires_at(tls_settings(tls, ("client",)))
    if address is None or find_cluster_type(address) is not connect_to_kubernetes:
        return None
    settings = ClusterFile.requested(address, ClusterRequest())
    with Api.connect(settings.namespace, settings.context) as api:
        secret = TlsSecret(api, settings)
        return expires_at(secret.security()) if secret.exists() else None


def _check_kubernetes(settings: ClusterFile) -> str:
    with Api.connect(settings.namespace, settings.context) as api:
        cluster = DaskCluster(api, settings, Listener())
        cluster.require_permissions()
        state = "is up" if cluster.exists() else "does not exist yet"
        return f"{settings.name} {state} in namespace {settings.namespace}, and all permissions are granted"


def _check_slurm(settings: SlurmFile) -> str:
    require_sbatch()
    return f"jobs in the partition {settings.partition}"
