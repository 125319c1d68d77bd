"""`DaskCluster`: create the cluster of a file, wait until it works or say why it does not, and delete it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from distributed.security import Security

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.api import Api, is_deleted
from etl.compute.kubernetes.api_failure import OPERATOR_HINT
from etl.compute.kubernetes.cluster_end import await_end, delete_cluster
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.cluster_status import image_of, names_of
from etl.compute.kubernetes.cluster_use import ClusterUse
from etl.compute.kubernetes.pod_problems import PodProblem, is_ready, read_problems, state_of
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.shared_cluster import (
    delete_unused,
    join_cluster,
    list_abandoned,
    release_cluster,
)
from etl.compute.kubernetes.tls_secret import TlsSecret
from etl.compute.kubernetes.waiting import Waiting
from etl.compute.listener import Listener
from etl.errors import ClusterError

SCHEDULER_PORT: Final = 8786
DASHBOARD_PORT: Final = 8787

_OPERATOR_SECONDS: Final = 20.0  # the operator reacts in two; then it does not run
_FATAL_SECONDS: Final = 5.0  # a Secret may be created right after the pods that mount it
_START_SECONDS: Final = 900.0  # a cluster autoscaler adds nodes in minutes, unless there are none
_LOG_LINES: Final = 5
_ATTEMPTS: Final = 3  # to create or join a cluster that others create and delete

NEEDS: Final = {
    "daskclusters": "get list create patch delete",
    "daskworkergroups": "get list create patch delete",
    "deployments": "list",
    "replicasets": "list",
    "services": "list",
    "pods": "list",
    "events": "list",
    "pods/log": "get",
}
"""The permissions that a cluster needs, as in k8s/base/roles.yaml. Without one, nothing is created."""
_NEEDS_OUTSIDE: Final = {"secrets": "get create", "pods/portforward": "get"}


class DaskCluster:
    """The cluster of a cluster file, whether it exists or not."""

    def __init__(self, api: Api, settings: ClusterFile, listener: Listener) -> None:
        self._api = api
        self._settings = settings
        self._tls = TlsSecret(api, settings)
        self.listener = listener
        self.name = settings.name
        self.where = f"cluster {settings.name} in namespace {settings.namespace}"
        self._created = ""  # when, by the clock of the API server

    def exists(self) -> bool:
        """Return whether the cluster exists; raises ClusterError if Dask's operator is not installed."""
        return self._find() is not None

    def require_permissions(self) -> None:
        """Raise ClusterError if this account lacks a permission that a run needs."""
        self._api.require(NEEDS | ({} if self._tls.is_mounted() else _NEEDS_OUTSIDE))

    def create(self, sizes: Mapping[str, int], *, use: ClusterUse | None = None) -> None:
        """Create the cluster, or add workers to an existing cluster.

        ``use`` is of the run for which it is created; without a run, it stays until it is deleted. Workers
        are never removed: Dask's operator would choose workers of any group.
        """
        self.require_permissions()
        for line in list_abandoned(self._api, self._settings):
            self.listener.warning(line)
        found = self._create_or_join(sizes["default"], use)
        self._created = found["metadata"]["creationTimestamp"]
        if (image := image_of(found)) != self._settings.image:
            self.listener.warning(f"the cluster runs {image}, not {self._settings.image}")
        self._add_workers("default", sizes["default"])
        for group in sizes:
            if group != "default":
                self.add_group(group, sizes[group])

    def _create_or_join(self, workers: int, use: ClusterUse | None) -> Resource:
        """Create the cluster, or use the existing one; another program may do the same, or delete it."""
        for _ in range(_ATTEMPTS):
            # Of an earlier cluster, the operator would count what is being deleted.
            self.wait_if_ending()
            found = self._find()
            if found is None:
                found = self._create(workers, use)
            elif not is_deleted(found):
                found = join_cluster(self._api, self._settings, self.listener, found, use)
            if found is not None and not is_deleted(found):
                return found
        raise ClusterError("the cluster is being deleted", where=self.where, hint="run again")

    def _create(self, workers: int, use: ClusterUse | None) -> Resource | None:
        """Create the cluster with its certificates; None if another program just did."""
        self.ensure_certificates()
        resource = resources.dask_cluster(self._settings, workers)
        if use is not None:
            resource = use.mark(resource)
        created = self._api.create(resource)
        if created is not None:
            self.listener.note(
                f"cluster    {self.name} created in namespace {self._settings.namespace}"
            )
        return created

    def add_group(self, group: str, workers: int) -> None:
        """Create a group of workers, or add workers to an existing group."""
        resource = resources.worker_group(self._settings, group, workers)
        if self._api.create(resource) is None:
            self._add_workers(group, workers)

    def is_of_spot(self, worker: str) -> bool:
        """Return whether a worker is of the spot group, by its name."""
        return worker.startswith(f"{self.name}-spot-worker-")

    def remove_group(self, group: str) -> None:
        """Delete a group with all its workers."""
        self._api.delete("DaskWorkerGroup", f"{self.name}-{group}")

    def _add_workers(self, group: str, workers: int) -> None:
        name = f"{self.name}-{group}"
        found = self._api.get("DaskWorkerGroup", name)
        if found is not None and found["spec"]["worker"]["replicas"] < workers:
            self.listener.note(f"workers    {name}: {workers}")
            self._api.patch("DaskWorkerGroup", name, {"spec": {"worker": {"replicas": workers}}})

    def wait_for_scheduler(self) -> str:
        """Wait until the scheduler is ready and return its pod.

        Raises ClusterError with the reason if it cannot start.
        """
        waiting = Waiting(self.listener)
        while True:
            pods = self._pods(component="scheduler")
            for pod in pods:
                if is_ready(pod):
                    return str(pod["metadata"]["name"])
            note = self._check("scheduler", pods, waiting.seconds)
            if not pods and waiting.seconds > _OPERATOR_SECONDS and not self._is_seen_by_operator():
                raise ClusterError(
                    "Dask's operator does not react to the new cluster",
                    where=self.where,
                    hint="check its pod: kubectl get pods --all-namespaces | grep dask-operator; "
                    + OPERATOR_HINT,
                )
            state = state_of(pods[0]) if pods else "no pod yet"
            waiting.report(f"scheduler {state}", note)
            waiting.pause(len(pods))

    def wait_for_workers(self, has_worker: Callable[[list[Resource]], bool]) -> None:
        """Wait until a function of the worker pods returns true.

        Raises ClusterError with the reason if no worker can start.
        """
        waiting = Waiting(self.listener)
        while not has_worker(pods := self._pods(component="worker")):
            note = self._check("worker", pods, waiting.seconds)
            waiting.report(f"workers {_states(pods)}", note)
            waiting.pause(len(pods))

    def follow_workers(self, wanted: int) -> None:
        """Report the start of workers until all are ready, or until the others cannot start."""
        waiting = Waiting(self.listener)
        most, changed = 0, 0.0
        while True:
            pods = self._pods(component="worker")
            ready = sum(map(is_ready, pods))
            if ready > most:
                most, changed = ready, waiting.seconds
            problems = [] if ready >= wanted else self._problems(pods, "worker")
            idle = waiting.seconds - changed
            is_over = idle > _START_SECONDS or (idle > _FATAL_SECONDS and _is_over(pods, problems))
            if ready >= wanted or is_over:
                self.listener.note(f"workers    {ready:,} of {wanted:,} ready")
                for problem in problems:
                    self.listener.warning(f"{problem.what}; {problem.hint}")
                return
            waiting.report(
                f"workers {ready:,} of {wanted:,} ready ({_states(pods)})", _first(problems)
            )
            waiting.pause(len(pods))

    def _check(self, role: str, pods: list[Resource], seconds: float) -> str:
        """Return the first problem of the pods of a role.

        Raises ClusterError with the reason if none can start, after some seconds.
        """
        problems = self._problems(pods, role)
        if seconds > _FATAL_SECONDS and _is_over(pods, problems) and not any(map(is_ready, pods)):
            raise self._error(problems[0])
        if seconds > _START_SECONDS:
            note = _first(problems)
            raise ClusterError(
                f"the cluster did not start within {_START_SECONDS / 60:.0f} minutes"
                + (f": {note}" if note else ""),
                where=self.where,
                hint=problems[0].hint if problems else "see `kubectl describe pods`",
            )
        return _first(problems)

    def _problems(self, pods: list[Resource], role: str) -> list[PodProblem]:
        """Return the problems of the pods of a role, fatal ones first."""
        problems = read_problems(
            self._api, pods, names=names_of(self._settings), since=self._created
        )
        return [problem for problem in problems if problem.role == role]

    def _error(self, problem: PodProblem) -> ClusterError:
        what = problem.what
        if problem.crashed is not None:
            log = self._api.log(problem.crashed, lines=_LOG_LINES, previous=True)
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            what += f"; its last lines: {' | '.join(lines)}"
        return ClusterError(what, where=self.where, hint=problem.hint)

    def release(self, use: ClusterUse) -> None:
        """End the use of a run; delete the cluster if a run has created it and no other run uses it."""
        release_cluster(self._api, self._settings, self.listener, use)

    def wait_if_ending(self) -> None:
        """Wait until everything of a cluster that is being deleted is gone."""
        await_end(self._api, self._settings, self.listener)

    def delete(self, *, force: bool = False) -> None:
        """Delete the cluster with all its workers, and wait until everything is gone.

        Raises ClusterError that names what is left if nothing ends any more, or who uses the cluster, unless
        ``force``.
        """
        if force:
            delete_cluster(self._api, self._settings, self.listener)
        else:
            delete_unused(self._api, self._settings, self.listener)

    def security(self) -> Security:
        """Return the TLS settings of a client; raise ClusterError if there are none, or expired ones."""
        return self._tls.security()

    def ensure_certificates(self) -> None:
        """Create the certificates, unless they exist; raise ClusterError if these have expired."""
        self._tls.ensure(self.listener)

    def _find(self) -> Resource | None:
        return self._api.get("DaskCluster", self.name)

    def _is_seen_by_operator(self) -> bool:
        found = self._find()
        return found is None or bool(found.get("status", {}).get("phase"))

    def _pods(self, **labels: str) -> list[Resource]:
        return self._api.list("Pod", resources.cluster_labels(self._settings, **labels))


def _states(pods: list[Resource]) -> str:
    """Return how many pods are in each state."""
    counts = Counter(map(state_of, pods))
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "no pod yet"


def _first(problems: list[PodProblem]) -> str:
    return problems[0].what if problems else ""


def _is_over(pods: list[Resource], problems: list[PodProblem]) -> bool:
    """Return whether no further pod can start: each is ready or has a fatal problem."""
    fatal = {name for problem in problems if problem.is_fatal for name in problem.names}
    waiting = {pod["metadata"]["name"] for pod in pods if not is_ready(pod)}
    return bool(fatal) and waiting <= fatal
