"""Vacuum a lake: find the files that are no longer needed, and delete them on request.

A data file is needed by the newest version, by every version that was the newest within the retention, and by
each release. A running job needs all files written or removed since it started, regardless of the retention,
or only those of the versions that its lease names, as training does.
Unneeded files are those that a failed job never committed, and those that a replacement, rebuild, repair or
optimize removed longer ago than the retention. The parts of uploads that a killed job never completed, and
its files in the scratch space, are not needed either. Only files with Tokenlake's names are considered.

All times are those of the store: when a file was written, when the log entry that removed it was written,
when a job began, and the present, which is when the vacuum has written its own lease. Cost: one listing of
the lake, and one pass over each log. Memory: 16 bytes for each live data file, and 25 for each time that the
log adds or removes one; the listing is on disk.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np

from etl import storage
from etl.compact_collections import DigestSet, SpilledList, digest, index_of
from etl.delta import commit_history, log_segment
from etl.delta.data_file import is_data_file
from etl.delta.table import Table
from etl.errors import ConflictError, TableError
from etl.lake import leases, releases, scratch
from etl.lake.missing_tables import no_lake_error
from etl.lake.open_table import find_table
from etl.lake.table_specs import SPECS
from etl.storage import uploads

RETAIN: Final = timedelta(days=7)
"""How long files removed from the newest version are retained: the default of Delta's VACUUM."""

MIN_RETAIN: Final = timedelta(hours=1)
"""The least retention: a reader or writer without a lease, such as a notebook, may need files for a while.
Chosen here."""

_THREADS = 16  # they wait for storage


@dataclass(frozen=True, kw_only=True, slots=True)
class Unneeded:
    """An unneeded data file: the reason, and the versions that cannot be read without it."""

    table: str
    file: str  # path inside the table
    size: int  # bytes
    why: str
    versions: tuple[int, int] | None  # first and last; None if it was never committed


@dataclass(frozen=True, kw_only=True)
class Vacuum:
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
    names the vacuum. Raises TableError if the lake does not exist or the retention is too short,
    ConflictError if another vacuum of it is running.
    """
    url = storage.normalize(lake)
    if retain < MIN_RETAIN:
        raise TableError(
            f"files must be retained for at least {_minutes(MIN_RETAIN)} minutes, not {_minutes(retain)}",
            where=url,
            hint="jobs that read or write the lake without a lease may still need them",
        )
    names = [name for name in SPECS if Table.exists(storage.join(url, name))]
    if not names:
        raise no_lake_error(url)
    # The order matters. The lease is taken before the releases are listed: see etl/lake/releases.py. The
    # files are listed before the leases and the logs, so the job that wrote a listed file holds a lease, has
    # committed the file, or is dead.
    with leases.hold_lease(url, "vacuum") if delete else nullcontext() as own:
        listed = {name: _list_data_files(storage.join(url, name)) for name in names}
        # Without a lease nothing is deleted, so that this machine's clock is good enough.
        now = datetime.now(UTC) if own is None else own.now()
        others = [
            other for other in leases.active_leases(url, now) if own is None or other.key != own.key
        ]
        if own is not None and any(other.kind == own.kind for other in others):
            raise ConflictError("another vacuum of this lake is running", where=url)
        jobs = [other for other in others if other.kind != "vacuum"]
        # A job that names versions needs no other files, however long it runs.
        horizon = min([now - retain, *(job.since for job in jobs if not job.versions)])
        retained = releases.list_releases(url)
        files = [
            file
            for name in names
            for file in _unneeded(
                url, name, listed.pop(name), horizon, _versions(name, retained, jobs)
            )
        ]
        if not any(job.kind == "shuffle" for job in jobs):  # it may have continued another's work
            files += _left_in_scratch(url, horizon)
        unfinished = uploads.unfinished_uploads(url, before=horizon)
        if own is not None:
            for name in (*names, scratch.FOLDER):
                own.check()
                _delete(storage.join(url, name), [file for file in files if file.table == name])
            _in_threads(uploads.abort_upload, unfinished)
    return Vacuum(
        lake=url,
        horizon=horizon,
        jobs=[_describe(job) for job in jobs],
        releases=[release.name for release in retained],
        files=files,
        uploads=unfinished,
        deleted=delete,
    )


class _Listed(NamedTuple):
    """A file with a data file's name: its path in the table, size, and last write."""

    path: str
    size: int
    modified: datetime | None


def _list_data_files(url: str) -> SpilledList[_Listed]:
    """Return the files of a table that have a data file's name."""
    files = ((file.uri.removeprefix(f"{url}/"), file) for file in storage.walk_files(url))
    return SpilledList(
        _Listed(path, file.size, file.modified) for path, file in files if is_data_file(path)
    )


def _unneeded(
    lake: str,
    name: str,
    listed: SpilledList[_Listed],
    horizon: datetime,
    versions: Sequence[int],
) -> Iterator[Unneeded]:
    """Yield the unneeded files of a table of which some ``versions`` are kept."""
    table = find_table(storage.join(lake, name))
    if table is None:
        return
    removals = _Removals(table)
    times = _entry_times(table.url, horizon)
    live = DigestSet(_paths(table))
    if 0 not in times:  # another program has deleted old entries: the checkpoints have their files
        for version in versions:
            live.update(_paths(Table.open(table.url, version)))
    found = []
    for path, size, modified in listed:
        if modified is None or modified >= horizon or path in live:
            continue
        gone = removals.of(path)
        if gone is not None:
            is_recent = times.get(gone.version, horizon) >= horizon
            if is_recent or any(gone.since <= version < gone.version for version in versions):
                continue
        why = "never committed" if gone is None else f"removed by version {gone.version}"
        lost = None if gone is None else (gone.since, gone.version - 1)
        found.append(Unneeded(table=name, file=path, size=size, why=why, versions=lost))
    yield from sorted(found, key=lambda file: file.file)


def _left_in_scratch(lake: str, horizon: datetime) -> Iterator[Unneeded]:
    """Yield the intermediate files that a killed job has left, and no other has continued with."""
    folder = scratch.scratch_folder(lake)
    for file in sorted(storage.walk_files(folder), key=lambda file: file.uri):
        if file.modified is not None and file.modified < horizon:
            path, why = file.uri.removeprefix(f"{folder}/"), "left by a job that was killed"
            yield Unneeded(table=scratch.FOLDER, file=path, size=file.size, why=why, versions=None)


def _versions(
    name: str, retained: Sequence[releases.Release], jobs: Sequence[leases.Lease]
) -> list[int]:
    """Return the versions of a table that releases and running jobs name."""
    named = [*(each.versions for each in retained), *(job.versions for job in jobs)]
    return sorted({versions[name] for versions in named if name in versions})


def _describe(job: leases.Lease) -> str:
    reads = "".join(f" on {name} version {version}" for name, version in job.versions.items())
    return f"{job.kind}{reads} since {job.started:%Y-%m-%d %H:%M:%S} UTC"


def _paths(table: Table) -> Iterator[str]:
    return (file["path"] for file in table.files("path", by=()))


class _Removal(NamedTuple):
    """The removal of a file: the version, and the version that added the file."""

    version: int
    since: int


class _Removals:
    """The files of a table that were removed and not added again."""

    def __init__(self, table: Table) -> None:
        """Read the log once."""
        digests, versions, is_add = bytearray(), array("q"), array("b")
        for commit in table.commits():
            for paths, kind in ((commit.remove, 0), (commit.add, 1)):
                for path in paths:
                    digests += digest(path)
                    versions.append(commit.version)
                    is_add.append(kind)
        keys = np.frombuffer(digests, "S16")
        # Sorted by path, and by version for each path: the last two actions of a path say what became of it.
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._versions = np.asarray(versions, np.int64)[order]
        self._is_add = np.asarray(is_add, np.bool_)[order]

    def of(self, path: str) -> _Removal | None:
        """Return the removal of a file; None if it was not removed."""
        key = digest(path)
        first = index_of(self._keys, key)
        if first is None:
            return None
        last = int(np.searchsorted(self._keys, key, side="right")) - 1
        if self._is_add[last]:
            return None
        has_add = last > first and self._is_add[last - 1]
        since = int(self._versions[last - 1]) if has_add else 0
        return _Removal(int(self._versions[last]), since)


def _entry_times(url: str, unknown: datetime) -> dict[int, datetime]:
    """Return when the store has written each log entry, by version."""
    entries = storage.walk_files(log_segment.log_folder(url))
    named = ((log_segment.version_of_commit_file(e.uri.rsplit("/", 1)[-1]), e) for e in entries)
    return {version: entry.modified or unknown for version, entry in named if version >= 0}


def _delete(url: str, files: Sequence[Unneeded]) -> None:
    lost = [file.versions for file in files if file.versions is not None]
    if lost:
        commit_history.record_vacuumed(url, lost)
    _in_threads(storage.remove, [storage.join(url, file.file) for file in files])


def _in_threads(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(work, items):
            pass


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g}"
