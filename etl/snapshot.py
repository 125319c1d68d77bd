"""A version of a Delta table as its log tells it: live data files, transactions, metadata.

delta-rs holds a kilobyte for each data file of an open table. Here only what came after the last checkpoint
is held, and all else is read when it is asked for.
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
_TRANSACTIONS = 1 << 19  # are taken in at a time


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at one version."""

    head: log.Head
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    # Since the checkpoint, of add, remove and txn: the last of each name.
    changes: Mapping[str, pa.StructArray]

    def transactions(self) -> Transactions:
        """All application transactions."""
        found, new = Transactions(), self.changes["txn"]
        for old in checkpoint.read(_parts(self.head), "txn", TXN, rows=_TRANSACTIONS):
            found.extend(old.field("appId"), old.field("version"))
        found.extend(new.field("appId"), new.field("version"))
        return found

    def files(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
        """The live data files, as ``Table.fragments`` says, in the order of the log.

        Raises TableError if what the log says of them cannot be read.
        """
        listed = partial(_listed, types=_types(schema, self.metadata), columns=columns)
        old = checkpoint.unchanged(_parts(self.head), "add", self.changes)
        try:
            return pa.concat_tables(map(listed, chain(old, [self.changes["add"]])))
        except ValueError as error:  # Arrow's are of this kind
            what = f"what its log says of data files is damaged ({said(error)})"
            raise TableError(what, where=self.head.url, hint="see `etl verify`") from error

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this version; raises WriteError if the log is not writable."""
        checkpoint.write(
            log.folder(self.head.url),
            self.head.version,
            before=_parts(self.head),
            protocol=self.protocol,
            metadata=self.metadata,
            changes=self.changes,
        )
        _give_back()


def read(head: log.Head) -> Snapshot:
    """Read what came after the last checkpoint, and the table's metadata.

    Raises TableError if the log is damaged, StorageError if it cannot be read.
    """
    kinds = ("metaData", "protocol")
    single = {kind: checkpoint.read_one(_parts(head), kind) or {} for kind in kinds}
    actions = []
    for name, content in zip(head.entries, log.contents(head.url, head.entries), strict=True):
        with log.damaged_if_raised(head.url, name):
            single |= {k: log.last_action(content, k) or found for k, found in single.items()}
            partition = single["metaData"].get("partitionColumns") or ()
            actions.append(_actions(content, partition))
    for kind, found in single.items():
        if not found:
            raise TableError(f"its log has no {kind}", where=head.url, hint="see `etl verify`")
    changes = _changes(actions)
    del actions
    _give_back()
    return Snapshot(head, single["metaData"], single["protocol"], changes)


def _parts(head: log.Head) -> list[str]:
    return [storage.join(log.folder(head.url), name) for name in head.checkpoint]


def _actions(content: bytes, partition: Sequence[str]) -> pa.Table:
    """The actions of an entry, a row each: ``add``, ``remove``, ``txn``, of which one or none is not null."""
    values = pa.field("partitionValues", pa.struct(dict.fromkeys(partition, pa.string())))
    fields = [values if field.name == values.name else field for field in ADD]
    add = pa.struct([field for field in fields if partition or field is not values])
    layout = pa.schema({**_LAYOUTS, "add": add})
    found = _read_json(pa.py_buffer(content), layout)
    columns = {kind: found[kind].combine_chunks() for kind in _LAYOUTS}
    columns["add"] = _with_map(columns["add"])
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _changes(actions: Sequence[pa.Table]) -> Mapping[str, pa.StructArray]:
    """The last action of each data file, and of each transaction, among those of entries."""
    if not actions:
        return {kind: pa.nulls(0, layout) for kind, layout in _LAYOUTS.items()}
    table = pa.concat_tables(actions)
    add, remove, txn = (table[kind].combine_chunks() for kind in _LAYOUTS)
    last = _last(pc.coalesce(pc.struct_field(add, "path"), pc.struct_field(remove, "path")))
    return {
        "add": add.take(last).drop_null(),
        "remove": remove.take(last).drop_null(),
        "txn": txn.take(_last(pc.struct_field(txn, "appId"))),
    }


def _last(names: pa.Array) -> pa.Array:
    """Where each name stands last; null is none."""
    encoded = names.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.int64)
    places, codes = pc.indices_nonzero(encoded.is_valid()), encoded.indices.drop_null()
    # Of equal names the last one stays.
    last[_numbers(codes, np.int32)] = _numbers(places, np.uint64)
    return _integers(np.sort(last))


def _with_map(add: pa.StructArray) -> pa.StructArray:
    """Added files with their partition values as a map, as checkpoints have them."""
    fields = {field.name: pc.struct_field(add, field.name) for field in add.type}
    values = fields.get("partitionValues", pa.nulls(len(add), pa.struct([])))
    columns = [pc.struct_field(values, field.name) for field in values.type]
    count, width = len(add), len(columns)
    texts = pa.nulls(count, pa.string())
    keys = [pc.coalesce(texts, _text(field.name)) for field in values.type]
    order = _integers(np.arange(count * width).reshape(width, count).T.ravel())
    fields["partitionValues"] = pa.MapArray.from_arrays(
        _integers(np.arange(count + 1, dtype=np.int32) * np.int32(width)),
        *(pa.concat_arrays([texts.slice(count), *found]).take(order) for found in (keys, columns)),
    )
    columns = [fields[field.name] for field in ADD]
    return pa.StructArray.from_arrays(columns, fields=list(ADD), mask=add.is_null())


def _types(schema: pa.Schema, metadata: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
    """What is told of each data file: ``path``, ``size``, ``rows``, ``partition.NAME``, ``min.NAME`` ..."""
    partition = list(metadata.get("partitionColumns") or ())
    known = (metadata.get("configuration") or {}).get("delta.dataSkippingStatsColumns")
    names = schema.names if known is None else known.split(",")
    fields = [schema.field(name) for name in names if name in schema.names]
    plain = [f for f in fields if f.name not in partition and any(is_(f.type) for is_ in _PLAIN)]
    found = {"path": pa.string(), "size": pa.int64(), "rows": pa.int64()}
    found |= {f"partition.{name}": pa.string() for name in partition}
    for kind in ("null_count", "min", "max"):
        found |= {f"{kind}.{f.name}": f.type if kind != "null_count" else pa.int64() for f in plain}
    return found


def _listed(
    add: pa.StructArray, *, types: Mapping[str, pa.DataType], columns: Sequence[str] | None
) -> pa.Table:
    """Added files as rows of a list, with the columns that are wanted."""
    wanted = types if columns is None else {"path", *columns}
    kept = {name: kind for name, kind in types.items() if name in wanted}
    statistics = _statistics(add.field("stats"), kept)
    found = []
    for name in kept:
        group, _, column = name.partition(".")
        if group == "partition":
            found.append(pc.map_lookup(add.field("partitionValues"), _text(column), "first"))
        elif group in ("path", "size"):
            found.append(add.field(group))
        else:
            values = statistics[_STATISTICS[group]]
            found.append(pc.struct_field(values, column) if column else values)
    return pa.Table.from_arrays(found, schema=pa.schema(kept))


def _statistics(texts: pa.StringArray, kept: Mapping[str, pa.DataType]) -> Mapping[str, pa.Array]:
    """What is wanted of the statistics of data files, which are JSON, by their names in it."""
    fields: dict[str, dict[str, pa.DataType]] = {}
    for name, kind in kept.items():
        group, _, column = name.partition(".")
        if group in _STATISTICS and column:
            fields.setdefault(_STATISTICS[group], {})[column] = kind
    layout = {name: pa.struct(types) for name, types in fields.items()}
    layout |= {_STATISTICS["rows"]: pa.int64()} if "rows" in kept else {}
    if not layout or not len(texts):
        return {name: pa.nulls(len(texts), kind) for name, kind in layout.items()}
    blank, none = _text(""), _text("{}")
    texts = pc.coalesce(texts, none)
    texts = pc.if_else(pc.equal(texts, blank), none, texts)
    lines = pc.binary_join_element_wise(texts, blank, _text("\n")).buffers()[2]
    table = _read_json(lines, pa.schema(layout))
    if table.num_rows != len(texts):
        raise ValueError("statistics in several lines")
    return {name: table[name].combine_chunks() for name in layout}


def _read_json(lines: pa.Buffer, layout: pa.Schema) -> pa.Table:
    """Lines of JSON with the fields of a layout, and no others."""
    return pyarrow.json.read_json(
        pa.BufferReader(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.json.ParseOptions(layout, unexpected_field_behavior="ignore"),
    ).select(layout.names)


def _give_back() -> None:
    """Give memory back that was needed for a moment: three times what is held."""
    pa.default_memory_pool().release_unused()


# pa.array(), pa.scalar() and np.asarray() would import pandas, which a training process has no need of.


def _text(value: str) -> pa.StringScalar:
    """Text as Arrow's."""
    data = value.encode()
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def _numbers(array: pa.Array, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """The values of an Arrow array without nulls."""
    found = np.frombuffer(array.buffers()[1], kind)
    return found[array.offset : array.offset + len(array)]


def _integers(values: npt.NDArray[Any]) -> pa.Array:
    """A numpy array as Arrow's."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
