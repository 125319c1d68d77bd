"""`Cluster`: where a run computes, on this machine or at the address of a scheduler.

Dask is imported when a cluster is connected: a run with nothing to do needs none.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from etl.compute.check_memory_limit import check_memory_limit
from etl.compute.cluster_request import ClusterRequest, Workers
from etl.compute.fork_server import start_fork_server
from etl.compute.listener import Listener
from etl.compute.print_listener import listener_of
from etl.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster on this machine, or at an ``address``.

    An address names a scheduler (``tcp://...``) or a cluster file (``k8s:FILE``, ``slurm:FILE``).
    A local cluster has ``workers`` single-threaded processes (default: one for each 8 MB of input, at most
    one per core), which share the memory or get ``memory_limit`` each (such as ``2GiB``); with 0, a thread of
    this process works, which a debugger can stop and a crash ends. A cluster of a file may have ``auto``
    workers, as many as its input needs. ``tls`` is a folder that ``make_certificates`` has written: only
    clients with its certificates can connect. ``dashboard`` is the address on which the dashboard of a local
    cluster listens; by default only this machine can open it.

    Raises ClusterError if the memory limit is not a number of bytes or too small for a worker, or if the
    number of workers is not one.
    """

    address: str | None = None
    _: KW_ONLY
    workers: Workers = None
    memory_limit: str | None = None
    tls: str | None = None
    dashboard: str | None = None

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            check_memory_limit(self.memory_limit)
        least = 0 if self.address is None else 1
        if self.workers not in (None, "auto") and not (
            isinstance(self.workers, int) and self.workers >= least
        ):
            raise ClusterError(
                f"{self.workers!r} is not a number of workers",
                hint=f"give {least} or more, or `auto`",
            )

    def prepare(self) -> None:
        """Start to load what workers on this machine need, and return at once."""
        if self.address is None and self.workers != 0:
            start_fork_server()

    def connect(
        self, planned_bytes: int | None = None, *, listener: Listener | None = None
    ) -> "AbstractContextManager[Client]":
        """Connect a client for the duration of the context; ``planned_bytes`` of input will be read.

        What the context starts it also stops; a cluster that was there keeps running. ``listener`` follows
        its start, and is notified while it has no workers.

        Raises ClusterError if the type of the cluster is unknown, if it cannot be used, or if a certificate
        is missing.
        """
        from etl.compute.connect import connect_cluster

        request = ClusterRequest(
            workers=self.workers,
            memory_limit=self.memory_limit,
            planned_bytes=planned_bytes,
            listener=listener_of(listener),
            dashboard=self.dashboard,
        )
        return connect_cluster(self.address, request, self.tls)


def connect(
    cluster: "Cluster | Client | str | None", planned_bytes: int, listener: Listener
) -> "AbstractContextManager[Client]":
    """Yield a client of a cluster; the default is a cluster on this machine.

    A string is the address of a cluster. An existing client is yielded as it is.
    """
    if cluster is None or isinstance(cluster, str):
        cluster = Cluster(cluster)
    if isinstance(cluster, Cluster):
        return cluster.connect(planned_bytes, listener=listener)
    from etl.compute.connect import follow_client

    return follow_client(cluster, listener)
