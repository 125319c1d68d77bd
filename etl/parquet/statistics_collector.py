"""Collect the statistics of a data file while it is written, in the form of the Delta log."""

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    either. The last character of the upper one is raised. The order of UTF-8 bytes is the order of code
    points.

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
