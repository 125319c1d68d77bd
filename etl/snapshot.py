"""Snapshots of a Delta table: live data files, transactions and metadata at one version.

delta-rs holds a kilobyte per data file of an open table. A snapshot holds only the actions since the last
checkpoint, and reads the rest on demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from etl import checkpoint, log, storage
from etl.checkpoint import ADD, REMOVE, TXN
from etl.errors import TableError, said
from etl.transactions import Transactions

_LAYOUTS: Final[Mapping[str, pa.StructType]] = {"add": ADD, "remove": REMOVE, "txn": TXN}
_STATISTICS = {
    "rows": "numRecords", "null_count": "nullCount", "min": "minValues", "max": "maxValues"
}  # fmt: skip
_PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_TRANSACTION_ROWS = 1 << 19  # read at a time


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at one version."""

    head: log.Head
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    # Reconciled add, remove and txn actions since the checkpoint: the last one of each path or appId.
    changes: Mapping[str, pa.StructArray]

    def transactions(self) -> Transactions:
        """Return all application transactions."""
        transactions = Transactions()
        old = checkpoint.read(_checkpoint_files(self.head), "txn", TXN, rows=_TRANSACTION_ROWS)
        for txn in chain(old, [self.changes["txn"]]):
            transactions.extend(txn.field("appId"), txn.field("version"))
        return transactions

    def files(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live data files with the columns of ``Table.fragments``, in the order of the log.

        Raises TableError if their statistics cannot be parsed.
        """
        to_table = partial(_file_table, types=_column_types(schema, self.metadata), columns=columns)
        old = checkpoint.unchanged(_checkpoint_files(self.head), "add", self.changes)
        try:
            return pa.concat_tables(map(to_table, chain(old, [self.changes["add"]])))
        except ValueError as error:  # Arrow's errors are ValueErrors
            what = f"the statistics of data files in the log are damaged ({said(error)})"
            raise TableError(what, where=self.head.url, hint="see `etl verify`") from error

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this version; raises WriteError if the log is not writable."""
        checkpoint.write(
            log.folder(self.head.url),
            self.head.version,
            before=_checkpoint_files(self.head),
            protocol=self.protocol,
            metadata=self.metadata,
            changes=self.changes,
        )
        _release_memory()


def read(head: log.Head) -> Snapshot:
    """Read the actions since the last checkpoint, and the table's metadata and protocol.

    Raises TableError if the log is damaged, StorageError if it cannot be read.
    """
    kinds = ("metaData", "protocol")
    single = {kind: checkpoint.read_one(_checkpoint_files(head), kind) or {} for kind in kinds}
    actions = []
    for name, content in zip(head.entries, log.contents(head.url, head.entries), strict=True):
        with log.damaged_if_raised(head.url, name):
            single |= {k: log.last_action(content, k) or old for k, old in single.items()}
            partition = single["metaData"].get("partitionColumns") or ()
            actions.append(_parse_actions(content, partition))
    for kind, action in single.items():
        if not action:
            raise TableError(f"the log has no {kind}", where=head.url, hint="see `etl verify`")
    changes = _reconcile(actions)
    del actions
    _release_memory()
    return Snapshot(head, single["metaData"], single["protocol"], changes)


def _checkpoint_files(head: log.Head) -> list[str]:
    return [storage.join(log.folder(head.url), name) for name in head.checkpoint]


def _parse_actions(content: bytes, partition: Sequence[str]) -> pa.Table:
    """Return one row per action of a log entry, with at most one of add, remove and txn not null."""
    values = pa.field("partitionValues", pa.struct(dict.fromkeys(partition, pa.string())))
    fields = [values if field.name == values.name else field for field in ADD]
    add = pa.struct([field for field in fields if partition or field is not values])
    layout = pa.schema({**_LAYOUTS, "add": add})
    actions = _read_json(pa.py_buffer(content), layout)
    columns = {kind: actions[kind].combine_chunks() for kind in _LAYOUTS}
    columns["add"] = _with_partition_map(columns["add"])
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _reconcile(actions: Sequence[pa.Table]) -> Mapping[str, pa.StructArray]:
    """Return the last action of each data file and of each application transaction."""
    if not actions:
        return {kind: pa.nulls(0, layout) for kind, layout in _LAYOUTS.items()}
    table = pa.concat_tables(actions)
    add, remove, txn = (table[kind].combine_chunks() for kind in _LAYOUTS)
    last = _last_indices(pc.coalesce(pc.struct_field(add, "path"), pc.struct_field(remove, "path")))
    return {
        "add": add.take(last).drop_null(),
        "remove": remove.take(last).drop_null(),
        "txn": txn.take(_last_indices(pc.struct_field(txn, "appId"))),
    }


def _last_indices(names: pa.Array) -> pa.Array:
    """Return the sorted indices of the last occurrence of each name; nulls are ignored."""
    encoded = names.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.int64)
    indices, codes = pc.indices_nonzero(encoded.is_valid()), encoded.indices.drop_null()
    # For a repeated code, numpy keeps the last assignment.
    last[_to_numpy(codes, np.int32)] = _to_numpy(indices, np.uint64)
    return _to_arrow(np.sort(last))


def _with_partition_map(add: pa.StructArray) -> pa.StructArray:
    """Convert the partition values of add actions from structs to maps, as in checkpoints."""
    fields = {field.name: pc.struct_field(add, field.name) for field in add.type}
    values = fields.get("partitionValues", pa.nulls(len(add), pa.struct([])))
    columns = [pc.struct_field(values, field.name) for field in values.type]
    count, width = len(add), len(columns)
    nulls = pa.nulls(count, pa.string())
    keys = [pc.coalesce(nulls, _string(field.name)) for field in values.type]
    order = _to_arrow(np.arange(count * width).reshape(width, count).T.ravel())  # row by row
    fields["partitionValues"] = pa.MapArray.from_arrays(
        _to_arrow(np.arange(count + 1, dtype=np.int32) * np.int32(width)),
        *(pa.concat_arrays([nulls.slice(count), *part]).take(order) for part in (keys, columns)),
    )
    columns = [fields[field.name] for field in ADD]
    return pa.StructArray.from_arrays(columns, fields=list(ADD), mask=add.is_null())


def _column_types(schema: pa.Schema, metadata: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
    """Return the columns of the file list: ``path``, ``size``, ``rows``, ``partition.NAME`` and so on."""
    partition = list(metadata.get("partitionColumns") or ())
    configured = (metadata.get("configuration") or {}).get("delta.dataSkippingStatsColumns")
    names = schema.names if configured is None else configured.split(",")
    fields = [schema.field(name) for name in names if name in schema.names]
    plain = [f for f in fields if f.name not in partition and any(is_(f.type) for is_ in _PLAIN)]
    types = {"path": pa.string(), "size": pa.int64(), "rows": pa.int64()}
    types |= {f"partition.{name}": pa.string() for name in partition}
    for kind in ("null_count", "min", "max"):
        types |= {f"{kind}.{f.name}": f.type if kind != "null_count" else pa.int64() for f in plain}
    return types


def _file_table(
    add: pa.StructArray, *, types: Mapping[str, pa.DataType], columns: Sequence[str] | None
) -> pa.Table:
    """Return one row per add action, with the given columns or all of them."""
    wanted = types if columns is None else {"path", *columns}
    selected = {name: kind for name, kind in types.items() if name in wanted}
    statistics = _parse_statistics(add.field("stats"), selected)
    arrays = []
    for name in selected:
        group, _, column = name.partition(".")
        if group == "partition":
            arrays.append(pc.map_lookup(add.field("partitionValues"), _string(column), "first"))
        elif group in ("path", "size"):
            arrays.append(add.field(group))
        else:
            values = statistics[_STATISTICS[group]]
            arrays.append(pc.struct_field(values, column) if column else values)
    return pa.Table.from_arrays(arrays, schema=pa.schema(selected))


def _parse_statistics(
    stats: pa.StringArray, selected: Mapping[str, pa.DataType]
) -> Mapping[str, pa.Array]:
    """Return the selected fields of the JSON statistics of data files, by their names in the JSON."""
    fields: dict[str, dict[str, pa.DataType]] = {}
    for name, kind in selected.items():
        group, _, column = name.partition(".")
        if group in _STATISTICS and column:
            fields.setdefault(_STATISTICS[group], {})[column] = kind
    layout = {name: pa.struct(types) for name, types in fields.items()}
    layout |= {_STATISTICS["rows"]: pa.int64()} if "rows" in selected else {}
    if not layout or not len(stats):
        return {name: pa.nulls(len(stats), kind) for name, kind in layout.items()}
    blank, no_stats = _string(""), _string("{}")
    stats = pc.coalesce(stats, no_stats)
    stats = pc.if_else(pc.equal(stats, blank), no_stats, stats)
    lines = pc.binary_join_element_wise(stats, blank, _string("\n")).buffers()[2]
    table = _read_json(lines, pa.schema(layout))
    if table.num_rows != len(stats):
        raise ValueError("the statistics of a data file are not one JSON object")
    return {name: table[name].combine_chunks() for name in layout}


def _read_json(lines: pa.Buffer, layout: pa.Schema) -> pa.Table:
    """Parse lines of JSON into a table with the fields of a layout; other fields are ignored."""
    return pyarrow.json.read_json(
        pa.BufferReader(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.json.ParseOptions(layout, unexpected_field_behavior="ignore"),
    ).select(layout.names)


def _release_memory() -> None:
    """Return unused memory to the operating system: parsing needs three times the memory it keeps."""
    pa.default_memory_pool().release_unused()


# The functions below replace pa.array(), pa.scalar() and np.asarray(), which import pandas: a training
# process does not need it.


def _string(value: str) -> pa.StringScalar:
    """Return a string as an Arrow scalar."""
    data = value.encode()
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def _to_numpy(array: pa.Array, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """Return the values of an Arrow array without nulls."""
    values = np.frombuffer(array.buffers()[1], kind)
    return values[array.offset : array.offset + len(array)]


def _to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Return a numpy array as an Arrow array."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
