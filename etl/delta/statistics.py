"""Statistics of data files: collected while writing, parsed from the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from etl.delta.actions import read_json, string_scalar

_MAX_PREFIX_CHARS = 16  # as Iceberg's default, truncate(16): a host, a day, the time of a UUID v7
_LAST_CHAR = "\U0010ffff"


@dataclass
class StatisticsCollector:
    """Running minimum, maximum and null count per column, in the form of the Delta log.

    A bound that is a string is a value of a row, and the log keeps it long after the row was erased. So the
    log has the strings of ``lookup`` columns whole, and short prefixes of all others.
    """

    columns: tuple[str, ...]
    lookup: tuple[str, ...] = ()
    rows: int = 0
    low: dict[str, Any] = field(default_factory=dict)
    high: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    def update(self, table: pa.Table) -> None:
        """Include the rows of a table."""
        self.rows += table.num_rows
        for name in self.columns:
            column = table[name]
            self.nulls[name] = self.nulls.get(name, 0) + column.null_count
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self.low[name] = min(self.low.get(name, bounds["min"]), bounds["min"])
                self.high[name] = max(self.high.get(name, bounds["max"]), bounds["max"])

    def to_json(self) -> str:
        """Return the statistics as JSON, as in an ``add`` action.

        It has no escapes of surrogates: delta-rs and Polars skip files by what they take for these escapes.
        """
        bounds = {
            name: (self.low[name], self.high[name])
            if name in self.lookup
            else prefix_bounds(self.low[name], self.high[name])
            for name in self.low
        }
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in bounds.items()},
                "maxValues": {name: high for name, (_, high) in bounds.items()},
                "nullCount": self.nulls,
            },
            ensure_ascii=False,
        )


def prefix_bounds(low: Any, high: Any) -> tuple[Any, Any]:
    """Return bounds of the values from ``low`` to ``high`` that are short prefixes if they are strings.

    A prefix has at most 16 characters and at most half of the value, so that short values are not in the log
    either. The last character of the upper one is raised. The order is that of UTF-8 bytes, which is that of
    code points.

    >>> prefix_bounds("mary.major@example.org", "mary.moe@example.org")
    ('mary.major@', 'mary.moe@f')
    """
    if not isinstance(low, str):
        return low, high
    return low[: _prefix_chars(low)], _raise_prefix(high)


def _prefix_chars(value: str) -> int:
    return min(_MAX_PREFIX_CHARS, len(value) // 2)


def _raise_prefix(value: str) -> str:
    """Return a short string above all strings with a prefix of a value.

    The last code point cannot be raised. A value of nothing else has no upper bound but itself.
    """
    prefix = value[: max(_prefix_chars(value), 1)].rstrip(_LAST_CHAR)
    if not prefix:
        leading = len(value) - len(value.lstrip(_LAST_CHAR))
        prefix = value[: leading + 1]
    if not prefix or prefix[-1] == _LAST_CHAR:
        return value
    is_before_surrogates = prefix[-1] == "\ud7ff"
    return prefix[:-1] + ("\ue000" if is_before_surrogates else chr(ord(prefix[-1]) + 1))


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
    types = {"path": pa.string(), "size": pa.int64(), "rows": pa.int64()}
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
            arrays.append(
                pc.map_lookup(add.field("partitionValues"), string_scalar(column), "first")
            )
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
    blank, no_stats = string_scalar(""), string_scalar("{}")
    stats = pc.coalesce(stats, no_stats)
    stats = pc.if_else(pc.equal(stats, blank), no_stats, stats)
    lines = pc.binary_join_element_wise(stats, blank, string_scalar("\n")).buffers()[2]
    table = read_json(lines, pa.schema(layout))
    if table.num_rows != len(stats):
        raise ValueError("the statistics of a data file are not one JSON object")
    return {name: table[name].combine_chunks() for name in layout}
