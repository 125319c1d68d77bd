"""Find the versions of a table of which a vacuum has deleted data files, by the files that still exist."""

from collections.abc import Iterator

from etl import storage
from etl.delta.log_segment import ranges
from etl.delta.table import Table


def find_vacuumed_versions(table: Table) -> list[tuple[int, int]]:
    """Return the ranges of versions of which data files are missing that the newest version does not need.

    Cost: one listing of the table, and one pass over its log.
    """
    stored = {file.uri for file in storage.walk_files(table.url)}
    needed = {file["path"] for file in table.files("path", by=())}
    return ranges(_versions(table, stored, needed))


def _versions(table: Table, stored: set[str], needed: set[str]) -> Iterator[int]:
    missing: set[str] = set()  # of the files that are live at the version
    for commit in table.commits():
        missing.difference_update(commit.remove)
        missing.update(
            path
            for path in commit.add
            if path not in needed and storage.join(table.url, path) not in stored
        )
        if missing:
            yield commit.version
