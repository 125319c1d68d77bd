"""The driver of a submitted recipe, as a Job: start it, say how it ended, and print its log."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_problems import find_problems, state_of
from etl.compute.kubernetes.resources import Resource
from etl.compute.listener import Listener
from etl.errors import ClusterError

_POLL_SECONDS: Final = 1.0
_END_SECONDS: Final = 60.0
_MAX_MAP_BYTES: Final = 1_000_000  # Kubernetes allows 1 MiB in a ConfigMap, as base64
_QUARANTINED: Final = 3  # the exit code of a run that is complete except for quarantined inputs
_MEANINGS: Final[Mapping[int, str]] = {
    0: "complete",
    2: "wrong arguments",
    _QUARANTINED: "complete except for quarantined inputs: it is not run again",
}


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """The state of a driver: its Job's, and the exit code of its last container."""

    name: str
    is_running: bool
    exit_code: int | None
    state: str


class Driver:
    """The driver of a cluster file, whether one was submitted or not."""

    def __init__(self, api: Api, settings: ClusterFile) -> None:
        self._api = api
        self._settings = settings
        self._name = resources.driver_name(settings)
        self._where = f"driver {self._name} in namespace {settings.namespace}"

    def start(
        self,
        arguments: Sequence[str],
        contents: Mapping[str, bytes],
        paths: Mapping[str, str],
        listener: Listener,
    ) -> str:
        """Start the Job with the files of a recipe and return its name; a Job that has ended is replaced.

        Raises ClusterError if a driver is running, or if the files are too large.
        """
        size = sum(map(len, contents.values())) * 4 // 3
        if size > _MAX_MAP_BYTES:
            raise ClusterError(
                f"the recipe and its files have {size:,} bytes as base64; a ConfigMap has at most "
                f"{_MAX_MAP_BYTES:,}",
                where=self._where,
                hint="put large files into the object store and name them by URL",
            )
        found = self._find()
        if found is not None:
            if _condition(found) is None:
                raise self._running()
            self._delete(listener)
        recipe = resources.recipe_map(self._settings, contents)
        self._api.delete("ConfigMap", recipe["metadata"]["name"])
        self._api.create(recipe)
        if self._api.create(resources.driver_job(self._settings, arguments, paths)) is None:
            raise self._running()
        return self._name

    def status(self) -> DriverStatus | None:
        """Return the state of the driver; None if none was submitted."""
        job = self._find()
        if job is None:
            return None
        pods = self._pods()
        code = _exit_code(pods[-1]) if pods else None
        condition = _condition(job)
        attempts = int(job.get("status", {}).get("failed", 0)) + 1
        if condition is not None:
            kind, reason = condition
            meaning = _MEANINGS.get(code) if code is not None else None
            state = "complete" if kind == "Complete" else meaning or "failed"
            if code is not None:
                state += f" (exit code {code})"
            if reason:
                state += f"; condition {kind}: {reason}"
        else:
            state = state_of(pods[-1]) if pods else "no pod yet"
            state = "running" if state == "ready" else state
            if attempts > 1:
                state += f", attempt {attempts}"
            names, events = re.compile(rf"{self._name}(-.*)?"), self._api.list("Event")
            problems = find_problems(pods, events, names=names, since=_created(job))
            state += f": {problems[0].what}" if problems else ""
        return DriverStatus(
            name=self._name, is_running=condition is None, exit_code=code, state=state
        )

    def log(self, *, follow: bool) -> Iterator[str]:
        """Yield the lines of the newest pod's log; ``follow`` continues, also with the next pods.

        Raises ClusterError if no driver was submitted.
        """
        seen: set[str] = set()
        while True:
            job = self._find()
            if job is None:
                raise ClusterError(
                    "no driver was submitted", where=self._where, hint="start one with `etl submit`"
                )
            pods = [pod for pod in self._pods() if pod["metadata"]["name"] not in seen]
            pod = pods[-1] if pods else None
            if pod is not None and _has_started(pod):
                name = pod["metadata"]["name"]
                seen.add(name)
                yield from (
                    self._api.follow_log(name) if follow else self._api.log(name).splitlines()
                )
            if not follow:
                return
            if _condition(job) is not None and (pod is None or not _has_started(pod)):
                return
            time.sleep(_POLL_SECONDS)

    def _delete(self, listener: Listener) -> None:
        """Delete a Job that has ended, and wait until it is gone."""
        listener.note(f"driver     the Job {self._name} has ended and is replaced")
        self._api.delete("Job", self._name)
        end = time.monotonic() + _END_SECONDS
        while self._find() is not None and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def _running(self) -> ClusterError:
        return ClusterError(
            "a driver is running",
            where=self._where,
            hint="wait for its end (`etl logs FILE -f`), or stop it: "
            f"kubectl -n {self._settings.namespace} delete job {self._name}",
        )

    def _find(self) -> Resource | None:
        return self._api.get("Job", self._name)

    def _pods(self) -> list[Resource]:
        """Return the pods of the Job, oldest first."""
        pods = self._api.list("Pod", {"job-name": self._name})
        return sorted(pods, key=_created)


def _condition(job: Resource) -> tuple[str, str] | None:
    """Return the condition with which a Job has ended, and its reason."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], condition.get("reason", "")
    return None


def _created(resource: Resource) -> str:
    return str(resource["metadata"]["creationTimestamp"])


def _exit_code(pod: Resource) -> int | None:
    """Return the exit code of a pod's container; None if it runs."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        ended: dict[str, Any] = status.get("state", {}).get("terminated") or {}
        if "exitCode" in ended:
            return int(ended["exitCode"])
    return None


def _has_started(pod: Resource) -> bool:
    """Return whether a container of a pod runs or has ended, so that it has a log."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any({"running", "terminated"} & status.get("state", {}).keys() for status in statuses)
