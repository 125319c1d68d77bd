"""Connect a client to the cluster of a cluster file: the type `k8s` of ``--cluster``."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from distributed import Client
from distributed.security import Security

from etl.compute.cluster_request import ClusterRequest
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.created_cluster import created_cluster
from etl.compute.kubernetes.dask_cluster import DASHBOARD_PORT, SCHEDULER_PORT, DaskCluster
from etl.compute.kubernetes.outage import MAX_SECONDS
from etl.compute.scheduler_client import SchedulerClient
from etl.errors import ClusterError

_TIMEOUT: Final = "15s"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_SPOT_SECONDS: Final = 60.0  # for spot workers to end: pods have 20
_POLL_SECONDS: Final = 0.5


class KubernetesClient(SchedulerClient):
    """A client of a cluster on Kubernetes, which can change its workers."""

    tokenlake_cluster: DaskCluster
    tokenlake_sizes: Mapping[str, int]
    tokenlake_dashboard: str

    @property
    def dashboard_link(self) -> str:
        """The URL of the dashboard: of its forwarded port, or of its Service."""
        return self.tokenlake_dashboard


@contextmanager
def connect_to_kubernetes(address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Connect to the cluster of a file; create it if it does not exist; see `created_cluster`.

    Raises ClusterError if the file is invalid, or with the reason why the cluster cannot be used.
    """
    settings = ClusterFile.requested(address, request).with_workers(request.workers)
    sizes, file = settings.sizes(request.planned_bytes), str(address).removeprefix(SCHEME)
    with (
        Api.connect(settings.namespace, settings.context, request.listener) as api,
        created_cluster(api, cluster := DaskCluster(api, settings, request.listener), sizes, file),
    ):
        pod = cluster.wait_for_scheduler()
        security = request.security or cluster.security()
        with (
            _addresses(api, settings, pod) as (scheduler, dashboard),
            _connect(scheduler, security) as client,
        ):
            client.tokenlake_cluster, client.tokenlake_sizes = cluster, sizes
            client.tokenlake_dashboard = dashboard
            cluster.wait_for_workers(lambda _pods: bool(_names(client)))
            yield client


@contextmanager
def without_spot_workers(client: KubernetesClient) -> Iterator[None]:
    """Delete the group of spot workers, and create it again at the end.

    The operator would retire workers of any group if the group was scaled to zero.
    """
    cluster, spot = client.tokenlake_cluster, client.tokenlake_sizes.get("spot")
    if spot is None:
        yield
        return
    cluster.remove_group("spot")
    end = time.monotonic() + _SPOT_SECONDS
    while time.monotonic() < end and any(map(cluster.is_of_spot, _names(client))):
        time.sleep(_POLL_SECONDS)
    yield
    cluster.add_group("spot", spot)


def _names(client: Client) -> list[str]:
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return [str(worker["name"]) for worker in workers.values()]


@contextmanager
def _addresses(api: Api, settings: ClusterFile, pod: str) -> Iterator[tuple[str, str]]:
    """Yield the address of the scheduler and the URL of its dashboard, as this machine reaches them."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and _ACCOUNT.is_file():
        host = f"{settings.name}-scheduler.{settings.namespace}"
        yield f"tls://{host}:{SCHEDULER_PORT}", f"http://{host}:{DASHBOARD_PORT}/status"
        return
    with api.link(pod) as (scheduler, link), api.forward(pod, DASHBOARD_PORT) as dashboard:
        try:
            yield f"tls://127.0.0.1:{scheduler}", f"http://127.0.0.1:{dashboard}/status"
        except Exception as error:
            if link.error is not None:
                raise link.error from error
            raise


@contextmanager
def _connect(address: str, security: Security) -> Iterator[KubernetesClient]:
    try:
        client = KubernetesClient(address, timeout=_TIMEOUT, security=security)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"the scheduler does not respond ({error})",
            where=address,
            hint="if its certificates have changed, delete the cluster with `etl cluster down FILE`",
        ) from error
    # A connection that is made while the link is lost waits for the link.
    client.rpc.timeout = 2 * MAX_SECONDS
    with client:
        yield client
