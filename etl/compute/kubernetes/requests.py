"""`Requests`: send requests to the API server, again while it does not respond.

An update of the control plane, or of a server in front of it, then ends no run.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from etl.compute.kubernetes.access_review import review_access
from etl.compute.kubernetes.api_failure import Failure
from etl.compute.kubernetes.loop_thread import LoopThread, Result
from etl.compute.kubernetes.outage import MAX_SECONDS, Outage
from etl.compute.kubernetes.port_forward import open_port
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.resumable_stream import Link
from etl.errors import ClusterError

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

JSON: Final = "application/json"
_VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
_FIRST_SECONDS: Final = 10.0  # for a server that has not responded yet: its address may be wrong


class Requests:
    """Requests for the resources of a namespace."""

    def __init__(
        self, api: "kr8s.asyncio.Api", loop: LoopThread, namespace: str, outage: Outage
    ) -> None:
        self._api = api
        self._loop = loop
        self._namespace = namespace
        self._outage = outage
        self._has_responded = False
        self._clock_error = timedelta()  # of this machine

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._api.auth.server)

    def now(self) -> datetime:
        """Return the time by the clock of the API server, as of its last response."""
        return datetime.now(UTC) - self._clock_error

    def call(
        self,
        method: str,
        kind: str,
        name: str | None = None,
        *,
        once: bool = False,
        request: Mapping[str, Any] | None = None,
        **instead: Any,
    ) -> Any:
        """Send a request; ``missing``, ``conflict`` and ``expired`` are returned in place of an error."""
        verb = _VERBS.get(method, "list" if name is None else "get")
        return self.run(
            lambda: self.send(method, kind, name, **(request or {})),
            *(verb, KINDS[kind][1]),
            once=once,
            **instead,
        )

    def find_refused(
        self, asked: Sequence[tuple[str, str]], account: str | None
    ) -> tuple[str, str] | None:
        """Return the first verb and resource that an account is not allowed; None: the own account."""
        kind = "selfsubjectaccessreviews" if account is None else "localsubjectaccessreviews"
        answers = self.run(
            lambda: review_access(self._api, self._namespace, asked, account), "create", kind
        )
        return next((each for each, yes in zip(asked, answers, strict=True) if not yes), None)

    def run(
        self,
        request: Callable[[], Coroutine[Any, Any, Result]],
        verb: str,
        resource: str,
        *,
        once: bool = False,
        **instead: Any,
    ) -> Result:
        """Send a request, again while the server does not respond; ``instead`` is as in ``call``.

        Raises ClusterError for all other responses.
        """
        while True:
            try:
                result = self._loop.run(request())
            except Exception as error:
                failure = Failure.of(error)
                if failure is None:
                    raise
                if (key := failure.kind()) in instead:
                    self._outage.end()
                    answer: Result = instead[key]
                    return answer
                if once:
                    raise self._explain(failure, verb, resource) from error
                self.wait_or_raise(failure, verb, resource, error)
            else:
                self._has_responded = True
                self._outage.end()
                return result

    def wait_or_raise(
        self, failure: Failure, verb: str, resource: str, error: Exception | None = None
    ) -> None:
        """Wait before the next attempt; raise ClusterError if there is none."""
        limit = MAX_SECONDS if self._has_responded else _FIRST_SECONDS
        is_over = self._outage.seconds > limit
        if is_over or not failure.may_pass(has_settled=self._outage.has_settled):
            raise self._explain(failure, verb, resource) from error
        is_lost = failure.status is None or failure.status >= 500
        time.sleep(self._outage.fail(failure.text, is_lost=is_lost))

    def _explain(self, failure: Failure, verb: str, resource: str) -> ClusterError:
        return failure.explain(verb, resource, namespace=self._namespace, server=self.server)

    async def send(
        self,
        method: str,
        kind: str,
        name: str | None = None,
        *,
        body: Resource | None = None,
        params: Mapping[str, Any] | None = None,
        accept: str = JSON,
    ) -> Any:
        """Send a request once, and return the response."""
        version, plural = KINDS[kind]
        media_type = "merge-patch+json" if method == "PATCH" else "json"
        async with self._api.call_api(
            method,
            version=version,
            namespace=self._namespace,
            url=plural if name is None else f"{plural}/{name}",
            params=params or {},
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": f"application/{media_type}", "Accept": accept},
        ) as response:
            self._note_time(response)
            return response.json()

    async def log(self, pod: str, params: Mapping[str, str]) -> str:
        """Return the log of a pod."""
        async with self._api.call_api(
            namespace=self._namespace, url=f"pods/{pod}/log", params=params
        ) as response:
            return response.text

    async def follow_log(self, pod: str, container: str | None, since: str) -> AsyncIterator[str]:
        """Yield the lines of a pod's log since a time until its container ends, each with its time."""
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

    def open_port(self, pod: str, port: int) -> AbstractAsyncContextManager[Link]:
        """Connect to a port of a pod."""
        return open_port(self._api, self._namespace, pod, port)

    def _note_time(self, response: "httpx.Response") -> None:
        with suppress(KeyError, TypeError, ValueError):  # a proxy may leave it out
            server = parsedate_to_datetime(response.headers["Date"])
            self._clock_error = datetime.now(UTC) - server
