"""The driver of a submitted recipe, as a Job: start it, stop it, and say how it ended."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from etl.compute.kubernetes import resources
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.dask_cluster import NEEDS as CLUSTER_NEEDS
from etl.compute.kubernetes.pod_problems import read_problems, state_of
from etl.compute.kubernetes.resources import Resource
from etl.compute.kubernetes.waiting import Waiting
from etl.compute.listener import Listener
from etl.errors import ClusterError

_END_SECONDS: Final = 120.0  # its pod has 30
_MAX_MAP_BYTES: Final = 1_000_000  # Kubernetes allows 1 MiB in a ConfigMap, as base64
_QUARANTINED: Final = 3  # the exit code of a run that is complete except for quarantined inputs
_MEANINGS: Final[Mapping[int, str]] = {
    0: "complete",
    2: "wrong arguments",
    _QUARANTINED: "complete except for quarantined inputs: it is not run again",
}


_NEEDS: Final = {
    "jobs": "get create patch delete",
    "configmaps": "create",
    "secrets": "get create",
    "pods": "list",
    "events": "list",
    "daskclusters": "get",
    "localsubjectaccessreviews": "create",
}
"""The permissions that a submission needs, as in k8s/base/roles.yaml. Without one, nothing is created."""


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """The state of a driver: its Job's, and the exit code of its last container."""

    name: str
    is_running: bool
    exit_code: int | None
    state: str


class Driver:
    """The driver of a cluster file, whether one was submitted or not."""

    def __init__(self, api: Api, settings: ClusterFile, listener: Listener) -> None:
        self._api = api
        self._settings = settings
        self._listener = listener
        self._name = resources.driver_name(settings)
        self._where = f"driver {self._name} in namespace {settings.namespace}"

    def start(
        self,
        arguments: Sequence[str],
        contents: Mapping[str, bytes],
        paths: Mapping[str, str],
        *,
        prepare: Callable[[], None],
    ) -> str:
        """Start the Job with the files of a recipe and return its name; a Job that has ended is replaced.

        ``prepare`` creates what the driver needs besides. Raises ClusterError if a driver is running, if
        the files are too large, or if a permission is missing; then nothing is left.
        """
        size = sum(map(len, contents.values())) * 4 // 3
        if size > _MAX_MAP_BYTES:
            raise ClusterError(
                f"the recipe and its files have {size:,} bytes as base64; a ConfigMap has at most "
                f"{_MAX_MAP_BYTES:,}",
                where=self._where,
                hint="put large files into the object store and name them by URL",
            )
        recipe = resources.recipe_map(self._settings, contents, uuid.uuid4().hex)
        job = resources.driver_job(self._settings, arguments, paths, recipe["metadata"]["name"])
        self._api.require(_NEEDS)
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        self._api.require(CLUSTER_NEEDS | {"jobs": "get"}, account=account)
        self._replace()
        # The Job is first, so that it owns the rest: its pod waits for the ConfigMap, and if this process is
        # killed, the Job ends at its deadline. Its name is a lock: of several submissions, one creates it.
        created = self._create(job)
        uid = created["metadata"]["uid"]
        try:
            self._api.create(resources.owned_by(recipe, created))
            prepare()
            self._confirm(uid)
        except BaseException:
            with suppress(ClusterError):  # the first error matters more
                self._api.delete("Job", self._name, uid=uid)
            raise
        return self._name

    def _replace(self) -> None:
        """Delete a Job that has ended, with what belongs to it; raise ClusterError if one is running."""
        found = self.find()
        if found is None:
            return
        if "deletionTimestamp" not in found["metadata"]:
            if _condition(found) is None:
                raise self._running()
            self._listener.note(f"driver     the Job {self._name} has ended and is replaced")
            self._api.delete("Job", self._name, uid=found["metadata"]["uid"])
        self._await_end(found)

    def _create(self, job: Resource) -> Resource:
        created = self._api.create(job)
        if created is None:
            raise self._running()
        return created

    def _confirm(self, uid: str) -> None:
        if self._api.patch("Job", self._name, _confirmation(uid)) is None:
            raise self._running()

    def stop(self) -> None:
        """Delete the Job of a running driver, and wait until its pod has ended.

        Raises ClusterError if no driver was submitted.
        """
        job = self.require()
        if _condition(job) is not None:
            self._listener.note(f"driver     {self._name} has already ended")
            return
        self._api.delete("Job", self._name, uid=job["metadata"]["uid"], dependents_first=True)
        self._listener.note(f"driver     {self._name} is terminated; what it has committed stays")
        self._await_end(job)
        self._listener.note(f"driver     {self._name} has stopped")

    def _await_end(self, job: Resource) -> None:
        """Wait until a deleted Job is gone."""
        waiting = Waiting(self._listener)
        uid = job["metadata"]["uid"]
        while (found := self.find()) is not None and found["metadata"]["uid"] == uid:
            if waiting.seconds > _END_SECONDS:
                raise ClusterError(
                    f"the Job is deleted, but has not ended within {_END_SECONDS:.0f} seconds",
                    where=self._where,
                    hint="see what its pod waits for: kubectl "
                    f"-n {self._settings.namespace} describe pods -l job-name={self._name}",
                )
            waiting.report("the driver to end")
            waiting.pause(1)

    def status(self) -> DriverStatus | None:
        """Return the state of the driver; None if none was submitted."""
        job = self.find()
        if job is None:
            return None
        pods = self.pods(job)
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
            names = re.compile(rf"{self._name}(-.*)?")
            problems = read_problems(self._api, pods, names=names, since=_created(job))
            state += f": {problems[0].what}" if problems else ""
        return DriverStatus(
            name=self._name, is_running=condition is None, exit_code=code, state=state
        )

    def has_ended(self, job: Resource) -> bool:
        """Return whether a Job has ended."""
        return _condition(job) is not None

    def _running(self) -> ClusterError:
        return ClusterError(
            "a driver is running",
            where=self._where,
            hint="wait for its end (`etl logs FILE -f`), or stop it: `etl cluster stop FILE`",
        )

    def find(self) -> Resource | None:
        """Return the Job; None if no driver was submitted."""
        return self._api.get("Job", self._name)

    def require(self) -> Resource:
        """Return the Job; raise ClusterError if no driver was submitted."""
        if (job := self.find()) is None:
            raise ClusterError(
                "no driver was submitted", where=self._where, hint="start one with `etl submit`"
            )
        return job

    def pods(self, job: Resource) -> list[Resource]:
        """Return the pods of a Job, oldest first, without the pods of an earlier one."""
        pods = self._api.list("Pod", {"job-name": self._name})
        uid = job["metadata"]["uid"]
        own = [pod for pod in pods if uid in _owners(pod)]
        return sorted(own, key=_created)


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


def _owners(resource: Resource) -> list[str]:
    return [owner["uid"] for owner in resource["metadata"].get("ownerReferences", [])]


def _confirmation(uid: str) -> Resource:
    """Return the change that removes the deadline of a Job, unless another one has its name."""
    return {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": None}}
