"""Vacuum a lake: find the files that are no longer needed, and delete them on request.

A data file is needed by the newest version, by every version that was the newest within the retention, by
each release, and by ``etl repair`` if another program has removed it. A running job needs all files written
or removed since it started, regardless of the retention, or only the files of the versions that its lease
names, as training does. Unneeded files are those that a failed job never committed, and those that a
replacement, rebuild, repair or optimize removed longer ago than the retention. The parts of uploads that a
killed job never completed, and its files in the scratch space, are not needed either.

A vacuum deletes in four steps, so that no file is both needed and deleted: it announces the versions that
lose files (``etl/delta/vacuum_records.py``), reads again what is needed, decides, and deletes files while its
lease is valid. See "Deleting files" in docs/explanation/exactly-once.md.

All times are set by the store: when a file was written, when the log entry that removed it was written,
when a job began, and the present, which is when the vacuum has written its own lease. Cost: one listing of
the lake, and one pass over each log, or two if a job commits to it during the vacuum.
"""

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

from etl import storage
from etl.delta import vacuum_records
from etl.delta.table import Table
from etl.delta.vacuum_records import VacuumRecord
from etl.errors import ConflictError, StorageError, TableError
from etl.html.card import Shown
from etl.lake import leases, releases, scratch
from etl.lake.finished_versions import check_finished
from etl.lake.missing_tables import no_lake_error
from etl.lake.table_names import table_names
from etl.maintenance.unneeded_files import ListedFiles, Needs, Unneeded, find_uploads
from etl.storage import uploads

__all__ = ["MIN_RETAIN", "RETAIN", "Unneeded", "Vacuum", "vacuum"]

RETAIN: Final = timedelta(days=7)
"""How long files removed from the newest version are retained: the default of Delta's VACUUM."""

MIN_RETAIN: Final = timedelta(hours=1)
"""The least retention: a reader or writer without a lease, such as a notebook, may need files for a while.
Chosen here."""

_THREADS = 16  # they wait for storage
_EXCLUDED = ("vacuum", "repair")  # jobs that a vacuum does not run beside
_BATCH_FILES = 256  # that are deleted after each check of the lease


@dataclass(frozen=True, kw_only=True, repr=False)
class Vacuum(Shown):
    """The files that a vacuum deleted and the uploads that it aborted, or would."""

    lake: str
    horizon: datetime  # files unneeded since before this time are deleted
    jobs: list[str]  # running on the lake; those that name no version limit the horizon
    releases: list[str]
    files: list[Unneeded]
    uploads: list[uploads.Upload]
    deleted: bool

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(file.size for file in self.files)


def vacuum(lake: str, *, retain: timedelta = RETAIN, delete: bool = False) -> Vacuum:
    """Find unneeded files, and delete them if ``delete`` is set.

    Versions that lose files are first recorded beside their table, and opening one raises an error that
    names the vacuum. Raises TableError if the lake does not exist, if the retention is too short, or if the
    lease of the vacuum expires; ConflictError if another vacuum or a repair of the lake is running;
    DamagedLogError if a table has lost its newest versions.
    """
    url = storage.normalize(lake)
    if retain < MIN_RETAIN:
        raise TableError(
            f"files must be retained for at least {_minutes(MIN_RETAIN)} minutes, not {_minutes(retain)}",
            where=url,
            hint="jobs that read or write the lake without a lease may still need them",
        )
    names = [name for name in table_names(url) if Table.exists(storage.join(url, name))]
    if not names:
        raise no_lake_error(url)
    check_finished(url)  # the files of versions that a backup may bring back were never committed
    if not delete:  # so this machine's clock is good enough
        listed = _list(url, names)
        needs = _read_needs(url, retain, None)
        return _result(url, needs, [each.unneeded(needs) for each in listed], deleted=False)
    with leases.hold_lease(url, "vacuum") as lease:
        _refuse_others(url, lease)
        return _Deletion(url, retain, lease).run(_list(url, names))


def _list(lake: str, names: Sequence[str]) -> list[ListedFiles]:
    # Before the leases and the logs are read: the job that wrote a listed file holds a lease, has committed
    # the file, or is dead.
    return [ListedFiles(lake, name) for name in (*names, scratch.FOLDER)]


def _read_needs(lake: str, retain: timedelta, own: leases.HeldLease | None) -> Needs:
    """Return what needs files; ``own`` is the lease of the vacuum."""
    now = datetime.now(UTC) if own is None else own.now()
    jobs = [other for other in leases.active_leases(lake, now) if other.kind != "vacuum"]
    # A job that names versions needs no other files, however long it runs.
    horizon = min([now - retain, *(job.since for job in jobs if not job.versions)])
    return Needs(horizon=horizon, jobs=jobs, releases=releases.list_releases(lake))


def _refuse_others(lake: str, own: leases.HeldLease) -> None:
    """Raise ConflictError if another vacuum or a repair runs; a later one sees this vacuum."""
    for other in leases.active_leases(lake, own.now()):
        if other.kind in _EXCLUDED and other.key != own.key:
            article = "another" if other.kind == own.kind else "a"
            what = f"{article} {other.kind} of this lake is running"
            raise ConflictError(what, where=lake, hint="retry when it has finished")


class _Deletion:
    """A vacuum that deletes files, while it holds a lease."""

    def __init__(self, lake: str, retain: timedelta, lease: leases.HeldLease) -> None:
        self._lake = lake
        self._retain = retain
        self._lease = lease
        self._announced: set[str] = set()  # URLs of tables

    def run(self, listed: Sequence[ListedFiles]) -> Vacuum:
        """Do the four steps, for all tables at once."""
        needs, found = self._find(listed)
        self._discard_announced(found)
        try:
            # Announce first, then read again. A job that makes an old version needed writes that before
            # it reads the announcements: either it finds this one, or its need is found here.
            self._record(found, is_decided=False)
            if any(found.values()):
                needs, found = self._find(listed)
            self._lease.check()
            # A vacuum that slept for longer than its lease is counted as dead, so that its announcement
            # may have been ignored: it must not decide. The check after the decision finds a sleep
            # between the two.
            self._record(found, is_decided=True)
            self._lease.check()
        except BaseException:
            with suppress(StorageError):  # what is announced is void without a lease
                self._withdraw(self._announced)  # nothing was deleted
            raise
        for url, files in found.items():
            for start in range(0, len(files), _BATCH_FILES):
                self._lease.check()
                _delete(url, files[start : start + _BATCH_FILES])
        self._merge_records(found)
        result = _result(self._lake, needs, found.values(), deleted=True)
        self._lease.check()
        _in_threads(uploads.abort_upload, result.uploads)
        return result

    def _find(self, listed: Sequence[ListedFiles]) -> tuple[Needs, dict[str, list[Unneeded]]]:
        """Return what needs files, and the unneeded files by the URL of their table."""
        needs = _read_needs(self._lake, self._retain, self._lease)
        return needs, {each.url: each.unneeded(needs) for each in listed}

    def _record(self, found: Mapping[str, Sequence[Unneeded]], *, is_decided: bool) -> None:
        """Announce, or decide, which versions of each table lose files."""
        for url, files in found.items():
            versions = [file.versions for file in files if file.versions is not None]
            if versions:
                self._announced.add(url)
                self._write_record(url, versions, len(files), is_decided=is_decided)
            elif url in self._announced:
                self._withdraw([url])

    def _write_record(
        self, url: str, versions: Iterable[tuple[int, int]], files: int, *, is_decided: bool
    ) -> None:
        record = VacuumRecord(
            key=self._lease.key,
            host=socket.gethostname(),
            process=os.getpid(),
            since=self._lease.started.isoformat(),
            files=files,
            versions=vacuum_records.merge_ranges(versions),
            is_decided=is_decided,
        )
        vacuum_records.write_record(url, record)

    def _withdraw(self, tables: Iterable[str]) -> None:
        for url in list(tables):
            vacuum_records.remove_record(url, self._lease.key)
            self._announced.discard(url)

    def _discard_announced(self, tables: Iterable[str]) -> None:
        """Remove what dead vacuums have announced: no other one runs, and a dead one deletes nothing."""
        for url in tables:
            for record in vacuum_records.read_records(url):
                if not record.is_decided:
                    vacuum_records.remove_record(url, record.key)

    def _merge_records(self, found: Mapping[str, Sequence[Unneeded]]) -> None:
        """Add what earlier vacuums have recorded to the records of this one, and remove theirs."""
        for url in self._announced:
            records = vacuum_records.read_records(url)
            versions = [each for record in records for each in record.versions]
            self._write_record(url, versions, len(found[url]), is_decided=True)
            for record in records:
                if record.key != self._lease.key:
                    vacuum_records.remove_record(url, record.key)


def _result(
    lake: str, needs: Needs, files: Iterable[Sequence[Unneeded]], *, deleted: bool
) -> Vacuum:
    return Vacuum(
        lake=lake,
        horizon=needs.horizon,
        jobs=[_describe(job) for job in needs.jobs],
        releases=[release.name for release in needs.releases],
        files=list(chain.from_iterable(files)),
        uploads=find_uploads(lake, needs.horizon),
        deleted=deleted,
    )


def _describe(job: leases.Lease) -> str:
    reads = "".join(f" on {name} version {version}" for name, version in job.versions.items())
    return f"{job.kind}{reads} since {job.started:%Y-%m-%d %H:%M:%S} UTC"


def _delete(url: str, files: Sequence[Unneeded]) -> None:
    _in_threads(storage.remove, [storage.join(url, file.file) for file in files])


def _in_threads(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(work, items):
            pass


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g}"
