"""Read and write classic checkpoints of a log, and decide when one is due."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from etl import storage
from etl.delta.actions import ADD, REMOVE, STRING_MAP, TXN, file_keys
from etl.delta.log_segment import LogSegment
from etl.delta.protocol import tombstone_retention_ms
from etl.errors import DamagedLogError, error_line
from etl.parquet.parquet_file import open_parquet, parquet_writer, read_footer

_BATCH_ROWS = 1 << 13
# A checkpoint is due after this many log entries (as in delta-rs) or bytes of them: opening a table reads
# them all, and the open table holds them in memory.
_MAX_ENTRIES = 100
_MAX_ENTRY_BYTES = 16 << 20
_MAX_OPENED_BYTES = 16 << 20

_METADATA = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": STRING_MAP}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "createdTime": pa.int64(),
        "configuration": STRING_MAP,
    }
)

_PROTOCOL = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }
)

_SCHEMA = pa.schema(
    {"protocol": _PROTOCOL, "metaData": _METADATA, "txn": TXN, "add": ADD, "remove": REMOVE}
)

_VERSION = b"version"  # key of the file's own metadata

_KINDS = ("add", "remove", "txn")  # that are reconciled


def is_due(head: LogSegment) -> bool:
    """Return whether a log segment has so many entries that a checkpoint should replace them."""
    return len(head.entries) >= _MAX_ENTRIES or head.size >= _MAX_ENTRY_BYTES


def read_actions(
    parts: Iterable[str], kind: str, layout: pa.StructType, *, rows: int = _BATCH_ROWS
) -> Iterator[pa.StructArray]:
    """Yield the actions of one kind in the files of a checkpoint (URIs), in batches, as structs.

    Raises DamagedLogError if a file cannot be read.
    """
    for uri in parts:
        for batch in _batches(uri, [kind], rows):
            if kind in batch.schema.names:
                actions = _conform(batch[kind], layout)
                yield actions.filter(actions.is_valid())


def unchanged_actions(
    parts: Iterable[str],
    kind: str,
    changes: Mapping[str, pa.StructArray],
    *,
    by_path: bool = False,
) -> Iterator[pa.StructArray]:
    """Yield the actions of one kind in the files of a checkpoint that no later action supersedes.

    ``changes`` has the reconciled actions since the checkpoint: ``add``, ``remove`` and ``txn``. ``by_path``
    is as in ``reconcile``.
    """

    def keys(actions: pa.StructArray) -> pa.StringArray:
        return actions.field("appId") if kind == "txn" else file_keys(actions, by_path=by_path)

    kinds = ("txn",) if kind == "txn" else ("add", "remove")
    changed = pa.concat_arrays([keys(changes[each]) for each in kinds])
    for old in read_actions(parts, kind, _SCHEMA.field(kind).type):
        superseded = pc.is_in(keys(old), changed)
        if kind == "add":  # also by the same file with another deletion vector
            is_added = pc.is_in(old.field("path"), changes["add"].field("path"))
            superseded = pc.or_(superseded, is_added)
        yield old.filter(pc.invert(superseded))


def read_single_action(parts: Iterable[str], kind: str) -> dict[str, Any] | None:
    """Return the only action of its kind, ``metaData`` or ``protocol``, or None."""
    for uri in parts:
        for batch in _batches(uri, [kind], _BATCH_ROWS):
            for scalar in batch[kind].drop_null() if kind in batch.schema.names else ():
                action = scalar.as_py(maps_as_pydicts="strict")
                return {name: value for name, value in action.items() if value is not None}
    return None


def find_problem(uri: str, version: int, table_id: object) -> str | None:
    """Return what is wrong with a file of the checkpoint of a version; None if nothing is.

    All pages are read; delta-rs, which checks footers more strictly than Arrow, opens a file of up to 16 MB,
    about 100,000 data files, of which it holds a kilobyte each. ``table_id`` is the id in the table's
    metadata; None: unknown. Raises DamagedLogError if the file cannot be read.
    """
    metadata = None
    for batch in _batches(uri, None, _BATCH_ROWS):
        if "metaData" in batch.schema.names:
            metadata = next(iter(batch["metaData"].drop_null().to_pylist()), metadata)
    if refusal := _find_refusal(uri, version):
        return refusal
    if metadata is not None and table_id not in (None, metadata.get("id")):
        return "is that of another table"
    with storage.open_input(uri) as file:
        written = (read_footer(file).metadata or {}).get(_VERSION)
    # Other programs do not write this key: their checkpoints have no version to compare.
    if written not in (None, str(version).encode()):
        return f"is that of version {written.decode()}"
    return None


def _find_refusal(uri: str, version: int) -> str | None:
    """Return why delta-rs refuses a checkpoint in one file; alone, since the log may have other damage."""
    name = f"{version:020}.checkpoint.parquet"
    if not uri.endswith(f"/{name}") or (storage.file_size(uri) or 0) > _MAX_OPENED_BYTES:
        return None
    # delta-rs opens tables, not files: a table whose log has only this checkpoint.
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        with storage.open_input(uri) as file:
            (log / name).write_bytes(file.read())
        try:
            deltalake.DeltaTable(folder)
        except DeltaError as error:
            return f"cannot be read by delta-rs ({error_line(error)})"
    return None


def write_checkpoint(
    log: str,
    version: int,
    *,
    before: Sequence[str],
    state: Mapping[str, Mapping[str, Any]],
    changes: Mapping[str, pa.StructArray],
    by_path: bool = False,
) -> None:
    """Write the checkpoint of a version to the folder of a log, and point ``_last_checkpoint`` to it.

    ``before`` lists the files of an older checkpoint; ``state`` has the ``protocol`` and the ``metaData``;
    ``changes`` has the reconciled actions since then: ``add``, ``remove`` and ``txn``. ``by_path`` is as in
    ``reconcile``. Tombstones older than the table's retention are left out. Raises WriteError if the log is
    not writable, TableError if the retention is not an interval.
    """
    uri = storage.join(log, f"{version:020}.checkpoint.parquet")
    retention_ms = tombstone_retention_ms(log, state["metaData"])
    num_actions = num_files = 0
    with (
        storage.convert_write_errors(uri),
        storage.open_atomic_output(uri) as file,
        parquet_writer(file, _SCHEMA) as writer,
    ):
        # A row of a checkpoint has one action: the columns of the other kinds are null.
        def put(kind: str, actions: pa.StructArray) -> None:
            nonlocal num_actions, num_files
            count = len(actions)
            columns = [actions if f.name == kind else pa.nulls(count, f.type) for f in _SCHEMA]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
            num_actions += count
            num_files += count if kind == "add" else 0

        writer.add_key_value_metadata({_VERSION.decode(): str(version)})
        put("protocol", pa.array([state["protocol"]], _PROTOCOL))
        put("metaData", pa.array([state["metaData"]], _METADATA))
        for kind in _KINDS:
            # Old actions are copied in batches: memory depends on the entries since the last checkpoint,
            # not on the table.
            for old in unchanged_actions(before, kind, changes, by_path=by_path):
                put(kind, _unexpired(old, retention_ms) if kind == "remove" else old)
            put(kind, changes[kind])
    # Last, since readers trust the pointer: without it, they find the checkpoint by listing the log.
    pointer = {"version": version, "size": num_actions, "numOfAddFiles": num_files}
    storage.write_bytes(storage.join(log, "_last_checkpoint"), json.dumps(pointer).encode())


def _unexpired(tombstones: pa.StructArray, retention_ms: int) -> pa.StructArray:
    """Return the tombstones that are within the retention period."""
    oldest = pa.scalar(max(int(time.time() * 1000) - retention_ms, 0))
    return tombstones.filter(pc.greater(tombstones.field("deletionTimestamp"), oldest))


def _batches(uri: str, columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
    try:
        with storage.open_input(uri) as file:
            parquet = open_parquet(file, pre_buffer=False, buffer_size=1 << 20)
            yield from parquet.iter_batches(rows, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one: of names
        raise DamagedLogError(
            f"a checkpoint cannot be read ({error_line(error)})",
            where=uri,
            hint="delete it: the log entries have the same content",
        ) from error


def _conform(structs: pa.StructArray, layout: pa.StructType) -> pa.StructArray:
    """Convert structs to a layout; missing fields become null."""
    if structs.type == layout:
        return structs
    existing = {field.name for field in structs.type}
    fields = [
        _conform_field(pc.struct_field(structs, field.name), field.type)
        if field.name in existing
        else pa.nulls(len(structs), field.type)
        for field in layout
    ]
    return pa.StructArray.from_arrays(fields, fields=list(layout), mask=structs.is_null())


def _conform_field(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return _conform(values, kind) if pa.types.is_struct(kind) else values.cast(kind)
