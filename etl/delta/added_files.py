"""Find the data files at some paths in the log entries that first added them."""

import json
from collections.abc import Collection
from typing import Any

from etl.delta.data_file import DataFile
from etl.delta.log_segment import (
    list_log_files,
    raise_if_damaged,
    read_commit_files,
    version_of_commit_file,
)


def read_added_files(url: str, paths: Collection[str]) -> list[DataFile]:
    """Return the data files at some paths as they were first added, in the order of the log.

    Paths that no log entry adds are left out. Raises TableError if a log entry is damaged.
    """
    remaining = set(paths)
    names = [name for name in list_log_files(url) if version_of_commit_file(name) >= 0]
    found: list[DataFile] = []
    for name, content in zip(names, read_commit_files(url, names), strict=True):
        with raise_if_damaged(url, name):
            for line in content.splitlines() if remaining else ():
                add = json.loads(line).get("add") or {}
                if add.get("path") in remaining:
                    remaining.remove(add["path"])
                    found.append(_data_file(add))
    return found


def _data_file(add: dict[str, Any]) -> DataFile:
    statistics = add.get("stats") or ""
    rows = int(json.loads(statistics or "{}").get("numRecords", 0))
    return DataFile(add["path"], int(add["size"]), rows, add["partitionValues"], statistics)
