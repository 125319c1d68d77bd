"""Leases: which jobs are running on a lake, so that a vacuum keeps the files they may need.

A lease is one small file, ``LAKE/leases/KIND-ID.json``, which a job writes when it starts, renews while it
runs, and removes when it ends. Start and renewal are the file's own times of modification, so that only the
store's clock matters, and not the clocks of the jobs. A lease that was not renewed for 15 minutes belongs
to a dead job. A job that could not renew its lease in time, for example because its machine slept, stops
before it commits. Leases do not order commits, which the Delta log does: they only hold back deletions.
With each renewal, every 10 seconds, a run also writes its progress, which ``etl status`` prints. A lease
may name versions of tables: its job only reads these, so a vacuum keeps their files and no others.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from etl import storage
from etl.errors import StorageError, TableError, WriteError
from etl.lake.finished_versions import record_finished
from etl.lake.run_state import RunState
from etl.storage import checked_json

_FOLDER = "leases"
_RENEW_SECONDS = 10.0  # 360 requests an hour, 0.002 USD in S3
UNKNOWN: Final = "unknown"
"""The kind of a job whose lease is damaged."""

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
    host: str
    process: int
    started: datetime  # UTC
    renewed: datetime  # UTC
    state: RunState | None = None  # of a run
    # Table -> the only version that the job reads.
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def since(self) -> datetime:
        """A time before the job started, by the store's clock."""
        return self.started - _STORE_SKEW

    def is_alive(self, now: datetime) -> bool:
        """Return whether the lease has not expired."""
        return now - self.renewed < LIFETIME


class HeldLease:
    """The lease of a job in this process; ``state`` returns the state of a run whenever it is renewed."""

    def __init__(
        self,
        lake: str,
        kind: str,
        state: Callable[[], RunState | None] = lambda: None,
        *,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        """Write the lease; raises WriteError if the lake is not writable."""
        self.kind = kind
        self._state = state
        self._versions = dict(versions or {})
        self.key = uuid.uuid4().hex[:12]
        self.lake = lake
        self._uri = storage.join(lake, _FOLDER, f"{kind}-{self.key}.json")
        self._is_expired = False
        # The lake is the folder that users know: an error of the lease's own file is reported as one of
        # the lake.
        try:
            self._write(None)
        except WriteError as error:
            if error.where != self._uri:
                raise
            raise WriteError(f"the lake {error.what}", where=lake, hint=error.hint) from error
        # The first write has the start of the job; all later ones repeat it.
        self.started = store_time(self._uri)
        self._write(self.started)

    def check(self) -> None:
        """Raise TableError if the lease was not renewed in time: a vacuum may have deleted files."""
        age = time.clock_gettime(_CLOCK) - self._renewed
        if self._is_expired or age >= (LIFETIME - _COMMIT_TIME).total_seconds():
            self._is_expired = True  # for good: a renewal would not bring deleted files back
            raise TableError(
                f"the lease of this {self.kind} was not renewed for {age:.0f} seconds, so that other jobs "
                "may count it as dead",
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
        state = self._state()
        begun = time.clock_gettime(_CLOCK)  # at the latest, the file's time is counted from here
        content = {
            "kind": self.kind,
            "key": self.key,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "started": None if started is None else started.isoformat(),
            "state": None if state is None else state.to_json(),
            "versions": self._versions,
        }
        checked_json.write(self._uri, content)
        self._renewed = begun


@contextmanager
def hold_lease(
    lake: str, kind: str, state: Callable[[], RunState | None] = lambda: None
) -> Iterator[HeldLease]:
    """Hold a lease on a lake inside a ``with`` block; a thread renews it, and calls ``state`` for that.

    The job calls ``check`` before each commit. When it ends without an error, the versions that it has left
    are recorded (``finished_versions``). Raises WriteError if the lake is not writable.
    """
    lease = HeldLease(storage.normalize(lake), kind, state)
    done = threading.Event()
    renewer = threading.Thread(
        target=_renew, args=(lease, done), name="tokenlake-lease", daemon=True
    )
    renewer.start()
    try:
        yield lease
    except BaseException:
        # The job's error matters more: if the lake became read-only, the lease cannot be removed either.
        with suppress(StorageError):
            _end(lease, renewer, done)
        raise
    with suppress(StorageError):  # the job is done; the next one records its versions, too
        record_finished(lease.lake)
    _end(lease, renewer, done)


def _end(lease: HeldLease, renewer: threading.Thread, done: threading.Event) -> None:
    done.set()
    renewer.join()
    lease.release()


def active_leases(lake: str, now: datetime) -> list[Lease]:
    """Return the leases of live jobs at a time by the store's clock, oldest first."""
    return [lease for lease in all_leases(lake) if lease.is_alive(now)]


def all_leases(lake: str) -> list[Lease]:
    """Return the leases of all jobs that have not ended properly, oldest first."""
    files = storage.find_files(storage.join(storage.normalize(lake), _FOLDER))
    leases = (_read(file.uri, file.modified or datetime.now(UTC)) for file in files)
    return sorted((each for each in leases if each is not None), key=lambda each: each.started)


def store_time(uri: str) -> datetime:
    """Return when a file was last written, by the store's clock (UTC); right after that, it is now."""
    file = storage.file_info(uri)
    return file.modified if file is not None and file.modified is not None else datetime.now(UTC)


def _read(uri: str, renewed: datetime) -> Lease | None:
    """Return the lease in a file, or None if the job has ended.

    A live job soon renews a damaged lease. Until then, its job counts as a job that may need any file, as
    does the job of a lease that another version of Tokenlake wrote.
    """
    try:
        fields = checked_json.read(uri, hint="the job that holds it writes it again")
        return None if fields is None else _parse(fields, renewed)
    except (TableError, TypeError, ValueError, LookupError):
        # ``since`` is then 1970: no file is older than this job, so a vacuum deletes none.
        long_ago = datetime.fromtimestamp(0, UTC) + _STORE_SKEW
        return Lease(kind=UNKNOWN, key="", host="", process=0, started=long_ago, renewed=renewed)


def _parse(fields: dict[str, Any], renewed: datetime) -> Lease:
    # A job between its first two writes has no start yet: it began when the file was written.
    started, state = fields.pop("started"), fields.pop("state")
    return Lease(
        **fields,
        started=renewed if started is None else datetime.fromisoformat(started),
        renewed=renewed,
        state=None if state is None else RunState.from_json(state),
    )


def _renew(lease: HeldLease, done: threading.Event) -> None:
    while not done.wait(_RENEW_SECONDS):
        try:
            lease.renew()
        except StorageError:
            continue  # the store may respond again in a minute; if not, the job itself fails
        except TableError:
            return  # too late: the job stops before its next commit
