"""Leases: which jobs are running on a lake, so that a vacuum keeps the files they may need.

A lease is one small file, ``LAKE/leases/KIND-ID.json``, which a job writes when it starts, renews while it
runs, and removes when it ends. A lease that was not renewed for 15 minutes belongs to a dead job. Leases do
not order commits, which the Delta log does: they only hold back deletions.
"""

import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from etl import storage
from etl.errors import StorageError

_FOLDER = "leases"
_RENEW_SECONDS = 60.0
# How far two clocks may differ, including the store's, which may have a resolution of seconds: S3 refuses
# requests with a larger skew (RequestTimeTooSkewed).
_MAX_SKEW = timedelta(minutes=15)
LIFETIME: Final = timedelta(minutes=15)
"""How long a lease is valid after it was written: chosen here, equal to the largest clock skew."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A running job: its kind, its start, and when it last renewed the lease (UTC, ISO 8601)."""

    kind: str  # run, optimize, vacuum ...
    key: str
    process: int
    started: str
    renewed: str

    @property
    def since(self) -> datetime:
        """A time before the job started, by any clock."""
        return datetime.fromisoformat(self.started) - _MAX_SKEW

    def is_alive(self, now: datetime) -> bool:
        """Return whether the lease has not expired."""
        return now - datetime.fromisoformat(self.renewed) < LIFETIME


@contextmanager
def hold_lease(lake: str, kind: str) -> Iterator[Lease]:
    """Hold a lease on a lake inside a ``with`` block; a thread renews it.

    Raises WriteError if the lake is not writable.
    """
    now = _now()
    lease = Lease(
        kind=kind, key=uuid.uuid4().hex[:12], process=os.getpid(), started=now, renewed=now
    )
    uri = storage.join(storage.normalize(lake), _FOLDER, f"{kind}-{lease.key}.json")
    _write(uri, lease)
    done = threading.Event()
    renewer = threading.Thread(target=_renew, args=(uri, lease, done), daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        renewer.join()
        storage.remove(uri)


def active_leases(lake: str) -> list[Lease]:
    """Return the leases of live jobs, oldest first."""
    now = datetime.now(UTC)
    held = []
    for file in storage.find_files(storage.join(storage.normalize(lake), _FOLDER)):
        content = storage.read_bytes(file.uri)
        if content is not None:  # else the job has ended since the listing
            held.append(Lease(**json.loads(content)))
    alive = (lease for lease in held if lease.is_alive(now))
    return sorted(alive, key=lambda lease: lease.started)


def _renew(uri: str, lease: Lease, done: threading.Event) -> None:
    while not done.wait(_RENEW_SECONDS):
        try:
            _write(uri, Lease(**{**asdict(lease), "renewed": _now()}))
        except StorageError:
            continue  # the store may respond again in a minute; if not, the job itself fails


def _write(uri: str, lease: Lease) -> None:
    storage.write_bytes(uri, json.dumps(asdict(lease), indent=1).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
