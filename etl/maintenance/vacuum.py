"""Vacuum a lake: find the data files that are no longer needed, and delete them on request.

A file is needed by the newest version, by every version that was the newest within the retention, and by each
release. A running job needs all files written or removed since it started, regardless of the retention.
Unneeded files are those that a failed job never committed, and those that a replacement, rebuild, repair or
optimize removed longer ago than the retention. Only files with Tokenlake's names are considered. Cost: one
listing of the lake, and one pass over each log.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from etl import storage
from etl.delta import commit_history
from etl.delta.data_file import is_data_file
from etl.delta.table import Table
from etl.errors import ConflictError, TableError
from etl.lake import leases, releases
from etl.lake.open_table import find_table
from etl.lake.table_specs import SPECS

RETAIN: Final = timedelta(days=7)
"""How long files removed from the newest version are retained: the default of Delta's VACUUM."""

_THREADS = 16  # they wait for storage


@dataclass(frozen=True, kw_only=True)
class Unneeded:
    """An unneeded data file: the reason, and the versions that cannot be read without it."""

    table: str
    file: str  # path inside the table
    size: int  # bytes
    why: str
    versions: tuple[int, int] | None  # first and last; None if it was never committed


@dataclass(frozen=True, kw_only=True)
class Vacuum:
    """The data files that a vacuum deleted, or would delete."""

    lake: str
    horizon: datetime  # files unneeded since before this time are deleted
    jobs: list[str]  # running on the lake; they limit the horizon
    releases: list[str]
    files: list[Unneeded]
    deleted: bool

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(file.size for file in self.files)


def vacuum(lake: str, *, retain: timedelta = RETAIN, delete: bool = False) -> Vacuum:
    """Find unneeded data files, and delete them if ``delete`` is set.

    Versions that lose files are first recorded beside their table, and opening one raises an error that
    names the vacuum. Raises TableError if the lake does not exist, ConflictError if another vacuum of it is
    running.
    """
    url = storage.normalize(lake)
    names = [name for name in SPECS if find_table(url, name) is not None]
    if not names:
        raise TableError("no lake at this URL", where=url, hint="check the URL")
    # The order matters. The lease is taken before the releases are listed: see etl/lake/releases.py. The
    # files are listed before the leases and the logs, so the job that wrote a listed file holds a lease, has
    # committed the file, or is dead.
    with leases.hold_lease(url, "vacuum") if delete else nullcontext() as own:
        listed = {name: storage.find_files(storage.join(url, name)) for name in names}
        others = [
            other for other in leases.active_leases(url) if own is None or other.key != own.key
        ]
        if own is not None and any(other.kind == own.kind for other in others):
            raise ConflictError("another vacuum of this lake is running", where=url)
        jobs = [other for other in others if other.kind != "vacuum"]
        horizon = min([datetime.now(UTC) - retain, *(job.since for job in jobs)])
        retained = releases.list_releases(url)
        files = [
            file for name in names for file in _unneeded(url, name, listed[name], horizon, retained)
        ]
        if delete:
            for name in names:
                _delete(storage.join(url, name), [file for file in files if file.table == name])
    return Vacuum(
        lake=url,
        horizon=horizon,
        jobs=[f"{job.kind} since {job.started}" for job in jobs],
        releases=[release.name for release in retained],
        files=files,
        deleted=delete,
    )


def _unneeded(
    lake: str,
    name: str,
    listed: list[storage.FileInfo],
    horizon: datetime,
    retained: list[releases.Release],
) -> Iterator[Unneeded]:
    url = storage.join(lake, name)
    table = Table.open(url)
    removed = _removed(table)
    needed = set(table.data_files()["path"].to_pylist())
    needed.update(path for path, last in removed.items() if last.time >= horizon)
    for version in {r.versions[name] for r in retained if name in r.versions}:
        needed.update(Table.open(url, version).data_files()["path"].to_pylist())
    for file in listed:
        path = file.uri.removeprefix(f"{table.url}/")
        is_old = file.modified is not None and file.modified < horizon
        if is_data_file(path) and is_old and path not in needed:
            last = removed.get(path)
            why, versions = "never committed", None
            if last is not None:
                why = f"removed by version {last.version}"
                versions = (last.since, last.version - 1)
            yield Unneeded(table=name, file=path, size=file.size, why=why, versions=versions)


@dataclass(frozen=True)
class _Removal:
    """The removal of a file: the version and time, and the version that added the file."""

    version: int
    time: datetime
    since: int


def _removed(table: Table) -> dict[str, _Removal]:
    """Return the files that were removed and not added again."""
    since: dict[str, int] = {}
    removed: dict[str, _Removal] = {}
    for entry in table.commits():
        for path in entry.remove:
            removed[path] = _Removal(entry.version, entry.time, since.pop(path, 0))
        for path in entry.add:
            removed.pop(path, None)
            since[path] = entry.version
    return removed


def _delete(url: str, files: list[Unneeded]) -> None:
    lost = [file.versions for file in files if file.versions is not None]
    if lost:
        commit_history.record_vacuumed(url, lost)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda file: storage.remove(storage.join(url, file.file)), files):
            pass
