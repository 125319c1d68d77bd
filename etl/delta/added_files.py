"""Find data files in the log entries that first added them, or in checkpoints."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from etl import storage
from etl.delta.actions import ADD, at_paths
from etl.delta.checkpoint import read_actions
from etl.delta.deletion_vectors import to_json
from etl.delta.log_segment import (
    find_checkpoints,
    list_log_files,
    log_folder,
    raise_if_damaged,
    read_commit_files,
    version_of_commit_file,
)
from etl.delta.logical_file import LogicalFile
from etl.parquet.data_file import DIGEST_TAG, UNITS_TAG, DataFile


def read_added_files(url: str, files: Collection[LogicalFile]) -> list[DataFile]:
    """Return data files with their deletion vectors as they were first added, in the order of the log.

    Files of lost entries come last, from checkpoints. Files that are in neither are left out. Raises
    TableError if a file of the log is damaged.
    """
    remaining = set(files)
    log = list_log_files(url)
    names = [name for name in log if version_of_commit_file(name) >= 0]
    found: list[DataFile] = []

    def take(add: Mapping[str, Any]) -> None:
        file = data_file(add)
        if (logical := LogicalFile(file.path, file.vector)) in remaining:
            remaining.remove(logical)
            found.append(file)

    paths = {file.path for file in files}
    for name, content in zip(names, read_commit_files(url, names), strict=True):
        with raise_if_damaged(url, name):
            for line in content.splitlines() if remaining else ():
                add = json.loads(line).get("add") or {}
                if add.get("path") in paths:
                    take(add)
    for parts in find_checkpoints(log).values():
        uris = [storage.join(log_folder(url), name) for name in parts]
        for batch in read_actions(uris, "add", ADD) if remaining else ():
            for add in at_paths(batch, {file.path for file in remaining}):
                take(add)
    return found


def is_stored(url: str, file: DataFile) -> bool:
    """Return whether a data file of a table exists, and the file with its deletion vector."""
    paths = LogicalFile(file.path, file.vector).stored_paths
    return all(storage.file_size(storage.join(url, path)) is not None for path in paths)


def data_file(add: Mapping[str, Any]) -> DataFile:
    """Return the data file of an add action."""
    statistics, vector = add.get("stats") or "", add.get("deletionVector")
    tags = add.get("tags") or {}
    rows = int(json.loads(statistics or "{}").get("numRecords", 0))
    return DataFile(
        add["path"],
        int(add["size"]),
        rows,
        add["partitionValues"],
        statistics,
        vector=None if vector is None else to_json(vector),
        digest=tags.get(DIGEST_TAG),
        units=tags.get(UNITS_TAG),
    )
