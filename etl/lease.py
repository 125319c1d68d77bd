"""Leases: who is at work on a lake, so that a vacuum leaves alone what a job may still need.

A lease is one small file, ``LAKE/leases/KIND-ID.json``, written when the work begins, renewed while it goes
on, and removed at its end. One that was not renewed for a quarter of an hour is that of a job that died.
Leases order nobody's commits, which the Delta log does: they only hold back what deletes.
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
# How far two clocks may differ, the store's too (which may tell whole seconds): S3 itself refuses requests
# whose clock is further off (RequestTimeTooSkewed).
_MAX_SKEW = timedelta(minutes=15)
LIFETIME: Final = timedelta(minutes=15)
"""How long a lease is good for after it was written: chosen here, as long as clocks may differ."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What is being done, since when, and when it was last heard of; times are UTC, ISO 8601."""

    kind: str  # run, optimize, vacuum ...
    key: str
    process: int
    started: str
    renewed: str

    @property
    def since(self) -> datetime:
        """A time at which the work had not begun, by anybody's clock."""
        return datetime.fromisoformat(self.started) - _MAX_SKEW

    def is_alive(self, now: datetime) -> bool:
        """Whether the job has been heard of lately."""
        return now - datetime.fromisoformat(self.renewed) < LIFETIME


@contextmanager
def hold(lake: str, kind: str) -> Iterator[Lease]:
    """Hold a lease on a lake for the time of a block; a thread renews it.

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


def leases(lake: str) -> list[Lease]:
    """The leases of jobs that are alive, oldest first."""
    now = datetime.now(UTC)
    found = []
    for file in storage.find(storage.join(storage.normalize(lake), _FOLDER)):
        content = storage.read(file.uri)
        if content is not None:  # its job has ended meanwhile
            found.append(Lease(**json.loads(content)))
    return sorted((x for x in found if x.is_alive(now)), key=lambda lease: lease.started)


def _renew(uri: str, lease: Lease, done: threading.Event) -> None:
    while not done.wait(_RENEW_SECONDS):
        try:
            _write(uri, Lease(**{**asdict(lease), "renewed": _now()}))
        except StorageError:
            continue  # the store may be there again in a minute; the work itself will say if not


def _write(uri: str, lease: Lease) -> None:
    storage.write(uri, json.dumps(asdict(lease), indent=1).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
