"""`DaskCluster`: create the cluster of a file, wait until it works or say why it does not, and delete it."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from distributed.security import Security

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.api import OPERATOR_HINT, Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_problems import (
    PodProblem,
    find_problems,
    is_ending,
    is_ready,
    state_of,
)
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.tls_secret import TlsSecret
from etl.compute.listener import Listener
from etl.errors import ClusterError
from etl.plural import many

SCHEDULER_PORT: Final = 8786
DASHBOARD_PORT: Final = 8787

_POLL_SECONDS: Final = 1.0
_OPERATOR_SECONDS: Final = 20.0  # the operator reacts in two; then it does not run
_FATAL_SECONDS: Final = 5.0  # a Secret may be created right after the pods that mount it
_START_SECONDS: Final = (
    900.0  # a cluster autoscaler adds nodes in minutes, unless none are available
)
_END_SECONDS: Final = 60.0  # pods have 20 seconds to end
_LOG_LINES: Final = 5

_NEEDS: Final = {
    "daskclusters": "get create delete",
    "daskworkergroups": "get list create patch delete",
    "pods": "list",
    "events": "list",
    "pods/log": "get",
}
"""The permissions that a cluster needs, as in k8s/base/roles.yaml. Without one, nothing is created."""
_NEEDS_OUTSIDE: Final = {"secrets": "get create", "pods/portforward": "get"}


@dataclass(frozen=True, kw_only=True)
class Status:
    """A cluster: the image and run of its DaskCluster, and its pods by role, with what each is doing."""

    image: str | None  # None: the cluster does not exist
    run: str | None
    scheduler: str
    workers: Mapping[str, Mapping[str, int]]  # by group and state
    problems: tuple[str, ...]


class DaskCluster:
    """The cluster of a cluster file, whether it exists or not."""

    def __init__(self, api: Api, settings: ClusterFile, listener: Listener) -> None:
        self._api = api
        self._settings = settings
        self._listener = listener
        self._tls = TlsSecret(api, settings)
        self._name = settings.name
        self._where = f"cluster {settings.name} in namespace {settings.namespace}"
        self._names = re.compile(rf"{settings.name}(-(scheduler|default|spot|high-memory)(-.*)?)?")
        self._created = ""  # when, by the clock of the API server
        self._note = ""  # a problem that may end without a change

    def exists(self) -> bool:
        """Return whether the cluster exists; raises ClusterError if Dask's operator is not installed."""
        return self._find() is not None

    def require_permissions(self) -> None:
        """Raise ClusterError if this account lacks a permission that a run needs."""
        self._api.require(_NEEDS | ({} if self._tls.is_mounted() else _NEEDS_OUTSIDE))

    def create(self, sizes: Mapping[str, int], *, run: str | None = None) -> None:
        """Create the cluster, or add workers to an existing cluster; ``run`` is the run that will delete it.

        Workers are never removed: Dask's operator would choose workers of any group.
        """
        self.require_permissions()
        self._await_end()  # of an earlier cluster: the operator would count what is being deleted
        created = None if self.exists() else self._create(sizes["default"], run)
        found = created or self._find()
        if found is None or "deletionTimestamp" in found["metadata"]:
            raise ClusterError("the cluster is being deleted", where=self._where, hint="run again")
        self._created = found["metadata"]["creationTimestamp"]
        if created is None:
            self._listener.note(
                f"cluster    {self._name} is up in namespace {self._settings.namespace}"
            )
        if (image := _image_of(found)) != self._settings.image:
            self._listener.warning(f"the cluster runs {image}, not {self._settings.image}")
        self._add_workers("default", sizes["default"])
        for group in sizes:
            if group != "default":
                self.add_group(group, sizes[group])

    def _create(self, workers: int, run: str | None) -> Resource | None:
        """Create the cluster with its certificates; None if another program just did."""
        self.ensure_certificates()
        created = self._api.create(resources.dask_cluster(self._settings, workers, run=run))
        if created is not None:
            self._listener.note(
                f"cluster    {self._name} created in namespace {self._settings.namespace}"
            )
        return created

    def add_group(self, group: str, workers: int) -> None:
        """Create a group of workers, or add workers to an existing group."""
        resource = resources.worker_group(self._settings, group, workers)
        if self._api.create(resource) is None:
            self._add_workers(group, workers)

    def is_of_spot(self, worker: str) -> bool:
        """Return whether a worker is of the spot group, by its name."""
        return worker.startswith(f"{self._name}-spot-worker-")

    def remove_group(self, group: str) -> None:
        """Delete a group with all its workers."""
        self._api.delete("DaskWorkerGroup", f"{self._name}-{group}")

    def _add_workers(self, group: str, workers: int) -> None:
        name = f"{self._name}-{group}"
        found = self._api.get("DaskWorkerGroup", name)
        if found is not None and found["spec"]["worker"]["replicas"] < workers:
            self._listener.note(f"workers    {name}: {workers}")
            self._api.patch("DaskWorkerGroup", name, {"spec": {"worker": {"replicas": workers}}})

    def wait_for_scheduler(self) -> str:
        """Wait until the scheduler is ready and return its pod.

        Raises ClusterError with the reason if it cannot start.
        """
        started = time.monotonic()
        waiting = _Waiting(self._listener)
        while True:
            pods = self._pods(component="scheduler")
            for pod in pods:
                if is_ready(pod):
                    return str(pod["metadata"]["name"])
            seconds = time.monotonic() - started
            self._check("scheduler", pods, seconds)
            if not pods and seconds > _OPERATOR_SECONDS and not self._is_seen_by_operator():
                raise ClusterError(
                    "Dask's operator does not react to the new cluster",
                    where=self._where,
                    hint="check its pod: kubectl get pods --all-namespaces | grep dask-operator; "
                    + OPERATOR_HINT,
                )
            state = state_of(pods[0]) if pods else "no pod yet"
            waiting.for_("scheduler", state, seconds, self._note)
            time.sleep(_POLL_SECONDS)

    def wait_for_workers(self, has_worker: Callable[[list[Resource]], bool]) -> None:
        """Wait until a function of the worker pods returns true.

        Raises ClusterError with the reason if no worker can start.
        """
        started = time.monotonic()
        waiting = _Waiting(self._listener)
        while not has_worker(pods := self._pods(component="worker")):
            seconds = time.monotonic() - started
            self._check("worker", pods, seconds)
            counts = Counter(map(state_of, pods))
            state = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no pod yet"
            waiting.for_("workers", state, seconds, self._note)
            time.sleep(_POLL_SECONDS)

    def _check(self, role: str, pods: list[Resource], seconds: float) -> None:
        """Raise ClusterError with the reason if none of the pods of a role can start, after some seconds."""
        problems = [each for each in self._problems(pods) if each.role == role]
        fatal = {problem.name: problem for problem in problems if problem.is_fatal}
        is_hopeless = all(pod["metadata"]["name"] in fatal for pod in pods)
        if fatal and is_hopeless and seconds > _FATAL_SECONDS:
            raise self._error(next(iter(fatal.values())))
        self._note = problems[0].what if problems else ""
        if seconds > _START_SECONDS:
            raise ClusterError(
                f"the cluster did not start within {_START_SECONDS / 60:.0f} minutes"
                + (f": {self._note}" if self._note else ""),
                where=self._where,
                hint=problems[0].hint if problems else "see `kubectl describe pods`",
            )

    def _problems(self, pods: list[Resource]) -> list[PodProblem]:
        events = self._api.list("Event")
        return find_problems(pods, events, names=self._names, since=self._created)

    def _error(self, problem: PodProblem) -> ClusterError:
        what = problem.what
        if problem.crashed is not None:
            log = self._api.log(problem.crashed, lines=_LOG_LINES, previous=True)
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            what += f"; its last lines: {' | '.join(lines)}"
        return ClusterError(what, where=self._where, hint=problem.hint)

    def delete_if_of(self, run: str) -> None:
        """Delete the cluster if a run has created it."""
        found = self._find()
        if found is not None and _run_of(found) == run:
            self.delete()

    def delete(self) -> None:
        """Delete the cluster with all its workers, and wait until its pods have ended."""
        for group in self._api.list(
            "DaskWorkerGroup"
        ):  # also those that the operator has not adopted
            if group["spec"].get("cluster") == self._name:
                self._api.delete("DaskWorkerGroup", group["metadata"]["name"])
        self._api.delete("DaskCluster", self._name)
        self._listener.note(f"cluster    {self._name} deleted")
        self._await_end(also_resource=False)

    def _await_end(self, *, also_resource: bool = True) -> None:
        """Wait until the pods of a deleted cluster have ended.

        Its resource costs nothing, and ends when the operator has finished what it is doing.
        """
        waiting = _Waiting(self._listener)
        started = time.monotonic()
        while (seconds := time.monotonic() - started) < _END_SECONDS:
            found = self._find()
            if found is not None and "deletionTimestamp" not in found["metadata"]:
                return
            pods = self._pods()
            if not pods and (found is None or not also_resource):
                return
            waiting.for_("the cluster", f"to end, {many(len(pods), 'pod')}", seconds, "")
            time.sleep(_POLL_SECONDS)

    def status(self) -> Status:
        """Return what the cluster is doing."""
        found = self._find()
        pods = [pod for pod in self._pods() if not is_ending(pod)]
        workers: dict[str, dict[str, int]] = {}
        scheduler = "none"
        for pod in pods:
            labels, state = pod["metadata"].get("labels", {}), state_of(pod)
            if labels.get("dask.org/component") == "scheduler":
                scheduler = state
                continue
            group = workers.setdefault(labels.get("dask.org/workergroup-name", ""), {})
            group[state] = group.get(state, 0) + 1
        if found is None:
            return Status(image=None, run=None, scheduler=scheduler, workers=workers, problems=())
        self._created = found["metadata"]["creationTimestamp"]
        return Status(
            image=_image_of(found),
            run=_run_of(found),
            scheduler=scheduler,
            workers=workers,
            problems=tuple(problem.what for problem in self._problems(pods)),
        )

    def security(self) -> Security:
        """Return the TLS settings of a client; raise ClusterError if there are none, or expired ones."""
        return self._tls.security()

    def ensure_certificates(self) -> None:
        """Create the certificates, unless they exist; raise ClusterError if these have expired."""
        self._tls.ensure(self._listener)

    def _find(self) -> Resource | None:
        return self._api.get("DaskCluster", self._name)

    def _is_seen_by_operator(self) -> bool:
        found = self._find()
        return found is None or bool(found.get("status", {}).get("phase"))

    def _pods(self, **labels: str) -> list[Resource]:
        return self._api.list("Pod", resources.cluster_labels(self._settings, **labels))


class _Waiting:
    """Reports what is awaited: when it changes, and every ten seconds."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._last: tuple[str, float] = ("", 0.0)

    def for_(self, what: str, state: str, seconds: float, note: str) -> None:
        text = f"{state}: {note}" if note else state
        last, reported = self._last
        if text != last or seconds - reported >= 10:
            self._last = text, seconds
            self._listener.note(f"waiting    {what} {text} ({seconds:.0f}s)")


def _image_of(cluster: Resource) -> str:
    return str(cluster["spec"]["scheduler"]["spec"]["containers"][0].get("image"))


def _run_of(cluster: Resource) -> str | None:
    """Return the run that has created a cluster; None for one of `etl cluster up`."""
    run: str | None = cluster["metadata"].get("annotations", {}).get(resources.RUN)
    return run
