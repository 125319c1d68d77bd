"""`Api`: read and write the resources of a namespace through the API server, with kr8s.

A thread runs the event loop of kr8s, so that the rest of the library stays synchronous and a forwarded port
works for as long as the API is open. Each request is sent again while the server does not respond, for five
minutes, so that an update of the control plane ends no run.
"""

import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Self

from etl.compute.kubernetes.api_failure import Failure
from etl.compute.kubernetes.api_session import open_session
from etl.compute.kubernetes.link_relay import LINK_PORT
from etl.compute.kubernetes.log_follower import LogFollower
from etl.compute.kubernetes.loop_thread import LoopThread
from etl.compute.kubernetes.outage import Outage
from etl.compute.kubernetes.port_forward import copy, listening, port_of
from etl.compute.kubernetes.requests import JSON, KINDS, Requests
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.scheduler_link import SchedulerLink
from etl.compute.listener import Listener
from etl.errors import ClusterError

_FOLLOW_SECONDS: Final = 1.0
_PAGE_ITEMS: Final = 500  # of a list, as kubectl
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
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

    def require(self, needs: Mapping[str, str], *, account: str | None = None) -> None:
        """Raise ClusterError if one of these permissions is missing: resource -> verbs.

        ``account`` is a service account of the namespace; None: the account that is connected.
        """
        asked = [(verb, resource) for resource, verbs in needs.items() for verb in verbs.split()]
        while refused := self._requests.find_refused(asked, account):
            verb, resource = refused
            if account is None or not self._outage.has_settled:
                self._requests.wait_or_raise(Failure(403, "by its roles"), verb, resource)
            else:
                raise ClusterError(
                    f"the account {account} has no permission to {verb} {resource}",
                    where=f"namespace {self._namespace}",
                    hint="create its role again: kubectl apply -k k8s/base",
                )

    def get(self, kind: str, name: str) -> Resource | None:
        """Return a resource, or None if it does not exist."""
        return self._requests.call("GET", kind, name, missing=None)

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
        accept = _METADATA if only_metadata else JSON
        items: list[Resource] = []
        params: dict[str, Any] = selectors | {"limit": _PAGE_ITEMS}
        while True:
            page = self._requests.call(
                "GET", kind, request={"params": params, "accept": accept}, expired=None
            )
            if page is None:  # the next page is of a version that is no longer stored: read all
                items, params = [], selectors
                continue
            for item in page["items"] or ():  # null in a list of metadata
                item["metadata"].pop("managedFields", None)  # half of an item
                items.append(item)
            if not (token := page.get("metadata", {}).get("continue")):
                return items
            params["continue"] = token

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
            return self._requests.send("POST", kind, body=marked)

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
        return self._requests.call(
            "PATCH", kind, name, request={"body": changes}, once=once, **instead
        )

    def delete(
        self,
        kind: str,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        dependents_first: bool = False,
    ) -> bool:
        """Delete a resource and what belongs to it, unless it does not exist.

        With ``uid`` or ``version`` (``resourceVersion``), another resource with the same name or another
        version is not deleted: then return False. With ``dependents_first``, the resource exists until its
        pods have ended.
        """
        body: Resource = {"propagationPolicy": "Foreground" if dependents_first else "Background"}
        asked = {"uid": uid, "resourceVersion": version}
        instead: dict[str, Any] = {"missing": True}
        if preconditions := {name: value for name, value in asked.items() if value is not None}:
            body["preconditions"] = preconditions
            instead["conflict"] = False
        answer = self._requests.call("DELETE", kind, name, request={"body": body}, **instead)
        return answer is not False

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
        return self._requests.run(
            lambda: self._requests.log(pod, given), "get", "pods/log", missing=""
        )

    def follow_logs(
        self, find: Callable[[], Mapping[str, str | None] | None]
    ) -> Iterator[tuple[str, str]]:
        """Yield the lines of several pods, each with its pod, until their containers end.

        ``find`` is called every second. It returns further pods with their containers, or None if there will
        be none.
        """
        follower = LogFollower(self._requests.follow_log)
        try:
            while (found := find()) is not None or follower.is_active:
                self._loop.run(follower.add(found or {}))
                yield from self._requests.run(
                    lambda: follower.read(_FOLLOW_SECONDS), "get", "pods/log", once=True
                )
        finally:
            self._loop.run(follower.stop())

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
        ) as server:
            yield port_of(server)

    @contextmanager
    def link(self, pod: str) -> Iterator[tuple[int, SchedulerLink]]:
        """Yield a port of this machine that leads to the scheduler in a pod, also after an outage.

        Raises ClusterError if the pod has no relay.
        """
        outage = Outage("the scheduler's pod", self._listener, server=self._outage)
        link = SchedulerLink(pod, lambda: self._requests.open_port(pod, LINK_PORT), outage)
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
        with listening(self._loop, link.serve) as link.server:
            try:
                yield port_of(link.server), link
            finally:
                self._loop.run(link.close())


def annotations_of(resource: Resource) -> Mapping[str, str]:
    """Return the annotations of a resource."""
    annotations: Mapping[str, str] = resource["metadata"].get("annotations") or {}
    return annotations


def is_deleted(resource: Resource) -> bool:
    """Return whether a resource is being deleted."""
    return "deletionTimestamp" in resource["metadata"]
