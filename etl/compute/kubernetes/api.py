"""`Api`: read and write the resources of a namespace through the API server, with kr8s.

A thread runs the event loop of kr8s, so that the rest of the library stays synchronous and a forwarded port
works for as long as the API is open. The PortForward of kr8s 0.20.15 is not used: it sends requests without a
pause when a pod is gone, prints a traceback when a client is lost, and from Python 3.12 does not end while a
connection is open (``tests/k8s/test_port_forward.py`` has these cases).
"""

import asyncio
import json
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from etl.compute.kubernetes.resources import TLS_SECRET, Resource
from etl.errors import ClusterError, error_line

if TYPE_CHECKING:
    import httpx
    import kr8s

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "DaskCluster": ("kubernetes.dask.org/v1", "daskclusters"),
    "DaskWorkerGroup": ("kubernetes.dask.org/v1", "daskworkergroups"),
    "Job": ("batch/v1", "jobs"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "Event": ("v1", "events"),
}
"""The kinds that are used: the version of the API, and the name in its paths."""

OPERATOR_HINT: Final = (
    "an administrator installs the operator once: helm install dask-operator "
    "dask-kubernetes-operator --repo https://helm.dask.org -n dask-operator --create-namespace"
)

_GROUPS: Final = {
    plural: version.rpartition("/")[0] for version, plural in KINDS.values() if "/" in version
}
_TIMEOUT_SECONDS: Final = 10.0  # of one request
_MAX_ITEMS: Final = 500  # of a list: the first pods have the problems of all
_VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}

Result = TypeVar("Result")


class Api:
    """The API of a Kubernetes cluster, for the resources of one namespace."""

    def __init__(self, api: "kr8s.asyncio.Api", namespace: str, loop: "_Loop") -> None:
        self._api = api
        self._namespace = namespace
        self._loop = loop

    @classmethod
    @contextmanager
    def connect(cls, namespace: str, context: str | None = None) -> Iterator[Self]:
        """Connect with the current context of the kubeconfig or another one, or as the pod's account.

        Raises ClusterError if kr8s is not installed, or if the API server cannot be reached.
        """
        try:
            import kr8s.asyncio
        except ImportError as error:
            raise ClusterError(
                "the library kr8s is not installed", hint="pip install 'tokenlake[k8s]'"
            ) from error
        with _Loop() as loop, _removing_key_files() as watch:
            # Without the factory, nothing is sent before the time limit is set.
            api = kr8s.asyncio.Api(bypass_factory=True, namespace=namespace, context=context)
            api.timeout = _TIMEOUT_SECONDS
            watch(api)
            self = cls(api, namespace, loop)
            try:
                loop.run(_authenticate(api))
            except Exception as error:
                raise ClusterError(
                    f"no credentials for an API server ({error_line(error)})",
                    where=None if context is None else f"context {context}",
                    hint="check KUBECONFIG and `kubectl config get-contexts`",
                ) from error
            try:
                yield self
            finally:
                loop.run(self._close())

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._api.auth.server)

    def require(self, needs: Mapping[str, str]) -> None:
        """Raise ClusterError if this account lacks one of these permissions: resource -> verbs."""
        for resource, verbs in needs.items():
            for verb in verbs.split():
                if not self._guard(self._may(verb, resource), "create", "selfsubjectaccessreviews"):
                    raise self._explain(403, "by its roles", verb, resource)

    def get(self, kind: str, name: str) -> Resource | None:
        """Return a resource, or None if it does not exist."""
        return self._call("GET", kind, name, missing=None)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Resource]:
        """Return the resources of a kind with these labels, at most the first few hundred."""
        params: dict[str, Any] = {"limit": _MAX_ITEMS}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        items: list[Resource] = self._call("GET", kind, params=params)["items"]
        return items

    def create(self, resource: Resource) -> Resource | None:
        """Create a resource and return it; None if one with its name exists."""
        return self._call("POST", resource["kind"], body=resource, conflict=None)

    def patch(self, kind: str, name: str, changes: Resource) -> None:
        """Change fields of a resource."""
        self._call("PATCH", kind, name, body=changes)

    def delete(self, kind: str, name: str) -> None:
        """Delete a resource and what belongs to it, unless it does not exist."""
        body = {"propagationPolicy": "Background"}
        self._call("DELETE", kind, name, body=body, missing=None)

    def log(self, pod: str, *, lines: int | None = None, previous: bool = False) -> str:
        """Return the last lines of a pod's log, or of the container that ran before."""
        params = {"previous": "true"} if previous else {}
        if lines is not None:
            params["tailLines"] = str(lines)
        return self._guard(self._log(pod, params), "get", "pods/log")

    def follow_log(self, pod: str) -> Iterator[str]:
        """Yield the lines of a pod's log until its container ends."""
        lines = self._follow(pod)
        while (line := self._guard(anext(lines, None), "get", "pods/log")) is not None:
            yield line

    @contextmanager
    def forward(self, pod: str, port: int, local_port: int = 0) -> Iterator[int]:
        """Forward a port of this machine to one of a pod; the context yields the port of this machine.

        Raises ClusterError if the port cannot be forwarded.
        """
        self._guard(self._try_websocket(pod, port), "create", "pods/portforward")
        try:
            server = self._loop.run(
                asyncio.start_server(
                    lambda reader, writer: self._serve(reader, writer, pod, port),
                    host="127.0.0.1",
                    port=local_port,
                )
            )
        except OSError as error:
            raise ClusterError(
                f"the port {local_port} of this machine cannot be used ({error_line(error)})",
                hint="choose another one with --port",
            ) from error
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            self._loop.call(server.close)

    def _call(
        self,
        method: str,
        kind: str,
        name: str | None = None,
        *,
        body: Resource | None = None,
        params: Mapping[str, Any] | None = None,
        **instead: Any,
    ) -> Any:
        """Send a request; ``missing`` and ``conflict`` are returned in place of an error."""
        _, plural = KINDS[kind]
        verb = _VERBS.get(method, "list" if name is None else "get")
        return self._guard(
            self._request(method, kind, name, body, params or {}), verb, plural, instead
        )

    async def _request(
        self,
        method: str,
        kind: str,
        name: str | None,
        body: Resource | None,
        params: Mapping[str, Any],
    ) -> Any:
        version, plural = KINDS[kind]
        media_type = "merge-patch+json" if method == "PATCH" else "json"
        async with self._api.call_api(
            method,
            version=version,
            namespace=self._namespace,
            url=plural if name is None else f"{plural}/{name}",
            params=params,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": f"application/{media_type}"},
        ) as response:
            return response.json()

    async def _may(self, verb: str, resource: str) -> bool:
        """Return whether this account may do something."""
        name, _, subresource = resource.partition("/")
        attributes = {
            "namespace": self._namespace,
            "verb": verb,
            "group": _GROUPS.get(name, ""),
            "resource": name,
            "subresource": subresource,
        }
        if name == "secrets" and verb == "get":
            attributes["name"] = TLS_SECRET
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        async with self._api.call_api(
            "POST",
            version="authorization.k8s.io/v1",
            url="selfsubjectaccessreviews",
            content=json.dumps(review),
        ) as response:
            return bool(response.json()["status"]["allowed"])

    async def _log(self, pod: str, params: Mapping[str, str]) -> str:
        async with self._api.call_api(
            namespace=self._namespace, url=f"pods/{pod}/log", params=params
        ) as response:
            return response.text

    async def _follow(self, pod: str) -> AsyncIterator[str]:
        async with self._api.call_api(
            namespace=self._namespace,
            url=f"pods/{pod}/log",
            params={"follow": "true"},
            stream=True,
            timeout=None,
        ) as response:
            async for line in response.aiter_lines():
                yield line

    def _websocket(self, pod: str, port: int) -> AbstractAsyncContextManager[Any]:
        return self._api.open_websocket(
            namespace=self._namespace, url=f"pods/{pod}/portforward", params={"ports": str(port)}
        )

    async def _try_websocket(self, pod: str, port: int) -> None:
        async with self._websocket(pod, port):
            pass

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: str, port: int
    ) -> None:
        """Copy the bytes of a connection to a pod and back until one of them ends, then close both.

        The client sees that its connection is closed, whatever has failed.
        """
        with suppress(Exception, asyncio.CancelledError), closing(writer):
            async with self._websocket(pod, port) as websocket, asyncio.TaskGroup() as both:
                both.create_task(_send(reader, websocket))
                both.create_task(_receive(websocket, writer))

    async def _close(self) -> None:
        session = self._api._session  # noqa: SLF001 - kr8s cannot close it
        if session is not None:
            await session.aclose()

    def _guard(
        self,
        request: Coroutine[Any, Any, Result],
        verb: str,
        resource: str,
        instead: Mapping[str, Any] | None = None,
    ) -> Result:
        """Run a request and convert its errors to ClusterError."""
        import httpx
        import httpx_ws
        import kr8s

        try:
            return self._loop.run(request)
        except kr8s.ServerError as error:
            status = error.response.status_code if error.response is not None else 0
            text = error_line(error)
            for key, code in (("missing", 404), ("conflict", 409)):
                if instead and key in instead and status == code and not _is_unknown_kind(text):
                    return instead[key]
            raise self._explain(status, text, verb, resource) from error
        except httpx_ws.WebSocketUpgradeError as error:
            status = error.response.status_code
            raise self._explain(status, _message_of(error.response), verb, resource) from error
        except (httpx.HTTPError, httpx_ws.HTTPXWSException, kr8s.APITimeoutError, OSError) as error:
            raise ClusterError(
                f"the API server of Kubernetes does not respond ({error_line(error)})",
                where=self.server,
                hint="check the network and `kubectl cluster-info`",
            ) from error

    def _explain(self, status: int, text: str, verb: str, resource: str) -> ClusterError:
        """Return the error for a response of the API server."""
        where, hint = f"namespace {self._namespace}", None
        if status == 401:
            what = f"the API server does not accept the credentials ({text})"
            where, hint = self.server, "log in again, or renew the token of the kubeconfig"
        elif status == 403 and "exceeded quota" in text:
            what = f"the quota does not allow to {verb} {resource}: {text}"
            hint = "ask for a larger ResourceQuota, or lower workers, cpu and memory"
        elif status == 403:
            what = f"no permission to {verb} {resource} ({text})"
            hint = "bind the role tokenlake-user of k8s/base/roles.yaml to your account"
        elif status == 404 and resource.startswith("dask") and _is_unknown_kind(text):
            what = f"Dask's operator is not installed: the API server does not know {resource}"
            where, hint = self.server, OPERATOR_HINT
        elif status == 404 and f'namespaces "{self._namespace}" not found' in text:
            what, hint = "the namespace does not exist", "create it: kubectl apply -k k8s/base"
        else:
            what = f"the API server refused to {verb} {resource} ({status}: {text})"
        return ClusterError(what, where=where, hint=hint)


def _is_unknown_kind(text: str) -> bool:
    """Return whether a response 404 is about the kind of a resource, not about its name."""
    return "404" in text or "could not find the requested resource" in text


def _message_of(response: "httpx.Response") -> str:
    """Return the message of a status of the API server."""
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, RuntimeError):
        return f"status {response.status_code}"


async def _authenticate(api: "kr8s.asyncio.Api") -> None:
    await api.auth


async def _send(reader: asyncio.StreamReader, websocket: Any) -> None:
    while data := await reader.read(1 << 18):
        await websocket.send_bytes(b"\x00" + data)  # channel 0
    raise EOFError  # which also ends the other direction


async def _receive(websocket: Any, writer: asyncio.StreamWriter) -> None:
    """Write what a pod sends; the first message of both channels is the port, channel 1 has errors."""
    seen: set[int] = set()
    while True:
        message = await websocket.receive_bytes()
        channel = message[0]
        if channel in seen and channel == 1:
            raise EOFError
        if channel in seen:
            writer.write(message[1:])
            await writer.drain()
        seen.add(channel)


@contextmanager
def _removing_key_files() -> Iterator[Any]:
    """Remove the copies of keys that kr8s leaves in the temporary folder; yields what to call with an API."""
    written: set[str] = set()

    def watch(api: Any) -> None:
        authenticate = api.auth.reauthenticate

        async def reauthenticate() -> None:
            await authenticate()
            auth = api.auth
            paths = (auth.client_key_file, auth.client_cert_file, auth.server_ca_file)
            user = getattr(auth, "_user", {}) | getattr(auth, "_cluster", {})
            if any(name.endswith("-data") for name in user):
                written.update(str(path) for path in paths if path)

        api.auth.reauthenticate = reauthenticate

    try:
        yield watch
    finally:
        for path in written:
            if Path(path).parent == Path(tempfile.gettempdir()):
                with suppress(OSError):
                    Path(path).unlink()


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):
            self.run(_cancel_all())
        self.call(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread and return its result; cancel it on Ctrl-C."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Any) -> None:
        """Call a function in the thread."""
        self._loop.call_soon_threadsafe(function)


async def _cancel_all() -> None:
    """Cancel what still runs: the connections of forwarded ports."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5) if tasks else None
