"""Parse the statistics of data files in the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.actions import read_json, string_scalar
from etl.parquet.data_file import DIGEST_TAG

_STATISTICS = {
    "rows": "numRecords", "null_count": "nullCount", "min": "minValues", "max": "maxValues"
}  # fmt: skip


_PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


def column_types(schema: pa.Schema, metadata: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
    """Return the columns of the file list: ``path``, ``size``, ``rows``, ``partition.NAME`` and so on."""
    partition = list(metadata.get("partitionColumns") or ())
    configured = (metadata.get("configuration") or {}).get("delta.dataSkippingStatsColumns")
    names = schema.names if configured is None else configured.split(",")
    fields = [schema.field(name) for name in names if name in schema.names]
    plain = [f for f in fields if f.name not in partition and any(is_(f.type) for is_ in _PLAIN)]
    types = {"path": pa.string(), "size": pa.int64(), "rows": pa.int64(), "digest": pa.string()}
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
        elif group == "digest":
            arrays.append(_lookup(add.field("tags"), DIGEST_TAG))
        elif group in ("path", "size"):
            arrays.append(add.field(group))
        else:
            values = statistics[_STATISTICS[group]]
            arrays.append(pc.struct_field(values, column) if column else values)
    return pa.Table.from_arrays(arrays, schema=pa.schema(selected))


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
    layout |= {_STATISTICS["rows"]: pa.int64()} if "rows" in selected else {}
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
