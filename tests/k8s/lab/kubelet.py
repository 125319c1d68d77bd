"""A stand-in for the kubelets, kube-proxy and DNS of a cluster: runs the pods that the scheduler binds.

``python -m tests.k8s.lab.kubelet KUBECONFIG NETWORK CERTIFICATE FOLDER``, as root. Pods run as processes of
this machine, each in its own network, process and mount namespaces.
"""

import asyncio
import logging
import signal
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.k8s.lab.api import Api, Json, now
from tests.k8s.lab.kubelet_server import serve
from tests.k8s.lab.network import Network
from tests.k8s.lab.pod import Pod
from tests.k8s.lab.services import Services

_HEARTBEAT = 10  # seconds; the controller manager gives up a node after 40


@dataclass(frozen=True)
class Node:
    """A node: nodes other than the first are for the pods that ask for their pool."""

    name: str
    pool: str | None = None
    memory: str = "64Gi"

    def item(self) -> Json:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        taints = []
        if self.pool is not None:
            labels["pool"] = self.pool
            taints = [{"key": "dedicated", "value": self.pool, "effect": "NoSchedule"}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
        }

    def status(self, port: int) -> Json:
        capacity = {
            "cpu": "16",
            "memory": self.memory,
            "pods": "110",
            "ephemeral-storage": "500Gi",
        }
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = {"Ready": "True"} | dict.fromkeys(pressures, "False")
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [
                {"type": kind, "status": on, "reason": "Lab", "lastHeartbeatTime": now()}
                for kind, on in conditions.items()
            ],
        }


NODES = (Node("standard"), Node("spot", "spot"), Node("high-memory", "high-memory", "256Gi"))


@dataclass
class Kubelet:
    """All nodes of the lab, and the pods on them."""

    api: Api
    network: Network
    folder: Path
    services: Services
    pods: dict[str, Pod] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)  # events of a pod may arrive after its end
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    def on_pod(self, event: str, item: Json) -> None:
        if event == "LIST":
            for each in item["items"]:
                self.on_pod("ADDED", each)
            return
        uid = item["metadata"]["uid"]
        if uid in self.pods:
            pod = self.pods[uid]
            pod.item = item
            if event == "DELETED" or "deletionTimestamp" in item["metadata"]:
                pod.stopped.set()
        elif uid not in self._seen and item["spec"].get("nodeName"):
            self._seen.add(uid)
            self._run(uid, item)

    def _run(self, uid: str, item: Json) -> None:
        number = next(self._numbers)
        folder = self.folder / f"{item['metadata']['name']}-{number}"
        address = self.network.pod_address(number)
        pod = Pod(self.api, self.services, item, folder, address, number, self.network)
        self.pods[uid] = pod
        self._tasks[uid] = asyncio.create_task(pod.live())
        self._tasks[uid].add_done_callback(lambda _: self._forget(uid))

    def _forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self._tasks.pop(uid, None)

    def find(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by its name."""
        found = (p for p in self.pods.values() if (p.namespace, p.name) == (namespace, name))
        return next(found, None)

    async def register(self, port: int) -> None:
        """Register the nodes, and keep them ready until the task is cancelled."""
        for node in NODES:
            await self.api.request("POST", "/api/v1/nodes", node.item())
        while True:
            for node in NODES:
                path = f"/api/v1/nodes/{node.name}/status"
                await self.api.patch(path, {"status": node.status(port)})
            await asyncio.sleep(_HEARTBEAT)

    async def stop(self) -> None:
        """End all processes of all pods."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def main(kubeconfig: Path, network: Network, certificate: Path, folder: Path) -> None:
    api = Api(kubeconfig)
    parts = urlsplit(api.url)
    services = Services(folder, network, (str(parts.hostname), int(parts.port or 443)))
    kubelet = Kubelet(api, network, folder, services)
    server, port = await serve(certificate, kubelet.find)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tasks = [
        asyncio.create_task(kubelet.register(port)),
        asyncio.create_task(services.serve()),
        asyncio.create_task(api.watch("/api/v1/services", services.on_service)),
        asyncio.create_task(api.watch("/api/v1/endpoints", services.on_endpoints)),
        asyncio.create_task(api.watch("/api/v1/pods", kubelet.on_pod)),
    ]
    ends: list[asyncio.Task[Any]] = [*tasks, asyncio.create_task(stopped.wait())]
    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await kubelet.stop()
    await server.cleanup()
    await api.close()
    for task in done:
        task.result()


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(
        main(Path(sys.argv[1]), Network(int(sys.argv[2])), Path(sys.argv[3]), Path(sys.argv[4]))
    )
