"""`Api`: read and write the resources of a namespace through the API server, with kr8s.

A thread runs the event loop of kr8s, so that the rest of the library stays synchronous and a forwarded port
works for as long as the API is open. Each request is sent again while the server does not respond, for five
minutes, so that an update of the control plane ends no run.
"""

import time
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Self

from etl.compute.kubernetes.api_failure import Failure
from etl.compute.kubernetes.api_session import open_session
from etl.compute.kubernetes.link_relay import LINK_PORT
from etl.compute.kubernetes.loop_thread import LoopThread
from etl.compute.kubernetes.outage import Outage
from etl.compute.kubernetes.port_forward import copy, listening
from etl.compute.kubernetes.requests import KINDS, Requests
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.scheduler_link import SchedulerLink
from etl.compute.listener import Listener
from etl.errors import ClusterError

_MAX_ITEMS: Final = 500  # of a list: the first pods have the problems of all
_PAUSE_SECONDS: Final = 0.5
_RELAY_SECONDS: Final = 10.0  # until the relay listens, after its scheduler

_REQUEST: Final = "tokenlake/request"
"""The annotation that an object gets from the request that creates it, in case its response is lost."""


class Api:
    """The API of a Kubernetes cluster, for the resources of one namespace."""

    def __init__(
        self,
        requests: Requests,
        namespace: str,
        loop: LoopThread,
        listener: Listener,
        outage: Outage,
    ) -> None:
        self._requests = requests
        self._namespace = namespace
        self._loop = loop
        self._listener = listener
        self._outage = outage

    @classmethod
    @contextmanager
    def connect(
        cls, namespace: str, context: str | None = None, listener: Listener | None = None
    ) -> Iterator[Self]:
        """Connect with the current context of the kubeconfig or another one, or as the pod's account.

        ``listener`` is notified while the API server does not respond. Raises ClusterError if kr8s is not
        installed, or without credentials.
        """
        listener = listener or Listener()
        outage = Outage("the API server", listener)
        with open_session(namespace, context) as (api, loop):
            yield cls(Requests(api, loop, namespace, outage), namespace, loop, listener, outage)

    def now(self) -> datetime:
        """Return the time by the clock of the API server, as of its last response."""
        return self._requests.now()

    def require(self, needs: Mapping[str, str]) -> None:
        """Raise ClusterError if this account lacks one of these permissions: resource -> verbs."""
        for resource, verbs in needs.items():
            for verb in verbs.split():
                ask = partial(self._requests.is_allowed, verb, resource)
                while not self._requests.run(ask, "create", "selfsubjectaccessreviews"):
                    self._requests.wait_or_raise(Failure(403, "by its roles"), verb, resource)

    def get(self, kind: str, name: str) -> Resource | None:
        """Return a resource, or None if it does not exist."""
        return self._requests.call("GET", kind, name, missing=None)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Resource]:
        """Return the resources of a kind with these labels, at most the first few hundred."""
        params: dict[str, Any] = {"limit": _MAX_ITEMS}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        items: list[Resource] = self._requests.call("GET", kind, params=params)["items"]
        return items

    def create(self, resource: Resource) -> Resource | None:
        """Create a resource and return it; None if one with its name exists.

        If the first response is lost, the next request finds the resource that the first has created.
        """
        kind, metadata, request = resource["kind"], resource["metadata"], uuid.uuid4().hex
        annotations = metadata.get("annotations", {}) | {_REQUEST: request}
        marked = resource | {"metadata": metadata | {"annotations": annotations}}
        requests = 0

        def send() -> Coroutine[Any, Any, Any]:
            nonlocal requests
            requests += 1
            return self._requests.send("POST", kind, None, marked, {})

        created: Resource | None = self._requests.run(send, "create", KINDS[kind][1], conflict=None)
        if created is None and requests > 1:
            found = self.get(kind, metadata["name"])
            is_own = found is not None and annotations_of(found).get(_REQUEST) == request
            return found if is_own else None
        return created

    def patch(
        self, kind: str, name: str, changes: Resource, *, once: bool = False
    ) -> Resource | None:
        """Change fields of a resource and return it; None if it does not exist.

        Also None if ``changes`` have another ``resourceVersion``. ``once``: do not wait for the API server.
        """
        instead = {"missing": None, "conflict": None}
        return self._requests.call("PATCH", kind, name, body=changes, once=once, **instead)

    def delete(self, kind: str, name: str, *, version: str | None = None) -> bool:
        """Delete a resource and what belongs to it, unless it does not exist.

        With ``version``, return False if its ``resourceVersion`` is another one: then it is not deleted.
        """
        body: Resource = {"propagationPolicy": "Background"}
        if version is not None:
            body["preconditions"] = {"resourceVersion": version}
        answer = self._requests.call("DELETE", kind, name, body=body, missing=None, conflict=False)
        return answer is not False

    def log(self, pod: str, *, lines: int | None = None, previous: bool = False) -> str:
        """Return the last lines of a pod's log, or of the container that ran before."""
        params = {"previous": "true"} if previous else {}
        if lines is not None:
            params["tailLines"] = str(lines)
        return self._requests.run(lambda: self._requests.log(pod, params), "get", "pods/log")

    def follow_log(self, pod: str) -> Iterator[str]:
        """Yield the lines of a pod's log until its container ends."""
        lines, count = self._requests.follow_log(pod), 0

        async def read() -> str | None:
            nonlocal lines
            try:
                return await anext(lines, None)
            except Exception:
                lines = self._requests.follow_log(pod, skip=count)
                raise

        while (line := self._requests.run(read, "get", "pods/log")) is not None:
            count += 1
            yield line

    @contextmanager
    def forward(self, pod: str, port: int, local_port: int = 0) -> Iterator[int]:
        """Forward a port of this machine to one of a pod; the context yields the port of this machine.

        Raises ClusterError if the port cannot be forwarded.
        """

        async def try_port() -> None:
            async with self._requests.open_port(pod, port):
                pass

        self._requests.run(try_port, "create", "pods/portforward")
        with listening(
            self._loop,
            lambda reader, writer: copy(self._requests.open_port(pod, port), reader, writer),
            local_port,
        ) as local:
            yield local

    @contextmanager
    def link(self, pod: str) -> Iterator[tuple[int, SchedulerLink]]:
        """Yield a port of this machine that leads to the scheduler in a pod, also after an outage.

        Raises ClusterError if the pod has no relay.
        """
        outage = Outage("the scheduler's pod", self._listener, server=self._outage)
        link = SchedulerLink(lambda: self._requests.open_port(pod, LINK_PORT), outage)
        end = time.monotonic() + _RELAY_SECONDS
        while not self._requests.run(link.has_relay, "create", "pods/portforward"):
            if time.monotonic() > end:
                raise ClusterError(
                    f"the scheduler does not listen on port {LINK_PORT}: another version of Tokenlake "
                    "has started it",
                    where=f"pod {pod} in namespace {self._namespace}",
                    hint="delete the cluster with `etl cluster down FILE`",
                )
            time.sleep(_PAUSE_SECONDS)
        with listening(self._loop, link.serve) as local:
            try:
                yield local, link
            finally:
                self._loop.run(link.close())


def annotations_of(resource: Resource) -> Mapping[str, str]:
    """Return the annotations of a resource."""
    annotations: Mapping[str, str] = resource["metadata"].get("annotations") or {}
    return annotations


def is_deleted(resource: Resource) -> bool:
    """Return whether a resource is being deleted."""
    return "deletionTimestamp" in resource["metadata"]
