"""Leases: which jobs are running on a lake, so that a vacuum keeps the files they may need.

A lease is one small file, ``LAKE/leases/KIND-ID.json``, which a job writes when it starts, renews while it
runs, and removes when it ends. Start and renewal are the file's own times of modification, so that the clocks
of the jobs do not matter, only that of the store. A lease that was not renewed for 15 minutes belongs to a
dead job. A job that could not renew its lease in time, for example because its machine slept, stops before it
commits. Leases do not order commits, which the Delta log does: they only hold back deletions.
"""

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from etl import storage
from etl.errors import StorageError, TableError
from etl.storage import checked_json

_FOLDER = "leases"
_RENEW_SECONDS = 60.0
LIFETIME: Final = timedelta(minutes=15)
"""How long a lease is valid after it was written: chosen here."""

# A job stops this long before its lease expires, so that a commit that it has begun can end.
_COMMIT_TIME = timedelta(minutes=5)
# A store's times may have a resolution of seconds, and its machines slightly different clocks.
_STORE_SKEW = timedelta(minutes=1)
# Counts while the machine sleeps, unlike the monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A running job: its kind, its start, and when it last renewed the lease, by the store's clock."""

    kind: str  # run, optimize, vacuum ...
    key: str
    process: int
    started: datetime  # UTC
    renewed: datetime  # UTC

    @property
    def since(self) -> datetime:
        """A time before the job started, by the store's clock."""
        return self.started - _STORE_SKEW

    def is_alive(self, now: datetime) -> bool:
        """Return whether the lease has not expired."""
        return now - self.renewed < LIFETIME


class HeldLease:
    """The lease of a job in this process."""

    def __init__(self, lake: str, kind: str) -> None:
        """Write the lease; raises WriteError if the lake is not writable."""
        self.kind = kind
        self.key = uuid.uuid4().hex[:12]
        self._lake = lake
        self._uri = storage.join(lake, _FOLDER, f"{kind}-{self.key}.json")
        self._is_expired = False
        self._write(None)
        # The first write has the start of the job; all later ones repeat it.
        self.started = store_time(self._uri)
        self._write(self.started)

    def check(self) -> None:
        """Raise TableError if the lease was not renewed in time: a vacuum may have deleted files."""
        age = time.clock_gettime(_CLOCK) - self._renewed
        if self._is_expired or age >= (LIFETIME - _COMMIT_TIME).total_seconds():
            self._is_expired = True  # for good: a renewal would not bring deleted files back
            raise TableError(
                f"the lease of this {self.kind} was not renewed for {age:.0f} seconds, so that a vacuum "
                "may delete its files",
                where=self._uri,
                hint="run again: it continues after the last commit",
            )

    def renew(self) -> None:
        """Renew the lease unless it has expired."""
        self.check()
        self._write(self.started)

    def now(self) -> datetime:
        """Return the present time by the store's clock."""
        self.renew()
        return store_time(self._uri)

    def release(self) -> None:
        """Remove the lease."""
        storage.remove(self._uri)

    def _write(self, started: datetime | None) -> None:
        begun = time.clock_gettime(_CLOCK)  # at the latest, the file's time is counted from here
        content = {
            "kind": self.kind,
            "key": self.key,
            "process": os.getpid(),
            "started": None if started is None else started.isoformat(),
        }
        checked_json.write(self._uri, content)
        self._renewed = begun


@contextmanager
def hold_lease(lake: str, kind: str) -> Iterator[HeldLease]:
    """Hold a lease on a lake inside a ``with`` block; a thread renews it.

    The job calls ``check`` before each commit. Raises WriteError if the lake is not writable.
    """
    lease = HeldLease(storage.normalize(lake), kind)
    done = threading.Event()
    renewer = threading.Thread(target=_renew, args=(lease, done), daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        renewer.join()
        lease.release()


def active_leases(lake: str, now: datetime) -> list[Lease]:
    """Return the leases of live jobs at a time by the store's clock, oldest first."""
    held = []
    for file in storage.find_files(storage.join(storage.normalize(lake), _FOLDER)):
        lease = _read(file.uri, file.modified or now)
        if lease is not None and lease.is_alive(now):
            held.append(lease)
    return sorted(held, key=lambda each: each.started)


def store_time(uri: str) -> datetime:
    """Return when a file was last written, by the store's clock (UTC); right after that, it is now."""
    file = storage.file_info(uri)
    return file.modified if file is not None and file.modified is not None else datetime.now(UTC)


def _read(uri: str, renewed: datetime) -> Lease | None:
    """Return the lease in a file, or None if the job has ended.

    A live job soon renews a damaged lease. Until then it counts as that of a job that may need any file.
    """
    try:
        fields = checked_json.read(uri, hint="the job that holds it writes it again")
    except TableError:
        long_ago = datetime.fromtimestamp(0, UTC) + _STORE_SKEW
        return Lease(kind="unknown", key="", process=0, started=long_ago, renewed=renewed)
    if fields is None:
        return None
    started = fields.pop("started")
    return Lease(
        **fields,
        started=renewed if started is None else datetime.fromisoformat(started),
        renewed=renewed,
    )


def _renew(lease: HeldLease, done: threading.Event) -> None:
    while not done.wait(_RENEW_SECONDS):
        try:
            lease.renew()
        except StorageError:
            continue  # the store may respond again in a minute; if not, the job itself fails
        except TableError:
            return  # too late: the job stops before its next commit
