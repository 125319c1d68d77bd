"""`PodLogs`: the lines that the driver, the scheduler or the workers of a cluster print."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.driver_job import Driver
from etl.compute.kubernetes.resources import Resource, cluster_labels
from etl.compute.listener import Listener
from etl.errors import ClusterError
from etl.plural import many

_AT_ONCE: Final = 16
_MAX_FOLLOWED: Final = 50  # each is a connection to the API server
_OF_DRIVER: Final = "driver"
_ROLES: Final = ("scheduler", "worker")
_RANDOM: Final = "bcdfghjklmnpqrstvwxz2456789"  # the characters that Kubernetes adds to names
_OF_DEPLOYMENT: Final = re.compile(rf"-[{_RANDOM}]{{5,10}}-[{_RANDOM}]{{5}}$")


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """Which lines to print.

    ``of`` is driver, scheduler, worker, or the name of a pod or worker. Lines without the text ``grep`` are
    left out. ``follow`` continues with new lines and pods, and ``previous`` reads the containers that ended
    before.
    """

    of: str = _OF_DRIVER
    grep: str = ""
    follow: bool = False
    previous: bool = False


class PodLogs:
    """The logs of the pods that a query selects."""

    def __init__(self, api: Api, settings: ClusterFile, query: LogQuery) -> None:
        self._api = api
        self._settings = settings
        self._query = query
        self._driver = Driver(api, settings, Listener())
        self._where = f"cluster {settings.name} in namespace {settings.namespace}"
        self._followed: set[tuple[str, int]] = set()  # pods and how often their containers started

    def lines(self) -> Iterator[str]:
        """Yield the lines; lines of several pods start with the pod's short name.

        Raises ClusterError if there is no such pod, or if it has no such log.
        """
        self._api.require({"pods/log": "get"})  # at once, not for each pod
        if self._query.of == _OF_DRIVER:
            self._driver.require()
        pods = self._pods(self._driver.find())
        if not pods and self._query.of != _OF_DRIVER:
            raise ClusterError(
                f"no pod is called {self._query.of}"
                if self._query.of not in _ROLES
                else f"the cluster has no {self._query.of}",
                where=self._where,
                hint="`etl cluster status FILE` shows what is running",
            )
        is_one = self._query.of == _OF_DRIVER or (self._query.of != "worker" and len(pods) == 1)
        for name, line in self._follow(pods) if self._query.follow else self._read(pods):
            if self._query.grep in line:
                yield line if is_one else f"{_short(name, self._settings)}  {line}"

    def _pods(self, job: Resource | None) -> list[Resource]:
        """Return the pods that the query selects, the driver's from old to new."""
        of = self._query.of
        if of in _ROLES:
            return self._api.list("Pod", cluster_labels(self._settings, component=of))
        pods = [] if job is None else self._driver.pods(job)
        if of == _OF_DRIVER:
            return pods
        pods += self._api.list("Pod", cluster_labels(self._settings))
        return [pod for pod in pods if of in _names(pod, self._settings)]

    def _read(self, pods: Sequence[Resource]) -> Iterator[tuple[str, str]]:
        """Yield the lines that were printed until now, a few pods at a time."""
        previous = self._query.previous
        if self._query.of == _OF_DRIVER:  # whose Job starts another pod, not another container
            pods, previous = pods[-2:-1] if previous else pods[-1:], False
        else:
            pods = [pod for pod in pods if not previous or _restarts(pod)]
        if not pods and self._query.previous:
            raise ClusterError(f"no container of {self._query.of} has ended", where=self._where)
        started = [pod for pod in pods if _has_started(pod) or previous]

        def read(pod: Resource) -> str:
            name = pod["metadata"]["name"]
            return self._api.log(name, container=_container(pod), previous=previous)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for first in range(0, len(started), _AT_ONCE):
                some = started[first : first + _AT_ONCE]
                for pod, text in zip(some, threads.map(read, some), strict=True):
                    for line in text.splitlines():
                        yield pod["metadata"]["name"], line

    def _follow(self, pods: Sequence[Resource]) -> Iterator[tuple[str, str]]:
        """Yield lines as they are printed, also by pods that start later, until all have ended."""
        if self._query.of == _OF_DRIVER:
            self._mark(pods[:-1])
        return self._api.follow_logs(self._find_started)

    def _find_started(self) -> Mapping[str, str | None] | None:
        """Return the containers that have started since the last call; None if all have ended."""
        job = self._driver.find()  # first: a Job that has ended starts no further pod
        pods = self._pods(job)
        started = self._mark([pod for pod in pods if _has_started(pod)])
        if len(self._followed) > _MAX_FOLLOWED:
            raise ClusterError(
                f"{many(len(self._followed), 'log')} cannot be followed at once, at most "
                f"{_MAX_FOLLOWED} can",
                where=self._where,
                hint="name a pod with --of, or print what there is without --follow",
            )
        if self._query.of == _OF_DRIVER:
            is_over = job is None or self._driver.has_ended(job)
        else:
            is_over = all(_has_ended(pod) for pod in pods)
        return None if is_over and not started else started

    def _mark(self, pods: Sequence[Resource]) -> Mapping[str, str | None]:
        """Return the containers that were not marked before, by pod."""
        new = [
            pod for pod in pods if (pod["metadata"]["name"], _restarts(pod)) not in self._followed
        ]
        self._followed |= {(pod["metadata"]["name"], _restarts(pod)) for pod in new}
        return {pod["metadata"]["name"]: _container(pod) for pod in new}


def _names(pod: Resource, settings: ClusterFile) -> tuple[str, str, str]:
    """Return the names of a pod: in Kubernetes, in Dask, and without the cluster."""
    short = _short(pod["metadata"]["name"], settings)
    return pod["metadata"]["name"], f"{settings.name}-{short}", short


def _short(name: str, settings: ClusterFile) -> str:
    """Return the name of a pod without the cluster, and as Dask calls a worker.

    >>> _short("mine-default-worker-0c3f2a1b9d-6c5d7f8b9-x2x9k", ClusterFile(image="i", name="mine"))
    'default-worker-0c3f2a1b9d'
    """
    return _OF_DEPLOYMENT.sub("", name).removeprefix(f"{settings.name}-")


def _container(pod: Resource) -> str | None:
    """Return the container to read if a pod has several, such as one of a service mesh."""
    containers = pod.get("spec", {}).get("containers", [])
    return str(containers[0]["name"]) if len(containers) > 1 else None


def _statuses(pod: Resource) -> list[Resource]:
    statuses: list[Resource] = pod.get("status", {}).get("containerStatuses", [])
    return statuses


def _restarts(pod: Resource) -> int:
    return sum(status.get("restartCount", 0) for status in _statuses(pod))


def _has_started(pod: Resource) -> bool:
    """Return whether a container of a pod runs or has ended, so that it has a log."""
    return any(
        {"running", "terminated"} & status.get("state", {}).keys() or status.get("restartCount")
        for status in _statuses(pod)
    )


def _has_ended(pod: Resource) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
