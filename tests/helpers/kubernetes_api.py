"""An API server in this process: it stores objects, denies verbs, and forwards ports over WebSockets.

It serves `make test`; the lab of tests/k8s has a real control plane.
"""

import asyncio
import contextlib
import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

Json = dict[str, Any]
Key = tuple[str, str, str]
_KINDS = {"pods", "services", "events", "secrets", "configmaps", "jobs"}
_KINDS |= {"deployments", "replicasets"}
_OF_DASK = {"daskclusters", "daskworkergroups"}
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class KubernetesApi:
    """The objects of a cluster by plural, namespace and name, and what the server does with requests."""

    objects: dict[Key, Json] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=lambda: _KINDS | _OF_DASK)
    denied: set[tuple[str, str]] = field(default_factory=set)  # verb, resource
    denied_to_driver: set[tuple[str, str]] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=lambda: {"tokenlake"})
    ports: dict[int, int] = field(default_factory=dict)  # of the pods -> of this machine
    logs: dict[str, str] = field(
        default_factory=dict
    )  # by pod, with " before" of its last container
    on_create: Callable[[str, Json], None] = lambda _plural, _item: None
    on_delete: Callable[[str, Json], None] = lambda _plural, _item: None
    expired_pages: int = 0  # this many requests for further pages are refused
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # verb, resource
    versions: Iterator[int] = field(default_factory=count)
    fault: Callable[[str, str], str | int | None] = lambda _method, _path: None
    """Called for each request: `lost` or the status of its response in place of one, or `unanswered` for
    a request that is done, but whose response is lost."""
    links: set[asyncio.Transport] = field(default_factory=set)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def add(self, plural: str, item: Json) -> Json:
        """Store an object as the server does."""
        metadata = item["metadata"]
        metadata |= {"uid": uuid.uuid4().hex, "creationTimestamp": now()}
        metadata.setdefault("namespace", "tokenlake")
        self._change(item)
        self.objects[plural, metadata["namespace"], metadata["name"]] = item
        return item

    def _change(self, item: Json) -> None:
        item["metadata"]["resourceVersion"] = str(next(self.versions))

    def names(self, plural: str) -> list[str]:
        return sorted(name for kind, _, name in self.objects if kind == plural)

    def item(self, plural: str, name: str) -> Json:
        return self.objects[plural, "tokenlake", name]

    @web.middleware
    async def disturb(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Do as ``fault`` says."""
        fault = self.fault(request.method, request.path)
        if isinstance(fault, int):
            return _status(fault, "a fault")
        response: web.StreamResponse = web.Response() if fault == "lost" else await handler(request)
        if fault is not None and request.transport is not None:
            request.transport.abort()
        return response

    def cut(self) -> None:
        """Cut all connections of forwarded ports."""
        for link in list(self.links):
            self.loop.call_soon_threadsafe(link.abort)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        plural, name, sub = (request.match_info.get(key, "") for key in ("plural", "name", "sub"))
        resource = f"{plural}/{sub}" if sub else plural
        verb = _VERBS.get(request.method, "get" if name else "list")
        self.calls[verb, resource] += 1
        namespace = request.match_info["namespace"]
        if plural not in self.kinds:
            return web.Response(status=404, text="404 page not found\n")
        if (verb, resource) in self.denied:
            return _status(
                403, f'{resource} is forbidden: User "u" cannot {verb} resource "{resource}"'
            )
        if verb == "create" and namespace not in self.namespaces:
            return _status(404, f'namespaces "{namespace}" not found')
        if sub == "portforward":
            return await self._forward(request)
        if sub == "log":
            text = self.logs.get(f"{name} before" if "previous" in request.query else name, "")
            if "timestamps" in request.query:
                text = re.sub("^(?=.)", f"{now()} ", text, flags=re.MULTILINE)
            return web.Response(text=text)
        return await self._answer(request, verb, (plural, namespace, name))

    async def review(self, request: web.Request) -> web.Response:
        """Answer whether a request would be allowed."""
        spec = (await request.json())["spec"]
        asked = spec["resourceAttributes"]
        resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
        denied = self.denied
        if "user" in spec:
            assert spec["user"] == "system:serviceaccount:tokenlake:tokenlake-driver"
            denied = self.denied_to_driver
        is_allowed = (asked["verb"], resource) not in denied
        return web.json_response({"status": {"allowed": is_allowed}}, status=201)

    async def _answer(self, request: web.Request, verb: str, key: Key) -> web.Response:
        plural, namespace, name = key
        if verb == "list":
            wanted = [
                each.split("=")
                for each in request.query.get("labelSelector", "").split(",")
                if each
            ]
            items = [
                item
                for (kind, place, _), item in self.objects.items()
                if (kind, place) == (plural, namespace)
                and _is_selected(item, request.query.get("fieldSelector", ""))
                and all(item["metadata"].get("labels", {}).get(k) == v for k, v in wanted)
            ]
            return self._page(items, request.query)
        if verb == "create":
            item = await request.json()
            key = plural, namespace, item["metadata"]["name"]
            if key in self.objects:
                return _status(409, f'{plural} "{key[2]}" already exists')
            self.add(plural, item)
            await asyncio.to_thread(self.on_create, plural, item)
            return web.json_response(item, status=201)
        if key not in self.objects:
            return _status(404, f'{plural} "{name}" not found')
        item = self.objects[key]
        body = await request.json() if request.can_read_body else {}
        expected = body.get("preconditions") or body.get("metadata") or {}
        for name in ("uid", "resourceVersion"):
            if expected.get(name, item["metadata"][name]) != item["metadata"][name]:
                return _status(409, f"the {name} is {item['metadata'][name]}, not {expected[name]}")
        if verb == "patch":
            _merge(item, body)
            self._change(item)
        if verb == "delete":
            self._delete(key)
            await asyncio.to_thread(self.on_delete, plural, item)
        return web.json_response(item)

    def _page(self, items: list[Json], query: Mapping[str, str]) -> web.Response:
        first, limit = int(query.get("continue", 0)), int(query.get("limit", len(items)))
        if first and self.expired_pages:
            self.expired_pages -= 1
            return _status(410, "The provided continue parameter is too old")
        end = first + limit
        metadata = {"continue": str(end)} if end < len(items) else {}
        return web.json_response({"items": items[first:end], "metadata": metadata})

    def _delete(self, key: Key) -> None:
        """Delete an object and what it owns."""
        uid = self.objects.pop(key)["metadata"]["uid"]
        for other, item in list(self.objects.items()):
            owners = item["metadata"].get("ownerReferences", [])
            if other in self.objects and uid in [owner["uid"] for owner in owners]:
                self._delete(other)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        remote = int(request.query["ports"])
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for channel in (b"\x00", b"\x01"):
            await socket.send_bytes(channel + remote.to_bytes(2, "little"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[remote])
        transport = request.transport
        self.links |= set() if transport is None else {transport}

        async def answer() -> None:
            while data := await reader.read(1 << 16):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.ensure_future(answer())
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    writer.write(message.data[1:])
        finally:
            self.links -= {transport}
            task.cancel()
            writer.close()
        with contextlib.suppress(Exception):
            await writer.wait_closed()
        return socket


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[tuple[KubernetesApi, Path]]:
    """Start a server; yield it with a kubeconfig for it."""
    api = KubernetesApi()
    app = web.Application(client_max_size=4 << 20, middlewares=[api.disturb])
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    app.router.add_post(reviews, api.review)
    of_others = "namespaces/tokenlake/localsubjectaccessreviews"
    app.router.add_post(f"/apis/authorization.k8s.io/v1/{of_others}", api.review)
    for prefix in ("/api/{version}", "/apis/{group}/{version}"):
        path = prefix + "/namespaces/{namespace}/{plural}"
        for suffix in ("", "/{name}", "/{name}/{sub}"):
            app.router.add_route("*", path + suffix, api.handle)
    loop = api.loop
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    try:
        port = asyncio.run_coroutine_threadsafe(start(), loop).result()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port}")))
        yield api, kubeconfig
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def pod(name: str, role: str, **status: Any) -> Json:
    """Return a pod of the cluster `tokenlake`, ready unless its status says something else."""
    labels = {"dask.org/cluster-name": "tokenlake", "dask.org/component": role}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "status": status or ready}


def event(kind: str, name: str, reason: str, message: str) -> Json:
    """Return an event about an object, at the present time."""
    involved = {"kind": kind, "name": name}
    metadata = {"name": f"{name}.{uuid.uuid4().hex}"}
    return {
        "metadata": metadata,
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "lastTimestamp": now(),
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_selected(item: Json, selector: str) -> bool:
    """Return whether a field selector selects an item."""
    for condition in filter(None, selector.split(",")):
        name, operator, value = re.split("(!?=)", condition)
        if (item.get(name) == value) != (operator == "="):
            return False
    return True


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code)


def _merge(item: Json, changes: Json) -> None:
    for name, value in changes.items():
        if isinstance(value, dict):
            _merge(item.setdefault(name, {}), value)
        elif value is None:
            item.pop(name, None)
        else:
            item[name] = value


def _kubeconfig(server: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
