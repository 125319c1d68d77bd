"""Delete the data files that nobody needs any more; show first which.

A file is needed by the newest version, by every version that was the newest within the retention, by each
release, and, whatever the retention, by a job that is at work: what was written or taken away since it
began stays. Two kinds are left: files that were never committed, by jobs that died, and files that a
replacement, a rebuild, a repair or an optimize took away long enough ago. Only names that Tokenlake gives
are looked at. Cost: a listing of the lake, and each log once.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from etl import lease, log, releases, storage
from etl.errors import ConflictError, TableError
from etl.fragment import is_fragment
from etl.table import Table

RETAIN: Final = timedelta(days=7)
"""How long what is not needed by the newest version stays: what Delta's own vacuum takes for granted."""

_THREADS = 16  # they wait for the store


@dataclass(frozen=True, kw_only=True)
class Unneeded:
    """A data file that nobody needs: why, and the versions that cannot be read without it."""

    table: str
    file: str  # its path inside the table
    size: int  # bytes
    why: str
    versions: tuple[int, int] | None  # first and last; None if it was never committed


@dataclass(frozen=True, kw_only=True)
class Vacuum:
    """What a vacuum deletes, or would delete."""

    lake: str
    horizon: datetime  # what came to be unneeded before that goes
    jobs: list[str]  # at work on the lake, which hold the horizon back
    releases: list[str]
    files: list[Unneeded]
    deleted: bool

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(file.size for file in self.files)


def vacuum(lake: str, *, retain: timedelta = RETAIN, delete: bool = False) -> Vacuum:
    """Find what nobody needs, and, with ``delete``, delete it.

    Versions whose files go are noted beside their table before: opening one is an error that says so.
    Raises TableError if there is no lake, ConflictError during another vacuum of it.
    """
    url = storage.normalize(lake)
    tables = (*releases.TABLES, "keys")
    kinds = [kind for kind in tables if Table.exists(storage.join(url, kind))]
    if not kinds:
        raise TableError("there is no lake", where=url, hint="check the URL")
    # It announces itself before it lists the releases: see etl/releases.py. It lists the files before the
    # leases and the logs: whose file it has seen holds a lease, or has committed it, or is dead.
    with lease.hold(url, "vacuum") if delete else nullcontext() as own:
        listed = {kind: storage.find(storage.join(url, kind)) for kind in kinds}
        others = [found for found in lease.leases(url) if own is None or found.key != own.key]
        if own is not None and any(other.kind == own.kind for other in others):
            raise ConflictError("another vacuum of this lake is under way", where=url)
        jobs = [other for other in others if other.kind != "vacuum"]
        horizon = min([datetime.now(UTC) - retain, *(job.since for job in jobs)])
        named = releases.list_all(url)
        files = [
            file for kind in kinds for file in _unneeded(url, kind, listed[kind], horizon, named)
        ]
        if delete:
            for kind in kinds:
                _delete(storage.join(url, kind), [file for file in files if file.table == kind])
    return Vacuum(
        lake=url,
        horizon=horizon,
        jobs=[f"{job.kind} since {job.started}" for job in jobs],
        releases=[release.name for release in named],
        files=files,
        deleted=delete,
    )


def _unneeded(
    lake: str,
    kind: str,
    found: list[storage.FileInfo],
    horizon: datetime,
    named: list[releases.Release],
) -> Iterator[Unneeded]:
    url = storage.join(lake, kind)
    table = Table.open(url)
    gone = _removed(table)
    needed = set(table.fragments()["path"].to_pylist())
    needed.update(path for path, last in gone.items() if last.time >= horizon)
    for version in {r.versions[kind] for r in named if kind in r.versions}:
        needed.update(Table.open(url, version).fragments()["path"].to_pylist())
    for file in found:
        path = file.uri.removeprefix(f"{table.url}/")
        is_old = file.modified is not None and file.modified < horizon
        if is_fragment(path) and is_old and path not in needed:
            last = gone.get(path)
            why, versions = "never committed", None
            if last is not None:
                why = f"taken away by version {last.version}"
                versions = (last.since, last.version - 1)
            yield Unneeded(table=kind, file=path, size=file.size, why=why, versions=versions)


@dataclass(frozen=True)
class _Removal:
    """When a file was taken away, and which version brought it."""

    version: int
    time: datetime
    since: int


def _removed(table: Table) -> dict[str, _Removal]:
    """The files that were taken away and did not come back."""
    since: dict[str, int] = {}
    found: dict[str, _Removal] = {}
    for entry in table.entries():
        for path in entry.remove:
            found[path] = _Removal(entry.version, entry.time, since.pop(path, 0))
        for path in entry.add:
            found.pop(path, None)
            since[path] = entry.version
    return found


def _delete(url: str, files: list[Unneeded]) -> None:
    lost = [file.versions for file in files if file.versions is not None]
    if lost:
        log.note_vacuumed(url, lost)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda file: storage.remove(storage.join(url, file.file)), files):
            pass
