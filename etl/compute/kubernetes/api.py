"""`Api`: read and write the resources of a namespace through the API server, with kr8s.

A thread runs the event loop of kr8s, so that the rest of the library stays synchronous and a forwarded port
works for as long as the API is open. The PortForward of kr8s 0.20.15 is not used: it sends requests without a
pause when a pod is gone, prints a traceback when a client is lost, and from Python 3.12 does not end while a
connection is open (``tests/k8s/test_port_forward.py`` has these cases).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from etl.compute.kubernetes.access_review import review_access
from etl.compute.kubernetes.key_files import removing_key_files
from etl.compute.kubernetes.log_follower import LogFollower
from etl.compute.kubernetes.loop_thread import LoopThread, Result
from etl.compute.kubernetes.resources import Resource
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
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "Service": ("v1", "services"),
    "Event": ("v1", "events"),
}
"""The kinds that are used: the version of the API, and the name in its paths."""

OPERATOR_HINT: Final = (
    "an administrator installs the operator once: helm install dask-operator "
    "dask-kubernetes-operator --repo https://helm.dask.org -n dask-operator --create-namespace"
)

_TIMEOUT_SECONDS: Final = 10.0  # of one request
_FOLLOW_SECONDS: Final = 1.0
_PAGE_ITEMS: Final = 500  # of a list, as kubectl
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


class Api:
    """The API of a Kubernetes cluster, for the resources of one namespace."""

    def __init__(self, api: "kr8s.asyncio.Api", namespace: str, loop: LoopThread) -> None:
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
        with LoopThread() as loop, removing_key_files() as watch:
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

    def require(self, needs: Mapping[str, str], *, account: str | None = None) -> None:
        """Raise ClusterError if one of these permissions is missing: resource -> verbs.

        ``account`` is a service account of the namespace; None: the account that is connected.
        """
        asked = [(verb, resource) for resource, verbs in needs.items() for verb in verbs.split()]
        review = review_access(self._api, self._namespace, asked, account)
        kind = "selfsubjectaccessreviews" if account is None else "localsubjectaccessreviews"
        for (verb, resource), is_allowed in zip(
            asked, self._guard(review, "create", kind), strict=True
        ):
            if not is_allowed and account is None:
                raise self._explain(403, "by its roles", verb, resource)
            if not is_allowed:
                raise ClusterError(
                    f"the account {account} has no permission to {verb} {resource}",
                    where=f"namespace {self._namespace}",
                    hint="create its role again: kubectl apply -k k8s/base",
                )

    def get(self, kind: str, name: str) -> Resource | None:
        """Return a resource, or None if it does not exist."""
        return self._call("GET", kind, name, missing=None)

    def list(
        self,
        kind: str,
        labels: Mapping[str, str] | None = None,
        *,
        fields: str = "",
        only_metadata: bool = False,
    ) -> list[Resource]:
        """Return all resources of a kind with these labels, and that a field selector selects."""
        selectors = {
            "labelSelector": ",".join(f"{key}={value}" for key, value in (labels or {}).items()),
            "fieldSelector": fields,
        }
        selectors = {name: selector for name, selector in selectors.items() if selector}
        accept = _METADATA if only_metadata else _JSON
        items: list[Resource] = []
        params: dict[str, Any] = selectors | {"limit": _PAGE_ITEMS}
        while True:
            page = self._call("GET", kind, params=params, accept=accept, expired=None)
            if (
                page is None
            ):  # the next page is of a version that is no longer stored: read all at once
                items, params = [], selectors
                continue
            for item in page["items"] or ():  # null in a list of metadata
                item["metadata"].pop("managedFields", None)  # half of an item
                items.append(item)
            if not (token := page.get("metadata", {}).get("continue")):
                return items
            params["continue"] = token

    def create(self, resource: Resource) -> Resource | None:
        """Create a resource and return it; None if one with its name exists."""
        return self._call("POST", resource["kind"], body=resource, conflict=None)

    def patch(self, kind: str, name: str, changes: Resource) -> Resource:
        """Change fields of a resource and return it."""
        changed: Resource = self._call("PATCH", kind, name, body=changes)
        return changed

    def delete(
        self, kind: str, name: str, *, uid: str | None = None, dependents_first: bool = False
    ) -> None:
        """Delete a resource and what belongs to it, unless it does not exist.

        With ``uid``, a later resource with the same name is not deleted. With ``dependents_first``, the
        resource exists until its pods have ended.
        """
        body: Resource = {"propagationPolicy": "Foreground" if dependents_first else "Background"}
        instead: dict[str, Any] = {"missing": None}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
            instead["conflict"] = None
        self._call("DELETE", kind, name, body=body, **instead)

    def log(
        self,
        pod: str,
        *,
        container: str | None = None,
        lines: int | None = None,
        previous: bool = False,
    ) -> str:
        """Return the last lines of a pod's log, or of the container that ran before.

        The log of a pod that does not exist is empty.
        """
        params = {"container": container, "tailLines": lines, "previous": previous or None}
        given = {name: str(value).lower() for name, value in params.items() if value is not None}
        return self._guard(self._log(pod, given), "get", "pods/log", {"missing": ""})

    def follow_logs(
        self, find: Callable[[], Mapping[str, str | None] | None]
    ) -> Iterator[tuple[str, str]]:
        """Yield the lines of several pods, each with its pod, until their containers end.

        ``find`` is called every second. It returns further pods with their containers, or None if there will
        be none.
        """
        follower = LogFollower(self._follow)
        try:
            while (found := find()) is not None or follower.is_active:
                self._loop.run(follower.add(found or {}))
                yield from self._guard(follower.read(_FOLLOW_SECONDS), "get", "pods/log")
        finally:
            self._loop.run(follower.stop())

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
        accept: str = _JSON,
        **instead: Any,
    ) -> Any:
        """Send a request; ``missing``, ``conflict`` and ``expired`` are returned in place of an error."""
        _, plural = KINDS[kind]
        verb = _VERBS.get(method, "list" if name is None else "get")
        return self._guard(
            self._request(method, kind, name, body, params or {}, accept), verb, plural, instead
        )

    async def _request(
        self,
        method: str,
        kind: str,
        name: str | None,
        body: Resource | None,
        params: Mapping[str, Any],
        accept: str,
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
            headers={"Content-Type": f"application/{media_type}", "Accept": accept},
        ) as response:
            return response.json()

    async def _log(self, pod: str, params: Mapping[str, str]) -> str:
        async with self._api.call_api(
            namespace=self._namespace, url=f"pods/{pod}/log", params=params
        ) as response:
            return response.text

    async def _follow(self, pod: str, container: str | None, since: str) -> AsyncIterator[str]:
        import kr8s

        params = {
            "follow": "true",
            "timestamps": "true",
            "container": container,
            "sinceTime": since,
        }
        try:
            async with self._api.call_api(
                namespace=self._namespace,
                url=f"pods/{pod}/log",
                params={name: value for name, value in params.items() if value},
                stream=True,
                timeout=None,
            ) as response:
                async for line in response.aiter_lines():
                    yield line
        except kr8s.ServerError as error:
            if error.response is None or error.response.status_code != 404:
                raise  # else the pod was deleted since it was found

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
            for key, code in (("missing", 404), ("conflict", 409), ("expired", 410)):
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
