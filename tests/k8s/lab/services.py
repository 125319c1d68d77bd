"""Services and their names: a TCP proxy for each port, and the hosts files of the namespaces."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.k8s.lab.api import Json
from tests.k8s.lab.network import Network

Address = tuple[str, int]


class Services:
    """What kube-proxy and the cluster's DNS do: connect addresses and names of Services to pods."""

    def __init__(self, folder: Path, network: Network, api_server: Address) -> None:
        self._folder = folder
        self._network = network
        self._api_server = api_server
        self._services: dict[str, Json] = {}
        self._endpoints: dict[str, Json] = {}
        self._proxies: dict[Address, asyncio.Server] = {}
        self._hosts: dict[str, Path] = {}
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()  # the event loop refers to them weakly

    def on_service(self, event: str, item: Json) -> None:
        self._store(self._services, event, item)

    def on_endpoints(self, event: str, item: Json) -> None:
        self._store(self._endpoints, event, item)

    def _store(self, items: dict[str, Json], event: str, item: Json) -> None:
        if event == "LIST":
            items.clear()
            items.update({_key(each): each for each in item["items"]})
        elif event == "DELETED":
            items.pop(_key(item), None)
        else:
            items[_key(item)] = item
        self._changed.set()

    async def serve(self) -> None:
        """Follow the Services until the task is cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = {
                (service["spec"]["clusterIP"], port["port"]): (key, port.get("name", ""))
                for key, service in self._services.items()
                for port in service["spec"].get("ports", [])
                if service["spec"].get("clusterIP", "None") != "None"
            }
            # Nothing listens where no pod is ready: clients then see a refused connection.
            wanted = {a: target for a, target in wanted.items() if any(self._targets(*target))}
            for address in self._proxies.keys() - wanted.keys():
                self._proxies.pop(address).close()
            for address in wanted.keys() - self._proxies.keys():
                self._proxies[address] = await self._listen(address, *wanted[address])
            for namespace in self._hosts:
                self._write_hosts(namespace)

    async def _listen(self, address: Address, key: str, port: str) -> asyncio.Server:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._forward(reader, writer, key, port))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        listening = await asyncio.to_thread(self._network.listen, address)
        return await asyncio.start_server(connected, sock=listening)

    def _targets(self, key: str, port: str) -> Iterator[Address]:
        """Yield the addresses of the ready pods of a Service."""
        if key == "default/kubernetes":
            yield self._api_server
        for subset in self._endpoints.get(key, {}).get("subsets") or []:
            for address in subset.get("addresses") or []:
                for each in subset.get("ports") or []:
                    if each.get("name", "") == port:
                        yield address["ip"], each["port"]

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, port: str
    ) -> None:
        for target in self._targets(key, port):
            try:
                other_reader, other_writer = await asyncio.open_connection(*target)
            except OSError:
                continue
            await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))
            other_writer.close()
            break
        writer.close()

    def hosts(self, namespace: str) -> Path:
        """Return the file that pods of a namespace see as /etc/hosts."""
        if namespace not in self._hosts:
            self._hosts[namespace] = self._folder / f"hosts-{namespace}"
            self._write_hosts(namespace)
        return self._hosts[namespace]

    def _write_hosts(self, namespace: str) -> None:
        lines = ["127.0.0.1 localhost"]
        for key, service in self._services.items():
            where, name = key.split("/")
            address = service["spec"].get("clusterIP")
            full = f"{name}.{where}.svc.cluster.local"
            short = [name] if where == namespace else []
            names = [*short, f"{name}.{where}", f"{name}.{where}.svc", full]
            lines.append(f"{address} {' '.join(names)}")
        content = "".join(f"{line}\n" for line in lines)
        path = self._hosts[namespace]
        if not path.exists() or path.read_text() != content:
            with path.open("r+" if path.exists() else "w") as file:  # pods have this file mounted
                file.write(content)
                file.truncate()

    def environment(self, namespace: str, *, links: bool) -> dict[str, str]:
        """Return the variables that describe Services to the pods of a namespace."""
        services = {
            f"{key}": s for key, s in self._services.items() if key.startswith(f"{namespace}/")
        }
        result: dict[str, str] = {}
        for key, service in (services if links else {}).items():
            _add_variables(result, key.split("/")[1], service)
        if "default/kubernetes" in self._services:
            _add_variables(result, "kubernetes", self._services["default/kubernetes"])
        return result


def _add_variables(environment: dict[str, str], name: str, service: Json) -> None:
    prefix = name.upper().replace("-", "_")
    address = service["spec"]["clusterIP"]
    port = service["spec"]["ports"][0]["port"]
    environment[f"{prefix}_SERVICE_HOST"] = address
    environment[f"{prefix}_SERVICE_PORT"] = str(port)
    environment[f"{prefix}_PORT"] = f"tcp://{address}:{port}"


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy a stream to its end, and end the other side."""
    with suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()
