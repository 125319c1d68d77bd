"""What the commands do with a cluster file: start, show and delete the cluster; logs; the dashboard."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.created_cluster import reporting_what_stays
from etl.compute.kubernetes.dask_cluster import DASHBOARD_PORT, DaskCluster, Status
from etl.compute.kubernetes.driver_job import Driver, DriverStatus
from etl.compute.kubernetes.pod_problems import is_ready
from etl.compute.listener import Listener
from etl.errors import ClusterError


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The cluster and the driver of a cluster file."""

    name: str
    namespace: str
    cluster: Status
    driver: DriverStatus | None


def start(file: str, workers: int | None, listener: Listener) -> None:
    """Start the cluster of a file, or add workers to it, and wait until its scheduler is ready.

    Raises ClusterError with the reason if it cannot start; a cluster that was created for nothing is deleted.
    """
    settings = _load(file).with_workers(workers)
    with _connect(settings, listener) as api:
        cluster = DaskCluster(api, settings, listener)
        existed = cluster.exists()
        try:
            cluster.create(settings.sizes(None))
            cluster.wait_for_scheduler()
            cluster.wait_for_workers(lambda pods: any(map(is_ready, pods)))
        except BaseException:
            if not existed:
                with reporting_what_stays(cluster, file):
                    cluster.delete()
            raise


def stop(file: str, listener: Listener, *, force: bool = False) -> None:
    """Delete the cluster of a file, if it exists; raise ClusterError if runs use it, unless ``force``."""
    settings = _load(file)
    with _connect(settings, listener) as api:
        DaskCluster(api, settings, listener).delete(force=force)


def state(file: str) -> ClusterState:
    """Return what the cluster and the driver of a file are doing."""
    settings = _load(file)
    with _connect(settings) as api:
        return ClusterState(
            name=settings.name,
            namespace=settings.namespace,
            cluster=DaskCluster(api, settings, Listener()).status(),
            driver=Driver(api, settings).status(),
        )


def driver_log(file: str, *, follow: bool) -> Iterator[str]:
    """Yield the lines of the driver's log; raises ClusterError if none was submitted."""
    settings = _load(file)
    with _connect(settings) as api:
        yield from Driver(api, settings).log(follow=follow)


def start_driver(
    settings: ClusterFile,
    arguments: Sequence[str],
    contents: Mapping[str, bytes],
    paths: Mapping[str, str],
    listener: Listener,
) -> str:
    """Start the driver of a recipe and return its name; see ``Driver.start``."""
    with _connect(settings, listener) as api:
        cluster = DaskCluster(api, settings, listener)
        cluster.exists()  # raises if Dask's operator is not installed
        cluster.ensure_certificates()
        return Driver(api, settings).start(arguments, contents, paths, listener)


@contextmanager
def dashboard(file: str, port: int) -> Iterator[str]:
    """Forward the dashboard of a running cluster to a port of this machine; yields its URL."""
    settings = _load(file)
    with _connect(settings) as api:
        cluster = DaskCluster(api, settings, Listener())
        if not cluster.exists():
            raise ClusterError(
                f"the cluster {settings.name} is not running",
                where=file,
                hint="start it with `etl cluster up FILE`",
            )
        with api.forward(cluster.wait_for_scheduler(), DASHBOARD_PORT, port) as local:
            yield f"http://127.0.0.1:{local}/status"


def _load(file: str) -> ClusterFile:
    return ClusterFile.load(file.removeprefix(SCHEME))


def _connect(
    settings: ClusterFile, listener: Listener | None = None
) -> AbstractContextManager[Api]:
    return Api.connect(settings.namespace, settings.context, listener)
