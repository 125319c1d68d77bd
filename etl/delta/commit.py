"""Commit to a table: a compare-and-swap on the head of its log.

A commit creates the next log entry only if that does not exist, and so it succeeds only if there was no other
commit since the table was opened. Its cost depends on what it adds and removes, not on the size of the table.
"""

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deltalake
import pyarrow as pa

from etl import storage
from etl.delta.entry_checksum import digest, seal
from etl.delta.log_segment import LogSegment, commit_file_name, log_folder
from etl.delta.protocol import with_vectors
from etl.errors import ConflictError, StorageError, TableError
from etl.parquet.data_file import DIGEST_TAG, UNITS_TAG, DataFile
from etl.parquet.layout import Layout

_THREADS = 16  # they wait for storage
_CONFIGURATION: Mapping[str, str] = {
    # The log is the table's history: keep it for years. Only the owner decides to delete it.
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


def write_commit(head: LogSegment, actions: Iterable[Mapping[str, Any]]) -> LogSegment:
    """Create the log entry after a segment from the actions of a commit; return the segment with it.

    Raises ConflictError if the entry exists, WriteError if the log is not writable.
    """
    version = head.version + 1
    table = head.url.rpartition("/")[2]
    entry = seal(actions, table=table, version=version, previous=_digest_of(head))
    uri = storage.join(log_folder(head.url), commit_file_name(version))
    if not storage.create_if_absent(uri, entry):
        raise ConflictError("another commit came first", where=head.url)
    return head.after(len(entry), digest(entry))


def _digest_of(head: LogSegment) -> str:
    """Return the digest of the newest entry of a segment; empty if there is none."""
    if head.digest is not None:
        return head.digest
    uri = storage.join(log_folder(head.url), commit_file_name(head.version))
    content = storage.read_bytes(uri) if head.version >= 0 else None
    return "" if content is None else digest(content)


def creation_actions(
    name: str, schema: pa.Schema, layout: Layout, *, transactions: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the actions of version 0: an empty table that every Delta reader and writer can open.

    Raises TableError as ``metadata_fields`` does.
    """
    table = creation_metadata(name, schema, layout)
    now = table["metaData"]["createdTime"]
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": {}}
    yield {"commitInfo": {**info, "commit": uuid.uuid4().hex}}
    yield from ({kind: action} for kind, action in table.items())
    yield from _txn_actions(transactions)


def creation_metadata(name: str, schema: pa.Schema, layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the ``protocol`` and the ``metaData`` of a new table; raise as ``metadata_fields`` does."""
    metadata = {
        "id": str(uuid.uuid4()),
        "name": name,
        "format": {"provider": "parquet", "options": {}},
        "createdTime": int(time.time() * 1000),
        **metadata_fields(schema, layout),
    }
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metaData": metadata}


def commit_actions(
    add: Sequence[DataFile],
    *,
    remove: Mapping[str, str | None],
    transactions: Mapping[str, int],
    commit_info: Mapping[str, Any],
    state: Mapping[str, Mapping[str, Any]],
    data_change: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit; ``state`` has the ``protocol`` and ``metaData`` that it states.

    ``remove`` has the deletion vectors of the files to remove by path. A file may be added again with another
    one: some readers go through an entry line by line, so it is removed first. A file that is added again
    with the same one stays as it is: an entry with both actions means that it is gone, to most readers.
    """
    now = int(time.time() * 1000)
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        **commit_info,
        "commit": uuid.uuid4().hex,  # makes each entry unique, see storage.create_if_absent
    }
    yield {"commitInfo": info}
    yield from ({kind: action} for kind, action in state.items())
    yield from _txn_actions(transactions)
    unchanged = remove.items() & {(file.path, file.vector) for file in add}
    for path, vector in remove.items():
        if (path, vector) not in unchanged:
            removed = {"path": path, "deletionTimestamp": now, "dataChange": data_change}
            yield {"remove": {**removed, **_vector_field(vector)}}
    for file in add:
        if (file.path, file.vector) in unchanged:
            continue
        yield {"add": {**_file_fields(file), "modificationTime": now, "dataChange": data_change}}


def check_written(url: str, files: Sequence[DataFile]) -> None:
    """Raise StorageError if a data file is missing or does not have the size that was written."""
    uris = [storage.join(url, file.path) for file in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        sizes = list(pool.map(storage.file_size, uris))
    for file, uri, size in zip(files, uris, sizes, strict=True):
        if size != file.size:
            state = "is missing" if size is None else f"has {size} bytes"
            raise StorageError(
                f"a data file {state}, but {file.size} bytes were written",
                where=uri,
                hint="write the file again: nothing was committed",
            )


def metadata_fields(schema: pa.Schema, layout: Layout) -> dict[str, Any]:
    """Return the fields of ``metaData`` that depend on the schema and the layout.

    Raises TableError if a column is a timestamp without a time zone, which requires a table feature.
    """
    schema_string = deltalake.Schema.from_arrow(schema).to_json()
    if re.search('[tT]ype": ?"timestamp_ntz"', schema_string):
        raise TableError(
            "the schema has a timestamp without a time zone, which plain Delta readers do not know",
            hint="convert the column to UTC",
        )
    statistics = ",".join(name for name in layout.statistics if name in schema.names)
    return {
        "schemaString": schema_string,
        "partitionColumns": list(layout.partition_by),
        "configuration": {**_CONFIGURATION, "delta.dataSkippingStatsColumns": statistics},
    }


def next_state(
    state: Mapping[str, Mapping[str, Any]],
    add: Iterable[DataFile],
    overwrite: tuple[pa.Schema, Layout] | None,
) -> dict[str, Mapping[str, Any]]:
    """Return the ``protocol`` and the ``metaData`` of a table after a commit.

    Only the first deletion vector requires a protocol that old readers do not know.
    """
    state = dict(state)
    if overwrite is not None:
        state["metaData"] = {**state["metaData"], **metadata_fields(*overwrite)}
    return with_vectors(state) if any(file.vector is not None for file in add) else state


def _txn_actions(transactions: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, version in transactions.items():
        yield {"txn": {"appId": name, "version": version}}


def _file_fields(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": dict(file.partition),
        "size": file.size,
        # An empty string is not valid JSON: delta-rs would ignore the statistics of other files, too.
        "stats": file.statistics or None,
        **_vector_field(file.vector),
        **_tags_field({DIGEST_TAG: file.digest, UNITS_TAG: file.units}),
    }


def _tags_field(tags: Mapping[str, str | None]) -> dict[str, Any]:
    known = {name: value for name, value in tags.items() if value is not None}
    return {"tags": known} if known else {}


def _vector_field(vector: str | None) -> dict[str, Any]:
    return {} if vector is None else {"deletionVector": json.loads(vector)}
