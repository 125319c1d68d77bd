"""Find the files of a lake that neither a version within the retention, a release nor a job needs.

Only files with Tokenlake's names are considered, in the folders of its tables. Memory: 16 bytes for each live
data file, and 25 for each time that the log adds or removes one; the listing is on disk.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

import numpy as np

from etl import schemas, storage
from etl.compact_collections import DigestSet, SpilledList, digest, index_of
from etl.delta import deletion_vectors, log_segment
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake import leases, releases, scratch
from etl.lake.ledger import Ledger
from etl.lake.open_table import find_table
from etl.lake.table_specs import spec_of
from etl.parquet.data_file import is_data_file
from etl.storage import uploads


@dataclass(frozen=True, kw_only=True, slots=True)
class Unneeded:
    """An unneeded data file: the reason, and the versions that cannot be read without it."""

    table: str
    file: str  # path inside the table
    size: int  # bytes
    why: str
    versions: tuple[int, int] | None  # first and last; None if it was never committed


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What needs files of a lake: versions that were the newest since the horizon, jobs, and releases."""

    horizon: datetime
    jobs: Sequence[leases.Lease]
    releases: Sequence[releases.Release]

    def versions(self, table: str) -> list[int]:
        """Return the versions of a table that releases and running jobs name."""
        named = [*(each.versions for each in self.releases), *(job.versions for job in self.jobs)]
        return sorted({versions[table] for versions in named if table in versions})


class ListedFile(NamedTuple):
    """A file with one of Tokenlake's names: its path in the table, size, and last write."""

    path: str
    size: int
    modified: datetime | None


class ListedFiles:
    """The files of a table, or of the scratch space, as they were listed once.

    Each call of ``unneeded`` reads the newest log, and considers only what the call before has returned.
    """

    def __init__(self, lake: str, name: str) -> None:
        """List the files."""
        self.name = name
        self.url = storage.join(lake, name)
        found = scratch.list_scratch(lake) if name == scratch.FOLDER else _list_data_files(self.url)
        self._listed: Iterable[ListedFile] = SpilledList(
            ListedFile(file.uri.removeprefix(f"{self.url}/"), file.size, file.modified)
            for file in found
        )
        self._log: _Log | None = None

    def unneeded(self, needs: Needs) -> list[Unneeded]:
        """Return the unneeded files, sorted by path."""
        if self.name == scratch.FOLDER:
            is_continued = any(job.kind == "shuffle" for job in needs.jobs)
            find = self._none if is_continued else self._abandoned
        else:
            find = self._unneeded
        found = sorted(find(needs), key=lambda pair: pair[0].path)
        self._listed = [file for file, _ in found]
        return [each for _, each in found]

    def _none(self, _: Needs) -> Iterator[tuple[ListedFile, Unneeded]]:
        return iter(())

    def _abandoned(self, needs: Needs) -> Iterator[tuple[ListedFile, Unneeded]]:
        for file in self._listed:
            if file.modified is not None and file.modified < needs.horizon:
                yield file, self._describe(file, "left by a job that was killed", None)

    def _unneeded(self, needs: Needs) -> Iterator[tuple[ListedFile, Unneeded]]:
        log = self._log = _Log.newest(self.url, self._log)
        if log is None:
            return
        versions = needs.versions(self.name)
        live = log.live_at(versions)
        for file in self._listed:
            if file.modified is None or file.modified >= needs.horizon:
                continue
            if file.path in log.kept or file.path in live:
                continue
            gone = log.removals.of(file.path)
            if gone is None:
                yield file, self._describe(file, "never committed", None)
                continue
            # A file that version 8 removed and version 3 added is in versions 3 to 7: it stays as long
            # as one of them is named by a job or a release, or was the newest within the retention.
            is_recent = log.times.get(gone.version, needs.horizon) >= needs.horizon
            if not is_recent and not any(gone.since <= each < gone.version for each in versions):
                why = f"removed by version {gone.version}"
                yield file, self._describe(file, why, (gone.since, gone.version - 1))

    def _describe(self, file: ListedFile, why: str, versions: tuple[int, int] | None) -> Unneeded:
        return Unneeded(table=self.name, file=file.path, size=file.size, why=why, versions=versions)


def find_uploads(lake: str, horizon: datetime) -> list[uploads.Upload]:
    """Return the unfinished uploads of our files that were started before the horizon."""

    def is_ours(uri: str) -> bool:
        name, _, path = uri.removeprefix(f"{lake}/").partition("/")
        if name == scratch.FOLDER:
            return scratch.is_scratch(path)
        is_table = schemas.kind_of(name) in schemas.TABLES
        return is_table and (_is_ours(name, path) or path.startswith("_delta_log/"))

    found = uploads.unfinished_uploads(lake, before=horizon)
    return [upload for upload in found if is_ours(upload.uri)]


def _list_data_files(url: str) -> Iterator[storage.FileInfo]:
    """Yield the files of a table that have the name of a data file, or of a file with deletion vectors."""
    name = url.rpartition("/")[2]

    @cache
    def is_table(folder: str) -> bool:
        return folder != url and Table.exists(folder)

    for file in storage.walk_files(url):
        is_ours = _is_ours(name, file.uri.removeprefix(f"{url}/"))
        if is_ours and not is_table(file.uri.rpartition("/")[0]):
            yield file
    for file in storage.walk_files(storage.join(url, deletion_vectors.FOLDER)):  # a hidden folder
        if deletion_vectors.is_vector_file(file.uri.removeprefix(f"{url}/")):
            yield file


def _is_ours(table: str, path: str) -> bool:
    """Return whether a path has the form of a data file of a table, with a folder for each partition.

    >>> _is_ours("documents", "verdict=kept/" + "a" * 32 + "-0123456789ab-0.parquet")
    True
    >>> _is_ours("documents", "lake/tokens/" + "a" * 32 + "-0123456789ab-0.parquet")
    False
    """
    folders = path.split("/")[:-1]
    columns = spec_of(table).layout.partition_by
    return is_data_file(path) and (
        not folders or tuple(folder.partition("=")[0] for folder in folders) == columns
    )


class _Log:
    """The log of a table: the files that it holds or that `etl repair` adds again, and the removals."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.removals = _Removals(table)
        self.times = _entry_times(table.url)
        self.kept = DigestSet(_paths(table))
        if changes := Ledger(table.url, fingerprint="", table=table).foreign_changes():
            self.kept.update(path for file in changes.removed for path in file.stored_paths)

    @classmethod
    def newest(cls, url: str, before: "_Log | None") -> "_Log | None":
        """Return the newest log of a table: the log read before if no commit followed."""
        table = find_table(url) if before is None else before.table.newest()
        if table is None:
            return None
        return before if before and before.table.version == table.version else cls(table)

    def live_at(self, versions: Sequence[int]) -> DigestSet:
        """Return the files of some versions whose log entries are lost."""
        live = DigestSet()
        if 0 not in self.times:  # another program has deleted old entries: checkpoints have them
            for version in versions:
                live.update(_paths(Table.open(self.table.url, version)))
        return live


def _paths(table: Table) -> Iterator[str]:
    """Yield the paths of the live data files, and of the files with their deletion vectors."""
    for file in table.files("path", "vector", by=()):
        yield from LogicalFile.of(file).stored_paths


class _Removal(NamedTuple):
    """The last removal of a file: the version, and the first version that added the file."""

    version: int
    since: int


class _Removals:
    """The files of a table that were removed and not added again."""

    def __init__(self, table: Table) -> None:
        """Read the log once."""
        # 25 bytes for each action rather than Python objects: a log can have millions.
        digests, versions, is_add = bytearray(), array("q"), array("b")
        for commit in table.commits():
            for files, kind in ((commit.remove, 0), (commit.add, 1)):
                for path in (path for file in files for path in file.stored_paths):
                    digests += digest(path)
                    versions.append(commit.version)
                    is_add.append(kind)
        keys = np.frombuffer(digests, "S16")
        # Sorted by path, and by version for each path: the last action of a path says what became of it.
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
        # A file may be removed, added again by a repair and removed again: versions in between count, too.
        since = int(self._versions[first]) if self._is_add[first] else 0
        return _Removal(int(self._versions[last]), since)


def _entry_times(url: str) -> dict[int, datetime]:
    """Return when the store has written each log entry, by version; entries of unknown times are left out."""
    entries = storage.walk_files(log_segment.log_folder(url))
    named = ((log_segment.version_of_commit_file(e.uri.rsplit("/", 1)[-1]), e) for e in entries)
    return {
        version: entry.modified
        for version, entry in named
        if version >= 0 and entry.modified is not None
    }
