"""Hold a job that computes on a cluster and commits to a lake: its client, its lease, its checks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distributed import Client

from etl.compute.cluster import Cluster, connect
from etl.compute.connect import raise_if_scheduler_lost
from etl.compute.listener import Listener, Progress, RunTotals
from etl.compute.run_metrics import exported_metrics
from etl.compute.unit_time_limit import TIME_LIMIT
from etl.compute.worker_versions import WorkerVersions
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.run_state import RunState


@dataclass(frozen=True, kw_only=True)
class ClusterJob(Job):
    """A running job with workers, whose versions it compares with its own before each commit."""

    client: Client
    listener: Listener
    metrics: Listener  # exports what it gets to Prometheus
    time_limit: float  # seconds per unit of work
    versions: tuple[tuple[str, str], ...]  # of the workers; empty if this process is the worker

    def progress(self, progress: Progress) -> None:
        """Report the progress of a step."""
        self.metrics.progress(progress)
        self.listener.progress(progress)

    def committed(self, totals: RunTotals) -> None:
        """Report what the job has committed."""
        self.metrics.committed(totals)
        self.listener.committed(totals)


@contextmanager
def hold_cluster_job(
    identity: JobIdentity,
    cluster: Cluster | Client | str | None,
    *,
    num_bytes: int,
    listener: Listener,
    time_limit: float = TIME_LIMIT,
    state: Callable[[], RunState | None] = lambda: None,
) -> Iterator[ClusterJob]:
    """Hold a job, as ``hold_job`` does, and connect to a cluster inside a ``with`` block.

    ``num_bytes`` of input will be read. A lake that cannot be written is an error before workers start.
    Raises ClusterError if the cluster cannot be used, if a worker has other versions, or for the errors that
    Dask raises when its scheduler is lost.
    """
    with (
        hold_job(identity, state) as job,
        connect(cluster, num_bytes, listener) as client,
        raise_if_scheduler_lost(client),
        exported_metrics(client, identity.lake, identity.kind, listener) as metrics,
    ):
        versions = WorkerVersions(client)
        versions.check()
        yield ClusterJob(
            identity=identity,
            lease=job.lease,
            checks=(versions.check,),
            client=client,
            listener=listener,
            metrics=metrics,
            time_limit=time_limit,
            versions=versions.expected,
        )
