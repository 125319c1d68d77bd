"""Checkpoints of a Delta log: all that stands at a version, in one Parquet file that is quickly read.

A new one is the one before it, without what has changed since, and what has come since. It is written a
batch of rows at a time, so that a table of a million data files needs no more memory than a small one.

The format is that of the Delta protocol's classic checkpoints
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints), which every reader knows.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.errors import TableError, said

_BATCH_ROWS = 1 << 16
# What was taken away is told so long: the protocol's delta.deletedFileRetentionDuration, by default.
_TOMBSTONES_MS = 7 * 24 * 3600 * 1000
_TEXTS = pa.map_(pa.string(), pa.string())

ADD: Final = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
    }
)
"""A data file of the table."""
REMOVE: Final = pa.struct(
    {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
)
"""A data file that was taken away."""
TXN: Final = pa.struct({"appId": pa.string(), "version": pa.int64()})
"""An application transaction."""
_METADATA = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "createdTime": pa.int64(),
        "configuration": _TEXTS,
    }
)
_PROTOCOL = pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()})
_SCHEMA = pa.schema(
    {"protocol": _PROTOCOL, "metaData": _METADATA, "txn": TXN, "add": ADD, "remove": REMOVE}
)
_NAMES = {"add": "path", "remove": "path", "txn": "appId"}


def read(
    parts: Iterable[str], kind: str, layout: pa.StructType, *, rows: int = _BATCH_ROWS
) -> Iterator[pa.StructArray]:
    """The actions of one kind in the files of a checkpoint (URIs), as structs of a layout, in batches.

    Raises TableError if a file cannot be read.
    """
    for uri in parts:
        for batch in _batches(uri, [kind], rows):
            if kind in batch.schema.names:
                found = _conformed(batch[kind], layout)
                yield found.filter(found.is_valid())


def unchanged(
    parts: Iterable[str], kind: str, changes: Mapping[str, pa.StructArray]
) -> Iterator[pa.StructArray]:
    """The actions of one kind in the files of a checkpoint, less those of names that have changed since.

    ``changes`` are the last actions of these names: of ``add``, ``remove`` and ``txn``.
    """
    name = _NAMES[kind]
    kinds = [other for other in _NAMES if _NAMES[other] == name]
    changed = pa.concat_arrays([changes[other].field(name) for other in kinds])
    for old in read(parts, kind, _SCHEMA.field(kind).type):
        yield old.filter(pc.invert(pc.is_in(old.field(name), changed)))


def read_one(parts: Iterable[str], kind: str) -> dict[str, Any] | None:
    """The one action of its kind: ``metaData`` or ``protocol``; None if there is none."""
    for uri in parts:
        for batch in _batches(uri, [kind], _BATCH_ROWS):
            for found in batch[kind].drop_null() if kind in batch.schema.names else ():
                action = found.as_py(maps_as_pydicts="strict")
                return {name: value for name, value in action.items() if value is not None}
    return None


def write(
    log: str,
    version: int,
    *,
    before: Sequence[str],
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    changes: Mapping[str, pa.StructArray],
) -> None:
    """Write the checkpoint of a version into the folder of a log, and name it the last.

    ``before`` are the files of an older one; ``changes`` are what has come since: of ``add``, ``remove`` and
    ``txn``, for each name its last action. Raises WriteError if the place is not writable.
    """
    uri = storage.join(log, f"{version:020}.checkpoint.parquet")
    actions = files = 0
    with (
        storage.writing(uri),
        storage.open_whole(uri) as file,
        pq.ParquetWriter(file, _SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):

        def put(kind: str, found: pa.StructArray) -> None:
            nonlocal actions, files
            columns = [found if f.name == kind else pa.nulls(len(found), f.type) for f in _SCHEMA]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
            actions += len(found)
            files += len(found) if kind == "add" else 0

        put("protocol", pa.array([protocol], _PROTOCOL))
        put("metaData", pa.array([metadata], _METADATA))
        for kind in _NAMES:
            for old in unchanged(before, kind, changes):
                put(kind, _still_told(old) if kind == "remove" else old)
            put(kind, changes[kind])
    pointer = {"version": version, "size": actions, "numOfAddFiles": files}
    storage.write(storage.join(log, "_last_checkpoint"), json.dumps(pointer).encode())


def _still_told(removed: pa.StructArray) -> pa.StructArray:
    """Data files that were taken away lately."""
    expired = pa.scalar(int(time.time() * 1000) - _TOMBSTONES_MS)
    return removed.filter(pc.greater(removed.field("deletionTimestamp"), expired))


def _batches(uri: str, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    try:
        with storage.open_input(uri) as file:
            parquet = pq.ParquetFile(
                file, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
            )
            yield from parquet.iter_batches(rows, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"a checkpoint cannot be read ({said(error)})",
            where=uri,
            hint="delete it: the log's entries are enough",
        ) from error


def _conformed(found: pa.StructArray, layout: pa.StructType) -> pa.StructArray:
    """Structs with the fields of a layout: null where they lack one."""
    if found.type == layout:
        return found
    there = {field.name for field in found.type}
    fields = [
        pc.struct_field(found, field.name).cast(field.type)
        if field.name in there
        else pa.nulls(len(found), field.type)
        for field in layout
    ]
    return pa.StructArray.from_arrays(fields, fields=list(layout), mask=found.is_null())
