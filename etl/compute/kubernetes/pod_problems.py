"""Say why pods do not start, from their statuses and from the events of the namespace."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from etl.visible_text import one_line

Resource = Mapping[str, Any]
Names = re.Pattern[str]
"""A pattern of the names of objects."""

_HINTS: Final[Mapping[str, str]] = {
    "ImagePullBackOff": "check `image` of the cluster file, and that the nodes can pull it",
    "ErrImageNeverPull": "check `image` of the cluster file, and that the nodes have it",
    "InvalidImageName": "correct `image` of the cluster file",
    "CreateContainerConfigError": "create what is missing: k8s/README.md lists Secrets and ConfigMaps",
    "CreateContainerError": "check the image: it must be built from k8s/Dockerfile",
    "RunContainerError": "check the image: it must be built from k8s/Dockerfile",
    "CrashLoopBackOff": "the last lines of the log say why; the image must have this version of Tokenlake",
    "FailedMount": "create what is missing: kubectl apply -k k8s/base",
    "FailedCreate": "ask for a larger ResourceQuota, or lower workers, cpu and memory of the cluster file",
}
"""Reasons why a pod does not start without a change by a person, and what to change."""

_FROM_EVENTS: Final = ("FailedMount", "FailedCreate")
_NOTED: Final = ("FailedScheduling", "NotTriggerScaleUp")  # may end when a node is added
_ROLE: Final = "dask.org/component"


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Why a pod does not start; a problem that is not fatal may end without a change."""

    name: str  # of the object
    what: str
    hint: str | None
    is_fatal: bool
    role: str  # scheduler, worker or another
    crashed: str | None = None  # the pod whose log says why


def find_problems(
    pods: Sequence[Resource], events: Iterable[Resource], *, names: Names, since: str
) -> list[PodProblem]:
    """Return the problems of pods, with the scheduler's problems first.

    The events of objects whose ``names`` match count; those before ``since``, a time of the API server, are
    of earlier objects with the same names.
    """
    problems = [problem for pod in pods for problem in _of_pod(pod)]
    ready = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
    for event in events:
        name = str(event["involvedObject"].get("name", ""))
        if _time_of(event) >= since[:19] and names.fullmatch(name) and name not in ready:
            problems += _of_event(event, name)
    unique = {problem.what: problem for problem in problems}
    return sorted(unique.values(), key=lambda each: (each.role != "scheduler", not each.is_fatal))


def is_ready(pod: Resource) -> bool:
    """Return whether all containers of a pod are ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_ending(pod: Resource) -> bool:
    """Return whether a pod has ended or is being deleted."""
    phase = pod.get("status", {}).get("phase")
    return "deletionTimestamp" in pod["metadata"] or phase in ("Succeeded", "Failed")


def state_of(pod: Resource) -> str:
    """Return what a pod is doing, in one word.

    >>> state_of({"metadata": {}, "status": {"phase": "Pending"}})
    'pending'
    """
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    for status in pod.get("status", {}).get("containerStatuses", []):
        if reason := status.get("state", {}).get("waiting", {}).get("reason"):
            return "starting" if reason == "ContainerCreating" else str(reason)
    if is_ready(pod):
        return "ready"
    phase = str(pod.get("status", {}).get("phase", "Pending")).lower()
    return "starting" if phase == "running" else phase


def _of_pod(pod: Resource) -> Iterator[PodProblem]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    role = pod["metadata"].get("labels", {}).get(_ROLE, "")
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _HINTS or reason.startswith("Err"):
            image = f" of the image {container.get('image')}" if "mage" in reason else ""
            yield PodProblem(
                name=name,
                what=_text(f"the pod {name} does not start: {reason}{image}", message),
                hint=_HINTS.get(reason),
                is_fatal=reason in _HINTS,
                role=role,
                crashed=name if reason == "CrashLoopBackOff" else None,
            )
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            yield PodProblem(
                name=name,
                what=_text(f"the pod {name} has no node yet", condition.get("message", "")),
                hint="check that nodes of this size and with these labels exist or can be added",
                is_fatal=False,
                role=role,
            )


def _of_event(event: Resource, name: str) -> Iterator[PodProblem]:
    reason, message = event.get("reason", ""), event.get("message", "").partition(" Traceback ")[0]
    message = message.partition("\nTraceback ")[0]
    kind = str(event["involvedObject"].get("kind", "object"))
    if kind.startswith("Dask") and " is forbidden" in message:
        reason = "FailedCreate"  # of the operator, which logs to events
    if reason not in (*_FROM_EVENTS, *_NOTED):
        return
    what = f"the {kind.lower()} {name} has a problem: {reason}"
    if reason == "FailedCreate":
        what = f"no pod of {name} can be created"
    yield PodProblem(
        name=name,
        what=_text(what, message),
        hint=_HINTS.get(reason, "check that nodes of this size and with these labels can be added"),
        is_fatal=reason in _FROM_EVENTS,
        role=_role_of(name),
    )


def _role_of(name: str) -> str:
    """Return the role of an object of the operator or of a controller; that of a cluster is the scheduler's.

    >>> _role_of("tokenlake-scheduler-65d"), _role_of("tokenlake-spot-worker-1-65d"), _role_of("tokenlake")
    ('scheduler', 'worker', 'scheduler')
    """
    is_group = re.search(r"-(default|spot|high-memory)(-worker-|$)", name) is not None
    return "worker" if is_group else "scheduler"


def _time_of(event: Resource) -> str:
    """Return when an event last occurred, to the second."""
    fields = ("lastTimestamp", "eventTime", "firstTimestamp")
    times = [event.get(field) for field in fields] + [event["metadata"].get("creationTimestamp")]
    return next((str(time)[:19] for time in times if time), "")


def _text(what: str, message: str) -> str:
    return one_line(f"{what} ({' '.join(message.split())})" if message else what)
