"""What Dask's operator does, in this process: a scheduler and workers over TLS, with their pods."""

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import LocalCluster, Worker

from etl.compute.certificates import tls_settings
from etl.compute.kubernetes import link_relay
from etl.compute.kubernetes.port_forward import port_of
from tests.helpers.kubernetes_api import Json, KubernetesApi, pod


class Operator:
    """Starts a cluster when its DaskCluster is created, and its workers with their groups."""

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        self.api = api
        self.cluster: LocalCluster | None = None
        self.deleted: list[str] = []
        self._folder = folder
        self._workers: dict[str, Worker] = {}
        api.on_create, api.on_delete = self.create, self.delete

    def create(self, plural: str, item: Json) -> None:
        if plural == "daskclusters":
            self._start()
            replicas = item["spec"]["worker"]["replicas"]
            group: Json = {
                "metadata": {"name": "tokenlake-default"},
                "spec": {"cluster": "tokenlake", "worker": {"replicas": replicas}},
            }
            self.create("daskworkergroups", self.api.add("daskworkergroups", group))
        if plural == "daskworkergroups":
            for number in range(item["spec"]["worker"]["replicas"]):
                self._add_worker(f"{item['metadata']['name']}-worker-{number}")

    def delete(self, plural: str, item: Json) -> None:
        name = item["metadata"]["name"]
        if plural in ("daskclusters", "daskworkergroups"):
            self.deleted.append(name)
        for worker in list(self._workers):
            if plural == "daskclusters" or worker.startswith(f"{name}-worker-"):
                self._remove_worker(worker)
        if plural == "daskclusters":
            self.stop()

    def stop(self) -> None:
        """Stop everything."""
        for worker in list(self._workers):
            self._remove_worker(worker)
        if self.cluster is not None:
            for end in (self._links.close, self._relay.close):
                self.cluster.loop.add_callback(end)
            self.cluster.close()
            self.cluster = None
        self.api.objects.pop(("pods", "tokenlake", "tokenlake-scheduler-1"), None)

    def _start(self) -> None:
        secret = self.api.item("secrets", "tokenlake-tls")
        self._folder.mkdir(exist_ok=True)
        for name, content in secret["data"].items():
            (self._folder / name).write_bytes(b64decode(content))
        self._security = tls_settings(self._folder)
        self.cluster = LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tls",
            security=self._security,
            dashboard_address="127.0.0.1:0",
        )
        address = self.cluster.scheduler_address
        self._relay = link_relay.Relay(lambda: address)
        self._links = self.cluster.sync(self._relay.listen, 0, "127.0.0.1")
        self.api.ports |= {
            8787: int(address.rpartition(":")[2]),
            link_relay.LINK_PORT: port_of(self._links),
        }
        self.api.add("pods", pod("tokenlake-scheduler-1", "scheduler"))

    def _add_worker(self, name: str) -> None:
        cluster = self.cluster
        assert cluster is not None

        async def start() -> Worker:
            return await Worker(
                cluster.scheduler_address,
                name=name,
                nthreads=1,
                security=self._security,
                dashboard=False,
                local_directory=str(self._folder),
            )

        self._workers[name] = cluster.sync(start)
        self.api.add("pods", pod(name, "worker"))

    def _remove_worker(self, name: str) -> None:
        worker: Any = self._workers.pop(name)
        assert self.cluster is not None
        self.cluster.sync(worker.close, nanny=False)
        self.api.objects.pop(("pods", "tokenlake", name), None)


@contextmanager
def operator(api: KubernetesApi, folder: Path) -> Iterator[Operator]:
    """Run the operator."""
    running = Operator(api, folder)
    try:
        yield running
    finally:
        running.stop()
