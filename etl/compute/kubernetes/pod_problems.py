"""Say why pods do not start, from their statuses and from the events of the namespace.

A cause that many pods share is one problem, with their number and one of them as an example.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from etl.compute.kubernetes.api import Api
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
_NOTED: Final = "NotTriggerScaleUp"  # may end when a node is added
_EVENTS: Final = ("type!=Normal,reason!=FailedScheduling", f"reason={_NOTED}")
"""Selectors of the events that are read: a pod's own status says that it has no node."""
_COMBINED: Final = "(combined from similar events): "
_ROLE: Final = "dask.org/component"
_NUMBER: Final = re.compile(r"(?<![\w-])\d[\w.]*")  # with its unit; not of a name, as in tls-2
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Why a pod or several do not start; a problem that is not fatal may end without a change."""

    names: tuple[str, ...]  # of the objects
    what: str
    hint: str | None
    is_fatal: bool
    role: str  # scheduler, worker or another
    crashed: str | None = None  # a pod whose log says why


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """A problem of one object; ``one`` and ``several`` are sentences, in which {} is its name or a number."""

    name: str
    one: str
    several: str
    message: str
    reason: str
    role: str
    hint: str | None
    is_fatal: bool

    @property
    def cause(self) -> tuple[str, ...]:
        """What findings with the same cause share: without names of their objects, identifiers and numbers.

        A quota reports how much is used, which changes with each pod.
        """
        text = _UID.sub("", re.sub(rf"{re.escape(self.name)}[-\w.]*", "", self.message))
        return self.several, self.role, _NUMBER.sub("0", text)


def read_problems(
    api: Api, pods: Sequence[Resource], *, names: Names, since: str
) -> list[PodProblem]:
    """Return the problems of pods as ``find_problems`` does, with the events of the namespace."""
    events = [event for fields in _EVENTS for event in api.list("Event", fields=fields)]
    return find_problems(pods, events, names=names, since=since)


def find_problems(
    pods: Sequence[Resource], events: Iterable[Resource], *, names: Names, since: str
) -> list[PodProblem]:
    """Return the problems of pods, one for each cause, with the scheduler's problems first.

    The events of objects whose ``names`` match count; those before ``since``, a time of the API server, are
    of earlier objects with the same names. What has been created since an event had no lasting problem.
    """
    findings = [finding for pod in pods for finding in _of_pod(pod)]
    created = {pod["metadata"]["name"].rpartition("-")[0] for pod in pods}
    created |= {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
    for event in events:
        name = str(event["involvedObject"].get("name", ""))
        if _time_of(event) >= since[:19] and names.fullmatch(name) and name not in created:
            findings += _of_event(event, name)
    by_cause: dict[tuple[str, ...], dict[str, _Finding]] = defaultdict(dict)
    for finding in findings:
        by_cause[finding.cause][finding.name] = finding
    problems = [_problem(list(each.values())) for each in by_cause.values()]
    return sorted(
        problems, key=lambda each: (each.role != "scheduler", not each.is_fatal, -len(each.names))
    )


def _problem(findings: Sequence[_Finding]) -> PodProblem:
    """Return the problem of findings with the same cause."""
    example = findings[0]
    message = " ".join(example.message.split())
    what = example.one.replace("{}", example.name, 1)
    if len(findings) > 1:
        several = example.several.replace("{}", f"{len(findings):,}", 1)
        what = f"{several}, for example {example.name}"
    return PodProblem(
        names=tuple(finding.name for finding in findings),
        what=one_line(f"{what} ({message})" if message else what),
        hint=example.hint,
        is_fatal=example.is_fatal,
        role=example.role,
        crashed=example.name if example.reason == "CrashLoopBackOff" else None,
    )


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


def _of_pod(pod: Resource) -> Iterator[_Finding]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    role = pod["metadata"].get("labels", {}).get(_ROLE, "")
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in _HINTS or reason.startswith("Err"):
            image = f" of the image {container.get('image')}" if "mage" in reason else ""
            yield _Finding(
                name=name,
                one=f"the pod {{}} does not start: {reason}{image}",
                several=f"{{}} pods do not start: {reason}{image}",
                message=waiting.get("message", ""),
                reason=reason,
                role=role,
                hint=_HINTS.get(reason),
                is_fatal=reason in _HINTS,
            )
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            yield _Finding(
                name=name,
                one="the pod {} has no node yet",
                several="{} pods have no node yet",
                message=condition.get("message", ""),
                reason="Unschedulable",
                role=role,
                hint="check that nodes of this size and with these labels exist or can be added",
                is_fatal=False,
            )


def _of_event(event: Resource, name: str) -> Iterator[_Finding]:
    reason, message = event.get("reason", ""), event.get("message", "").removeprefix(_COMBINED)
    message = re.split(r"\sTraceback ", message, maxsplit=1)[0]
    kind = str(event["involvedObject"].get("kind", "object"))
    if kind.startswith("Dask") and " is forbidden" in message:
        reason = "FailedCreate"  # of the operator, which logs to events
    if reason not in (*_FROM_EVENTS, _NOTED):
        return
    one = f"the {kind.lower()} {{}} has a problem: {reason}"
    several = f"{{}} {kind.lower()}s have a problem: {reason}"
    if reason == "FailedCreate":
        one, several = "no pod of {} can be created", "{} pods cannot be created"
    yield _Finding(
        name=name,
        one=one,
        several=several,
        message=message,
        reason=reason,
        role=_role_of(name),
        hint=_HINTS.get(reason, "check that nodes of this size and with these labels can be added"),
        is_fatal=reason in _FROM_EVENTS,
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
