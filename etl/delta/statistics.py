"""Parse the statistics of data files in the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.actions import read_json, string_scalar, vector_strings
from etl.parquet.data_file import DIGEST_TAG, UNITS_TAG

_NUM_RECORDS = "numRecords"
_STATISTICS = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}
_ROWS = ("rows", "physical_rows")
_TAGS = {"digest": DIGEST_TAG, "units": UNITS_TAG}


_PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


def column_types(schema: pa.Schema, metadata: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
    """Return the columns of the file list, which ``Table.data_files`` describes."""
    partition = list(metadata.get("partitionColumns") or ())
    configured = (metadata.get("configuration") or {}).get("delta.dataSkippingStatsColumns")
    names = schema.names if configured is None else configured.split(",")
    fields = [schema.field(name) for name in names if name in schema.names]
    plain = [f for f in fields if f.name not in partition and any(is_(f.type) for is_ in _PLAIN)]
    types = {"path": pa.string(), "size": pa.int64(), "rows": pa.int64()}
    types |= {"physical_rows": pa.int64(), "vector": pa.string()}
    types |= dict.fromkeys(_TAGS, pa.string())
    types |= {f"partition.{name}": pa.string() for name in partition}
    for kind in ("null_count", "min", "max"):
        types |= {f"{kind}.{f.name}": f.type if kind != "null_count" else pa.int64() for f in plain}
    return types


def file_table(
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
            arrays.append(_lookup(add.field("partitionValues"), column))
        elif group in _TAGS:
            arrays.append(_lookup(add.field("tags"), _TAGS[group]))
        elif group in ("path", "size"):
            arrays.append(add.field(group))
        elif group == "vector":
            arrays.append(vector_strings(add.field("deletionVector")))
        elif group in _ROWS:
            rows = statistics[_NUM_RECORDS]
            arrays.append(_live_rows(rows, add) if group == "rows" else rows)
        else:
            arrays.append(pc.struct_field(statistics[_STATISTICS[group]], column))
    return pa.Table.from_arrays(arrays, schema=pa.schema(selected))


def _live_rows(rows: pa.Int64Array, add: pa.StructArray) -> pa.Int64Array:
    """Subtract the struck rows of data files from their rows."""
    struck = pc.struct_field(add.field("deletionVector"), "cardinality")
    if struck.null_count == len(struck):
        return rows
    return pc.coalesce(pc.subtract(rows, struck), rows)


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    return pc.map_lookup(maps, string_scalar(key), "first")


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
    layout |= {_NUM_RECORDS: pa.int64()} if not selected.keys().isdisjoint(_ROWS) else {}
    if not layout or not len(stats):
        return {name: pa.nulls(len(stats), kind) for name, kind in layout.items()}
    blank, no_stats = string_scalar(""), string_scalar("{}")
    stats = pc.coalesce(stats, no_stats)
    stats = pc.if_else(pc.equal(stats, blank), no_stats, stats)
    lines = pc.binary_join_element_wise(stats, blank, string_scalar("\n")).buffers()[2]
    table = read_json(lines, pa.schema(layout))
    if table.num_rows != len(stats):
        raise ValueError("the statistics of a data file are not one JSON object")
    return {name: table[name].combine_chunks() for name in layout}
