"""Connect a client to a cluster of any type."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final, Protocol

import dask
from distributed import Client
from distributed.client import CancelledError, ClosedClientError
from distributed.comm import CommClosedError
from distributed.security import Security

from etl.compute.certificates import ROLES, expires_at, expiry_warning, tls_settings
from etl.compute.cluster_request import ClusterRequest
from etl.compute.kubernetes.connect_k8s import (
    KubernetesClient,
    connect_to_kubernetes,
    without_spot_workers,
)
from etl.compute.listener import Listener
from etl.compute.local_cluster import has_dashboard, start_local_cluster
from etl.compute.missing_workers import reporting_missing_workers
from etl.compute.scheduler_client import SchedulerClient
from etl.compute.slurm import connect_to_slurm
from etl.compute.worker_settings import DASK_SETTINGS, PROFILE_SETTINGS
from etl.errors import ClusterError, nearest_names

_TIMEOUT = "15s"  # for connecting to a scheduler
_UNREADABLE = "Error during deserialization of the task graph"  # raised by Dask


class ClusterType(Protocol):
    """A function that connects a client to clusters of one type, for the duration of a context.

    ``address`` is the address that the user gave; None means this machine. A type without its own workers
    ignores what ``request`` says of them. Raises ClusterError if the cluster cannot be used.
    """

    def __call__(  # noqa: D102 - described by the class
        self, address: str | None, request: ClusterRequest, /
    ) -> AbstractContextManager[Client]: ...


@contextmanager
def connect_to_scheduler(address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Connect to a running scheduler, which keeps running."""
    try:
        client = SchedulerClient(address, timeout=_TIMEOUT, security=request.security)
    except (OSError, TypeError, ValueError, TimeoutError) as error:
        # Dask raises TypeError if tls:// is used without certificates.
        raise ClusterError(
            f"the scheduler does not respond ({error})",
            where=address,
            hint="write tcp://host:8786 and check that a scheduler runs there; "
            "a scheduler with certificates needs tls://host:8786 and --tls DIR",
        ) from error
    with client:
        yield client


CLUSTERS: Final[Mapping[str | None, ClusterType]] = {
    None: start_local_cluster,
    "tcp": connect_to_scheduler,
    "tls": connect_to_scheduler,
    "k8s": connect_to_kubernetes,
    "slurm": connect_to_slurm,
}
"""The types of clusters by the scheme of an address (``tls://...``, ``k8s:FILE``); None: no address."""


@contextmanager
def connect_cluster(
    address: str | None, request: ClusterRequest, tls: str | None
) -> Iterator[Client]:
    """Connect a client for the duration of the context, as ``Cluster.connect`` does."""
    cluster_type = find_cluster_type(address)
    request = replace(request, security=_security(address, tls))
    with (
        _without_client_log(),
        dask.config.set(DASK_SETTINGS | PROFILE_SETTINGS),
        cluster_type(address, request) as client,
    ):
        if has_dashboard(client):
            request.listener.note(f"dashboard  {client.dashboard_link}")
        with follow_client(client, request.listener):
            yield client


@contextmanager
def follow_client(client: Client, listener: Listener) -> Iterator[Client]:
    """Yield a client with our settings of Dask, and let a listener follow what happens to its workers.

    Warns if the certificates of the client expire soon.
    """
    listener.connected(client)
    if (warning := expiry_warning(expires_at(client.security))) is not None:
        listener.warning(warning)
    client.subscribe_topic(_topic(client), lambda event: listener.warning(event[1]))
    try:
        with dask.config.set(DASK_SETTINGS), reporting_missing_workers(client, listener):
            yield client
    finally:
        if client.status == "running":
            client.unsubscribe_topic(_topic(client))


def warn(client: Client, text: str) -> None:
    """Send a warning to the listener that follows a client, if there is one; it arrives in another thread."""
    client.log_event(_topic(client), text)


def _topic(client: Client) -> str:
    return f"tokenlake-warnings-{client.id}"


def _security(address: str | None, tls: str | None) -> Security | None:
    """Return TLS settings: of a client for a scheduler that runs, of all roles for others.

    None means the settings in Dask's own configuration.
    """
    if tls is None:
        return None
    scheme = _scheme(address)
    if scheme == "tcp":
        raise ClusterError(
            "certificates require a tls:// address",
            where=address,
            hint="write tls://host:8786",
        )
    return tls_settings(tls, ROLES if scheme in (None, "slurm") else ("client",))


@contextmanager
def _without_client_log() -> Iterator[None]:
    """Hide tracebacks that Dask's client logs: of attempts to reconnect, and of waits that Ctrl-C ends."""
    logs = [logging.getLogger(name) for name in ("distributed.client", "asyncio")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def find_cluster_type(address: str | None) -> ClusterType:
    """Return the type of the cluster at an address; raise ClusterError if its scheme is unknown."""
    scheme = _scheme(address)
    if scheme not in CLUSTERS:
        known = [name for name in CLUSTERS if name is not None]
        raise ClusterError(
            f"unknown type of cluster {scheme!r}",
            where=address,
            hint=nearest_names(str(scheme), known),
        )
    return CLUSTERS[scheme]


def _scheme(address: str | None) -> str | None:
    """Return the scheme of an address; without one (``host:8786``) it is ``tcp``, as in Dask."""
    if address is None:
        return None
    scheme, separator, rest = address.partition(":")
    is_of_file = scheme.isalnum() and bool(rest) and not rest.isdigit()
    return scheme if separator and is_of_file else "tcp"


@contextmanager
def steady_workers(client: Client) -> Iterator[None]:
    """Compute without workers that may be preempted: a shuffle starts again when it loses a worker."""
    if isinstance(client, KubernetesClient):
        with without_spot_workers(client):
            yield
    else:
        yield


@contextmanager
def raise_if_scheduler_lost(client: Client) -> Iterator[None]:
    """Raise ClusterError for the errors that Dask raises when its scheduler is lost."""
    try:
        yield
    except (CancelledError, ClosedClientError, OSError, RuntimeError) as error:
        if _UNREADABLE in str(error):
            raise ClusterError(
                "the scheduler cannot read the tasks: it has another version of Tokenlake, or none",
                where=client.scheduler.address if client.scheduler is not None else None,
                hint="start the scheduler, too, in an environment with this version of Tokenlake",
            ) from error
        is_of_dask = isinstance(error, CancelledError | ClosedClientError | CommClosedError)
        if not is_of_dask and client.status == "running":
            raise  # an error of a file or a stage
        raise ClusterError(
            "the scheduler was lost, and with it the work in progress",
            where=client.scheduler.address if client.scheduler is not None else None,
            hint="run again: committed work is kept, and the rest is done then",
        ) from error
