"""Changes of a table's data by other programs: found in its log, and described.

A commit without our record that adds or removes data files is foreign, whether it changes rows or only moves
them: our keys cannot name the rows of its files.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from etl.delta.commit_history import Commit
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.lake.commit_info import is_ours

HASHES: Final = 1 << 63
"""The number of hashes of sets of files: Delta's versions are signed."""


@dataclass(frozen=True, kw_only=True)
class ForeignChanges:
    """The commits of other programs that changed data, and what they have left changed.

    ``added`` and ``removed`` are the data files by which the table differs from what our commits made. A file
    that was given another deletion vector is in both.
    """

    commits: tuple[Commit, ...] = ()
    added: tuple[LogicalFile, ...] = ()
    removed: tuple[LogicalFile, ...] = ()

    @property
    def what(self) -> str:
        """What has happened, in one line."""
        if not self.commits:
            return "the data files in the log differ from those that were committed"
        newest = self.commits[-1]
        operation = newest.info.get("operation") or "an unknown operation"
        writer = newest.info.get("engineInfo") or "another program"
        return f"version {newest.version} was written by another program: {operation} by {writer}"

    def error(self, url: str) -> MismatchError:
        """Return the error for a run on the table at a URL."""
        lake = url.rpartition("/")[0]
        return MismatchError(
            self.what,
            where=url,
            hint=f"`etl repair {lake} --yes` undoes the change, or pass --rebuild",
        )


def foreign_commits(commits: Iterable[Commit]) -> Iterator[Commit]:
    """Yield the commits of other programs that add or remove data files."""
    for commit in commits:
        if (commit.add or commit.remove) and not is_ours(commit.info):
            yield commit


def find_foreign_changes(table: Table) -> ForeignChanges:
    """Return the changes of data by other programs, by one pass over the log."""
    expected: set[LogicalFile] = set()
    foreign: list[Commit] = []
    for commit in table.commits():
        if is_ours(commit.info):
            if _replaces_all(commit):
                expected.clear()
                foreign.clear()
            expected.difference_update(commit.remove)
            expected.update(commit.add)
            if (
                "lost" in commit.info
            ):  # entries before it are missing: it states what the table holds
                expected = live_files(Table.open(table.url, commit.version))
        elif commit.add or commit.remove:
            foreign.append(commit)
    live = live_files(table)
    return ForeignChanges(
        commits=tuple(foreign),
        added=tuple(sorted(live - expected, key=attrgetter("path"))),
        removed=tuple(sorted(expected - live, key=attrgetter("path"))),
    )


def live_files(table: Table) -> set[LogicalFile]:
    """Return the live data files of a table with their deletion vectors."""
    return {LogicalFile(*file) for file in _paths_and_vectors(table)}


def hash_live(table: Table) -> int:
    """Return the hash of the live data files of a table."""
    return hash_files(_paths_and_vectors(table))


def _paths_and_vectors(table: Table) -> Iterator[tuple[str, str | None]]:
    for batch in table.file_batches(("vector",)):
        yield from zip(batch["path"].to_pylist(), batch["vector"].to_pylist(), strict=True)


def hash_files(files: Iterable[tuple[str, str | None]]) -> int:
    """Return a hash of a set of paths with deletion vectors: a sum, from which files can be subtracted."""
    names = (path if vector is None else f"{path}\0{vector}" for path, vector in files)
    hashes = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return sum(int.from_bytes(each) for each in hashes) % HASHES


def _replaces_all(commit: Commit) -> bool:
    """Return whether a commit replaced all data files of the table."""
    parameters = commit.info.get("operationParameters") or {}
    return bool(parameters.get("mode") == "Overwrite")
