"""Arrow layouts of the actions of a Delta log, and action reconciliation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from etl.parquet.data_file import DIGEST_TAG, UNITS_TAG

STRING_MAP = pa.map_(pa.string(), pa.string())


VECTOR: Final = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
"""The descriptor of a deletion vector (``etl.delta.deletion_vectors``)."""


ADD: Final = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": STRING_MAP,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
        "deletionVector": VECTOR,
        "tags": STRING_MAP,
    }
)
"""An ``add`` action: a live data file, of which a deletion vector may strike rows.

Of its tags, only TAGS are kept."""


TAGS: Final = (DIGEST_TAG, UNITS_TAG)
"""The tags of data files that are kept."""


REMOVE: Final = pa.struct(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "deletionVector": VECTOR,
    }
)
"""A ``remove`` action: the tombstone of a data file with its deletion vector."""


TXN: Final = pa.struct({"appId": pa.string(), "version": pa.int64()})
"""A ``txn`` action: an application transaction."""


LAYOUTS: Final[Mapping[str, pa.StructType]] = {"add": ADD, "remove": REMOVE, "txn": TXN}


def parse_actions(content: bytes, partition: Sequence[str]) -> pa.Table:
    """Return one row per action of a log entry, with at most one of add, remove and txn not null."""
    keys = {"partitionValues": partition, "tags": TAGS}
    maps = {name: pa.struct(dict.fromkeys(keys[name], pa.string())) for name in keys if keys[name]}
    fields = [field for field in ADD if field.name in maps or field.name not in keys]
    add = pa.struct([field.with_type(maps.get(field.name, field.type)) for field in fields])
    layout = pa.schema({**LAYOUTS, "add": add})
    actions = read_json(pa.py_buffer(content), layout)
    columns = {kind: actions[kind].combine_chunks() for kind in LAYOUTS}
    columns["add"] = _with_maps(columns["add"])
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def reconcile(
    actions: Sequence[pa.Table], *, by_path: bool = False
) -> Mapping[str, pa.StructArray]:
    """Return the last action of each data file and of each application transaction.

    A file is another one with another deletion vector, unless ``by_path``. Of live files with one path, the
    last one counts.
    """
    if not actions:
        return {kind: pa.nulls(0, layout) for kind, layout in LAYOUTS.items()}
    table = pa.concat_tables(actions)
    add, remove, txn = (table[kind].combine_chunks() for kind in LAYOUTS)
    last = _last_indices(pc.coalesce(*(file_keys(each, by_path=by_path) for each in (add, remove))))
    live, removed = add.take(last).drop_null(), remove.take(last).drop_null()
    return {
        "add": live.take(_last_indices(live.field("path"))),
        "remove": removed,
        "txn": txn.take(_last_indices(pc.struct_field(txn, "appId"))),
    }


def file_keys(actions: pa.StructArray, *, by_path: bool = False) -> pa.StringArray:
    """Return the identity of the data file of each add or remove action: its path and its vector's id.

    If a log has lost the entry that gave a file its last vector, a later ``remove`` names a file that the log
    does not have: there, ``by_path``, the file goes nevertheless.
    """
    paths, vectors = (pc.struct_field(actions, name) for name in ("path", "deletionVector"))
    if by_path or vectors.null_count == len(vectors):
        return paths
    kinds, names, offsets = (
        pc.struct_field(vectors, name).cast(pa.string())
        for name in ("storageType", "pathOrInlineDv", "offset")
    )
    offsets = pc.coalesce(_join("@", offsets), string_scalar(""))
    return pc.coalesce(_join(paths, "\0", kinds, names, offsets), paths)


def vector_strings(vectors: pa.StructArray) -> pa.StringArray:
    """Return descriptors of deletion vectors as canonical JSON; null for a null."""
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    fields = {f.name: pc.struct_field(vectors, f.name).cast(pa.string()) for f in VECTOR}
    name = fields["pathOrInlineDv"]
    for char in ("\\", '"'):
        name = pc.replace_substring(name, char, f"\\{char}")
    offset = pc.coalesce(_join(',"offset":', fields["offset"]), string_scalar(""))
    size = _join('"sizeInBytes":', fields["sizeInBytes"])
    start = _join('{"storageType":"', fields["storageType"], '","pathOrInlineDv":"', name, '"')
    return _join(start, offset, ",", size, ',"cardinality":', fields["cardinality"], "}")


def _join(*parts: pa.StringArray | str) -> pa.StringArray:
    """Concatenate strings element by element; null where one is null."""
    scalars = (string_scalar(part) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*scalars, string_scalar(""))


def as_actions(reconciled: Mapping[str, pa.StructArray]) -> list[pa.Table]:
    """Return what ``reconcile`` has returned as actions, so that it can be reconciled with later ones."""
    return [
        pa.Table.from_arrays(
            [reconciled[k] if k == kind else pa.nulls(len(rows), LAYOUTS[k]) for k in LAYOUTS],
            list(LAYOUTS),
        )
        for kind, rows in reconciled.items()
    ]


def at_paths(adds: pa.StructArray, paths: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the add actions of the files at some paths as Python objects."""
    wanted = pc.is_in(adds.field("path"), pa.array(sorted(paths), pa.string()))
    for add in adds.filter(wanted):
        yield add.as_py(maps_as_pydicts="strict")


def _last_indices(names: pa.Array) -> pa.Array:
    """Return the sorted indices of the last occurrence of each name; nulls are ignored."""
    encoded = names.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.int64)
    indices, codes = pc.indices_nonzero(encoded.is_valid()), encoded.indices.drop_null()
    # For a repeated code, numpy keeps the last assignment.
    last[to_numpy(codes, np.int32)] = to_numpy(indices, np.uint64)
    return to_arrow(np.sort(last))


def _with_maps(add: pa.StructArray) -> pa.StructArray:
    """Convert the partition values and tags of add actions from structs to maps, as in checkpoints."""
    fields = {field.name: pc.struct_field(add, field.name) for field in add.type}
    partition = fields.get("partitionValues", pa.nulls(len(add), pa.struct([])))
    fields |= {"partitionValues": _to_map(partition), "tags": _without_nulls(fields["tags"])}
    columns = [fields[field.name] for field in ADD]
    return pa.StructArray.from_arrays(columns, fields=list(ADD), mask=add.is_null())


def _to_map(structs: pa.StructArray) -> pa.MapArray:
    """Convert structs of strings to maps."""
    columns = [pc.struct_field(structs, field.name) for field in structs.type]
    count, width = len(structs), len(columns)
    nulls = pa.nulls(count, pa.string())
    keys = [pc.coalesce(nulls, string_scalar(field.name)) for field in structs.type]
    order = to_arrow(np.arange(count * width).reshape(width, count).T.ravel())  # row by row
    return pa.MapArray.from_arrays(
        to_arrow(np.arange(count + 1, dtype=np.int32) * np.int32(width)),
        *(pa.concat_arrays([nulls.slice(count), *part]).take(order) for part in (keys, columns)),
    )


def _without_nulls(structs: pa.StructArray) -> pa.MapArray:
    """Convert structs of strings to maps of the strings that are there; null if none is."""
    maps = _to_map(structs)
    is_known = maps.items.is_valid()
    known = to_numpy(is_known.cast(pa.int32()), np.int32)
    counts = known.reshape(len(maps), structs.type.num_fields).sum(axis=1, dtype=np.int32)
    bits = pa.py_buffer(np.packbits(counts == 0, bitorder="little"))
    return pa.MapArray.from_arrays(
        to_arrow(np.cumsum(np.append(np.int32(0), counts), dtype=np.int32)),
        maps.keys.filter(is_known),
        maps.items.filter(is_known),
        mask=pa.Array.from_buffers(pa.bool_(), len(maps), [None, bits]),
    )


def read_json(lines: pa.Buffer, layout: pa.Schema) -> pa.Table:
    """Parse lines of JSON into a table with the fields of a layout; other fields are ignored."""
    return pyarrow.json.read_json(
        pa.BufferReader(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.json.ParseOptions(layout, unexpected_field_behavior="ignore"),
    ).select(layout.names)


# The functions below replace pa.array(), pa.scalar() and np.asarray(), which import pandas: opening a table
# must not.


def string_scalar(value: str) -> pa.StringScalar:
    """Return a string as an Arrow scalar."""
    data = value.encode()
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def to_numpy(array: pa.Array, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """Return the values of an Arrow array without nulls."""
    values = np.frombuffer(array.buffers()[1], kind)
    return values[array.offset : array.offset + len(array)]


def to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Return a numpy array as an Arrow array."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
