"""What the commands do with a cluster file: start, show and delete the cluster; stop the driver; logs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.cluster_status import Status, read_status
from etl.compute.kubernetes.cluster_use import ClusterUse
from etl.compute.kubernetes.created_cluster import reporting_what_stays
from etl.compute.kubernetes.dask_cluster import DASHBOARD_PORT, DaskCluster
from etl.compute.kubernetes.driver_job import Driver, DriverStatus
from etl.compute.kubernetes.pod_logs import LogQuery, PodLogs
from etl.compute.kubernetes.pod_problems import is_ready
from etl.compute.kubernetes.resources import driver_name
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
    """Start the cluster of a file, or add workers to it, and wait until no further worker can start.

    Raises ClusterError with the reason if it cannot start; a cluster that was created for nothing is deleted.
    From the first worker that is ready, the cluster stays, whatever happens to the others.
    """
    settings = _load(file).with_workers(workers)
    with _connect(settings, listener) as api:
        cluster = DaskCluster(api, settings, listener)
        existed = cluster.exists()
        sizes = settings.sizes(None)
        try:
            cluster.create(sizes)
            listener.note(f"scheduler  {cluster.wait_for_scheduler()} is ready")
            cluster.wait_for_workers(lambda pods: any(map(is_ready, pods)))
        except BaseException:
            if not existed:
                with reporting_what_stays(cluster, file):
                    cluster.delete()
            raise
        cluster.follow_workers(sum(sizes.values()))


def delete(file: str, listener: Listener, *, force: bool = False) -> None:
    """Delete the cluster of a file, if it exists, and wait until everything is gone.

    Raises ClusterError that names what is left if nothing ends any more, or who uses the cluster, unless
    ``force``.
    """
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
            cluster=read_status(api, settings),
            driver=Driver(api, settings, Listener()).status(),
        )


def logs(file: str, query: LogQuery) -> Iterator[str]:
    """Yield lines of the logs of the driver, the scheduler or the workers; see ``PodLogs``."""
    settings = _load(file)
    with _connect(settings) as api:
        yield from PodLogs(api, settings, query).lines()


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
        driver = Driver(api, settings, listener)
        return driver.start(arguments, contents, paths, prepare=cluster.ensure_certificates)


def stop_driver(file: str, listener: Listener) -> None:
    """Stop the driver of a file, and delete the cluster that it has created, if it has not done so.

    Raises ClusterError if no driver was submitted.
    """
    settings = _load(file)
    with _connect(settings, listener) as api:
        Driver(api, settings, listener).stop()
        cluster = DaskCluster(api, settings, listener)
        cluster.release(ClusterUse(api, settings.name, driver_name(settings)))
        cluster.wait_if_ending()
        if cluster.exists():
            listener.note(
                f"cluster    {settings.name} stays, since the driver has not created it: "
                "delete it with `etl cluster down FILE`"
            )
        else:
            listener.note(f"cluster    {settings.name} is gone")


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
