"""Keep the files of a table version from `etl vacuum` while it is read: a lease that names the version.

Rank 0 holds it: in the process that reads, until the dataset is freed or the process ends; in a DataLoader
worker, during each pass; for an evaluation, during each iteration. A thread writes and renews it, so that the
first batch does not wait.
"""

import os
import threading
import warnings
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import TableError, TokenlakeError
from etl.lake import leases, releases
from etl.lake.vacuums import find_vacuum

_DELAY_S = 30.0  # a shorter look at a table takes no lease; chosen here
_RENEW_S = 60.0  # a lease is valid for 15 minutes; 60 requests an hour, 0.0003 USD in S3


class VersionLease:
    """The lease of one version of a table in this process."""

    def __init__(self, table: str, version: int) -> None:
        """Start the thread."""
        self.table = table
        self.version = version
        self._process = os.getpid()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="tokenlake-lease", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> bool:
        """Whether this process started the lease; a forked one has no thread that renews it."""
        return self._process == os.getpid()

    def end(self) -> None:
        """Remove the lease."""
        if self.is_held:
            self._done.set()
            self._thread.join()

    def _keep(self) -> None:
        if self._done.wait(_DELAY_S):
            return
        lake, _, name = self.table.rpartition("/")
        try:
            if not schemas.is_tokens(name) and not Table.exists(storage.join(lake, "documents")):
                return  # a table outside a lake, of which no vacuum knows
            lease = leases.HeldLease(lake, "train", versions={name: self.version})
        except Exception as error:  # noqa: BLE001 - each store has its own; they are reported
            if not self._done.is_set():
                what = error.what if isinstance(error, TokenlakeError) else repr(error)
                self._warn(lake, name, f"no lease protects it ({what})")
            return
        self._check_vacuums(lake, name, lease)
        while not self._done.wait(_RENEW_S):
            try:
                lease.renew()
            except TableError:  # too late, for example after the machine slept: take another one
                with suppress(Exception):
                    lease = leases.HeldLease(lake, "train", versions={name: self.version})
            except Exception:  # noqa: BLE001, S112 - the store may respond again in a minute
                continue
        with suppress(Exception):
            lease.release()

    def _check_vacuums(self, lake: str, name: str, lease: leases.HeldLease) -> None:
        """Warn if a vacuum that began before the lease deletes files of the version."""
        with suppress(Exception):
            if find_vacuum(Table.open(self.table, self.version), lease.now()) is not None:
                self._warn(lake, name, "a vacuum that does not know of this job is under way")

    def _warn(self, lake: str, name: str, reason: str) -> None:
        """Warn unless a release keeps the version."""
        with suppress(Exception):
            if any(r.versions.get(name) == self.version for r in releases.list_releases(lake)):
                return
        warnings.warn(
            f"{self.table}: version {self.version} may be deleted by `etl vacuum` during training: "
            f"{reason}; `etl release {lake} NAME --version {self.version}` keeps it",
            RuntimeWarning,
            stacklevel=2,
        )


class HeldVersions:
    """The leases for the tables that are read in this process; a copy has none.

    The leases end with the context of this object, with ``end``, or when this object is freed.
    """

    def __init__(self) -> None:
        self._leases: list[VersionLease] = []

    def hold(self, tables: Sequence[tuple[str, int]]) -> None:
        """Take leases for versions of tables, unless this process holds them already."""
        if any(lease.is_held for lease in self._leases):
            return
        self._leases = [VersionLease(*table) for table in tables]
        weakref.finalize(self, _end, self._leases)

    def end(self) -> None:
        """Remove the leases."""
        _end(self._leases)
        self._leases = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __reduce__(self) -> tuple[type["HeldVersions"], tuple[()]]:
        return HeldVersions, ()


def _end(held: Sequence[VersionLease]) -> None:
    for lease in held:
        lease.end()
