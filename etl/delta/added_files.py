"""Find the data files at some paths in the log entries that first added them, or in checkpoints."""

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.delta.actions import ADD
from etl.delta.checkpoint import read_actions
from etl.delta.log_segment import (
    find_checkpoints,
    list_log_files,
    log_folder,
    raise_if_damaged,
    read_commit_files,
    version_of_commit_file,
)
from etl.parquet.data_file import DIGEST_TAG, DataFile


def read_added_files(url: str, paths: Collection[str]) -> list[DataFile]:
    """Return the data files at some paths as they were first added, in the order of the log.

    Paths of lost entries come last, from checkpoints. Paths that are in neither are left out. Raises
    TableError if a file of the log is damaged.
    """
    remaining = set(paths)
    log = list_log_files(url)
    names = [name for name in log if version_of_commit_file(name) >= 0]
    found: list[DataFile] = []
    for name, content in zip(names, read_commit_files(url, names), strict=True):
        with raise_if_damaged(url, name):
            for line in content.splitlines() if remaining else ():
                add = json.loads(line).get("add") or {}
                if add.get("path") in remaining:
                    remaining.remove(add["path"])
                    found.append(_data_file(add))
    for parts in find_checkpoints(log).values():
        uris = [storage.join(log_folder(url), name) for name in parts]
        for batch in read_actions(uris, "add", ADD) if remaining else ():
            wanted = pc.is_in(batch.field("path"), pa.array(sorted(remaining), pa.string()))
            for add in batch.filter(wanted):
                found.append(_data_file(add.as_py(maps_as_pydicts="strict")))
                remaining.remove(found[-1].path)
    return found


def _data_file(add: dict[str, Any]) -> DataFile:
    statistics = add.get("stats") or ""
    rows = int(json.loads(statistics or "{}").get("numRecords", 0))
    digest = (add.get("tags") or {}).get(DIGEST_TAG)
    return DataFile(add["path"], int(add["size"]), rows, add["partitionValues"], statistics, digest)
