"""Restore a record of a vacuum: from its copy, or by the data files that still exist."""

from collections.abc import Iterator

from etl import storage
from etl.delta import deletion_vectors, vacuum_records
from etl.delta.log_segment import ranges
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.delta.vacuum_records import VacuumRecord
from etl.errors import TableError
from etl.lake.foreign_changes import live_files


def restore_record(table: Table, key: str) -> None:
    """Write a record of a vacuum and its copy again, of which one or both are damaged."""
    try:
        record = vacuum_records.read_record(table.url, key)
    except TableError:  # both are damaged
        versions = tuple(find_vacuumed_versions(table))
        record = VacuumRecord(
            key=key, host="", process=0, since="", files=0, versions=versions, is_decided=True
        )
    if record is not None:
        vacuum_records.write_record(table.url, record)


def find_vacuumed_versions(table: Table) -> list[tuple[int, int]]:
    """Return the ranges of versions of which data files are missing that the newest version does not need.

    Cost: one listing of the table, and one pass over its log.
    """
    folders = (table.url, storage.join(table.url, deletion_vectors.FOLDER))
    stored = {file.uri for folder in folders for file in storage.walk_files(folder)}
    needed = {path for file in live_files(table) for path in file.stored_paths}
    return ranges(_versions(table, stored, needed))


def _versions(table: Table, stored: set[str], needed: set[str]) -> Iterator[int]:
    missing: set[LogicalFile] = set()  # of the files that are live at the version
    for commit in table.commits():
        missing.difference_update(commit.remove)
        missing.update(
            file
            for file in commit.add
            for path in file.stored_paths
            if path not in needed and storage.join(table.url, path) not in stored
        )
        if missing:
            yield commit.version
