"""Which units of work have rows in a data file.

A run writes the rows of a unit of work to files of their own, whose names begin with the key of the unit.
Small input files are read in packs, and ``etl optimize`` merges small data files: such a file has the rows of
many units, one unit after the other, and the log lists these units as a tag of the file
(``etl.parquet.data_file.UNITS_TAG``).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count, groupby
from typing import Any, NamedTuple

import numpy as np

from etl.delta.deletion_vectors import read_struck
from etl.delta.table import Table
from etl.lake.ledger import key_of

_COLUMNS = ("vector", "units", "rows", "min.source", "min.row", "max.source", "max.row")
_ADDRESS = ("min.source", "min.row")


class UnitRows(NamedTuple):
    """The rows of a unit of work in a data file, which follow one another."""

    key: str  # as the names of the unit's files have it
    source: str
    rows: int
    first_row: int
    last_row: int


def to_tag(units: Iterable[UnitRows]) -> str | None:
    """Return the tag of a file with the rows of units in this order; None if there are none."""
    joined = [_joined([*rows]) for _, rows in groupby(units, key=lambda rows: rows.key)]
    return json.dumps(joined, separators=(",", ":")) if joined else None


def _joined(rows: list[UnitRows]) -> UnitRows:
    """Return rows of a unit from several files as if one file had them, in any order."""
    return rows[0]._replace(
        rows=sum(each.rows for each in rows),
        first_row=min(each.first_row for each in rows),
        last_row=max(each.last_row for each in rows),
    )


def unit_keys(file: Mapping[str, Any]) -> list[str]:
    """Return the keys of the units of a data file, given its entry with ``path`` and ``units``.

    >>> unit_keys({"path": "a" * 32 + "-0123456789ab-0.parquet", "units": None}) == ["a" * 32]
    True
    """
    listed = file["units"]
    return [key_of(file["path"])] if listed is None else [unit[0] for unit in json.loads(listed)]


def unit_at(file: Mapping[str, Any], source: str, row: int) -> str:
    """Return the key of the unit that a row of a data file belongs to, given the entry of the file."""
    if file["units"] is None:
        return key_of(file["path"])
    units = (UnitRows(*unit) for unit in json.loads(file["units"]))
    return next(
        unit.key
        for unit in units
        if unit.source == source and unit.first_row <= row <= unit.last_row
    )


def rows_of(part: Mapping[str, Any]) -> UnitRows:
    """Return the live rows of an entry of ``unit_parts`` or ``unit_files``."""
    names = ("unit", "min.source", "rows", "min.row", "max.row")
    return UnitRows(*(part[name] for name in names))


def unit_parts(url: str, file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entry of a data file of the table at a URL for each unit in it, as ``unit_files`` does."""
    if file["units"] is None:
        yield {**file, "unit": key_of(file["path"])}
        return
    units = [UnitRows(*unit) for unit in json.loads(file["units"])]
    ends = np.cumsum([0, *(unit.rows for unit in units)], dtype=np.int64)
    struck = np.searchsorted(read_struck(url, file), ends)
    for number, unit in enumerate(units):
        start, stop = int(ends[number]), int(ends[number + 1])
        part = {
            **file,
            "unit": unit.key,
            "part": (start, stop),
            "rows": unit.rows - int(struck[number + 1] - struck[number]),
            "min.source": unit.source,
            "max.source": unit.source,
            "min.row": unit.first_row,
            "max.row": unit.last_row,
        }
        if "size" in file:
            part["size"] = file["size"] * unit.rows // int(ends[-1])
        yield part


def unit_files(table: Table, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield the data files of ``documents`` or ``texts`` in the order of addresses, each once per unit in it.

    An entry is as ``Table.files`` yields it, with the given columns, the address of the first and the last
    row, ``rows`` and ``unit``, the key of the unit. If the file has other units, too, all these describe the
    unit alone, ``size`` is its share, and ``part`` says which rows are meant (``LogicalFile``).
    """
    waiting: list[tuple[str, int, int, dict[str, Any]]] = []
    numbers = count()  # so that entries are not compared
    for file in table.files(*dict.fromkeys([*_COLUMNS, *columns]), by=_ADDRESS):
        address = file["min.source"] or "", file["min.row"] or 0
        while waiting and waiting[0][:2] < address:
            yield heappop(waiting)[-1]
        for part in unit_parts(table.url, file):
            place = part["min.source"] or "", part["min.row"] or 0
            heappush(waiting, (*place, next(numbers), part))
    while waiting:
        yield heappop(waiting)[-1]
