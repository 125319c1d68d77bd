"""Who uses a cluster: recorded on its DaskCluster, so that only the last user deletes it.

A use is an annotation of the DaskCluster with the run, its user and when it was last renewed. Joining is one
patch, and a deletion names the version of the DaskCluster in which no other run uses it: the API server
refuses it if a run has joined since. A use that is not renewed for ten minutes is over, and so is one whose
process has ended on this machine. Times are by the clock of the API server.
"""

import getpass
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from etl.compute.kubernetes.api import Api, annotations_of, is_deleted
from etl.compute.kubernetes.resources import RUN, Resource, owned_by
from etl.errors import ClusterError

_PREFIX: Final = "use.tokenlake/"
_RENEW_SECONDS: Final = 30.0
_LIFETIME: Final = timedelta(minutes=10)
"""Twice as long as a run waits for the API server, without which it cannot renew its use."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """The use of a cluster by a run, which a process of a machine renews."""

    run: str
    user: str  # user@host
    machine: str | None  # a namespace of processes; None: unknown
    process: int
    since: str
    renewed: str

    @classmethod
    def of_this_process(cls, run: str, *, since: datetime, now: datetime) -> Self:
        """Return a use that this process renews."""
        return cls(
            run=run,
            user=f"{_user_name()}@{socket.gethostname()}",
            machine=_machine(),
            process=os.getpid(),
            since=f"{since:%Y-%m-%dT%H:%M:%SZ}",
            renewed=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        )

    def is_over(self, now: datetime) -> bool:
        """Return whether the run has ended without saying so."""
        if self.machine is not None and self.machine == _machine() and not _exists(self.process):
            return True
        return now - datetime.fromisoformat(self.renewed) > _LIFETIME

    def annotation(self) -> dict[str, str]:
        """Return the annotation that records the use."""
        return {f"{_PREFIX}{self.run}": json.dumps(asdict(self))}

    def __str__(self) -> str:
        return f"{self.user} since {self.since} (run {self.run})"


def uses_of(cluster: Resource) -> list[Use]:
    """Return the uses of a DaskCluster, also those that are over."""
    uses = []
    for name, value in annotations_of(cluster).items():
        if name.startswith(_PREFIX):
            with suppress(TypeError, ValueError):  # not written by this version
                uses.append(Use(**json.loads(value)))
    return uses


def living_uses(cluster: Resource, now: datetime) -> list[Use]:
    """Return the uses of a DaskCluster that are not over."""
    return [use for use in uses_of(cluster) if not use.is_over(now)]


def creator_of(cluster: Resource) -> str | None:
    """Return the run that has created a cluster; None for one of `etl cluster up`."""
    return annotations_of(cluster).get(RUN)


def is_abandoned(cluster: Resource, now: datetime) -> bool:
    """Return whether the runs of a cluster have all died; a Job deletes its own clusters."""
    has_owner = bool(cluster["metadata"].get("ownerReferences"))
    is_of_run = creator_of(cluster) is not None and not has_owner
    return is_of_run and not is_deleted(cluster) and not living_uses(cluster, now)


def describe_abandoned(cluster: Resource) -> str:
    """Return who has abandoned a cluster."""
    last = max(uses_of(cluster), key=lambda use: use.renewed, default=None)
    by = f"run {creator_of(cluster)}" if last is None else f"{last}, last seen {last.renewed}"
    return f"{cluster['metadata']['name']} was abandoned by {by}"


def names_of(uses: Sequence[Use]) -> str:
    """Return who uses a cluster."""
    return ", ".join(map(str, uses)) or "no run"


class ClusterUse:
    """The use of the cluster of a name by one run."""

    def __init__(self, api: Api, name: str, run: str, *, owner: Resource | None = None) -> None:
        """Describe the use of a run; ``owner`` is its Job, with which a cluster that it creates ends."""
        self.run = run
        self._owner = owner
        self._api = api
        self._name = name
        self._since: datetime | None = None

    def mark(self, cluster: Resource) -> Resource:
        """Return a DaskCluster as created by this run, and owned by its Job."""
        annotations = dict(annotations_of(cluster)) | {RUN: self.run} | self._annotation()
        marked = cluster | {"metadata": cluster["metadata"] | {"annotations": annotations}}
        return marked if self._owner is None else owned_by(marked, self._owner)

    def join(self, cluster: Resource) -> Resource | None:
        """Record the use of a cluster that exists, and return it; None if it does not exist any more.

        It then does not end with the Job that owns it.
        """
        ended = [use for use in uses_of(cluster) if use.is_over(self._api.now())]
        metadata: dict[str, Any] = {
            "annotations": {key: None for use in ended for key in use.annotation()}
            | self._annotation()
        }
        if creator_of(cluster) != self.run:
            metadata["ownerReferences"] = None
        return self._patch(metadata)

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the use in a thread."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(_RENEW_SECONDS):
                with suppress(ClusterError):  # the next renewal is soon enough
                    self._patch({"annotations": self._annotation()}, once=True)

        thread = threading.Thread(target=renew, name="cluster-use", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def leave(self) -> tuple[str | None, list[Use]]:
        """Record that the run has ended, and return the other uses of the cluster.

        If a run has created the cluster and there are none, return the version of the cluster that may be
        deleted; the use then stays.
        """
        while True:
            cluster = self._api.get("DaskCluster", self._name)
            if cluster is None or is_deleted(cluster):
                return None, []
            others = [use for use in living_uses(cluster, self._api.now()) if use.run != self.run]
            version = str(cluster["metadata"]["resourceVersion"])
            if creator_of(cluster) is not None and not others:
                return version, []
            own: Mapping[str, None] = dict.fromkeys(self._annotation())
            if self._patch({"resourceVersion": version, "annotations": own}) is not None:
                return None, others

    def _annotation(self) -> dict[str, str]:
        now = self._api.now()
        self._since = self._since or now
        return Use.of_this_process(self.run, since=self._since, now=now).annotation()

    def _patch(self, metadata: Mapping[str, Any], *, once: bool = False) -> Resource | None:
        changes = {"metadata": dict(metadata)}
        return self._api.patch("DaskCluster", self._name, changes, once=once)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _machine() -> str | None:
    """Return the boot of the machine and the namespace of processes; None where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _exists(process: int) -> bool:
    """Return whether a process of this machine runs: one with an unread exit code does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] not in ("Z", "X")
