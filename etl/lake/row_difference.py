"""Bring a table to the rows that it should have, by strikes: a row is struck, or lives again.

Nothing is remembered of an interrupted change: the next call finds the difference between the rows that
a table should have and the rows that live in it, and commits that. So the same call may follow a change, a
removal or a repair, in any order, and after a kill between the commits of two tables.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from etl.delta.deletion_vectors import read_struck
from etl.delta.table import Table
from etl.lake.table_digest import list_files, partition_values
from etl.parquet.data_file_reader import Positions, read_columns

_PLACE: Final = {"#file": pl.Int64, "#position": pl.Int64, "#is_live": pl.Boolean}
"""Further columns: which row of which data file a row is, and whether it lives."""


@dataclass(frozen=True)
class RowDifference:
    """What separates the live rows of a table from the rows that it should have.

    ``struck`` has, for each data file that changes, the positions of all rows that are struck from then on.
    ``missing`` are the wanted rows that no data file has, for which data files must be added.
    """

    struck: Mapping[str, Positions]
    missing: pa.Table
    num_struck: int  # rows that live now
    num_unstruck: int  # rows that are struck now

    @property
    def is_empty(self) -> bool:
        """Whether the table has the rows that it should have."""
        return not self.struck and not self.missing.num_rows


def find_difference(
    table: Table, wanted: pa.Table, scope: Collection[Any], *, by: str = "source"
) -> RowDifference:
    """Compare the live rows of a table with the rows that it should have.

    ``scope`` are values of the column ``by``: rows with other values stay as they are. ``wanted`` has the
    rows that the table should have with values of the scope. Two rows are equal if all columns of ``wanted``
    are, which may not be lists; nulls are equal. Of equal rows, one lives. Memory: that of ``wanted`` twice,
    and the rows of the scope.

    Raises TableError if a data file or its deletion vector is damaged, StorageError if it cannot be read.
    """
    columns = wanted.column_names
    target = pl.DataFrame(wanted).unique()
    files = sorted(_files_with(table, scope, by), key=itemgetter("path"))
    struck = [read_struck(table.url, file) for file in files]
    empty = target.clear().with_columns(pl.lit(None, kind).alias(c) for c, kind in _PLACE.items())
    parts = [empty]
    for number, file in enumerate(files):
        rows = _with_places(table, file, number, struck[number], [*dict.fromkeys([by, *columns])])
        parts.append(rows.filter(pl.col(by).is_in([*scope])).select(empty.columns))
    found = pl.concat(parts)
    # A row that lives goes on living. Of equal rows that are all struck, the first comes back.
    living = (
        found.join(target, on=columns, how="semi", nulls_equal=True)
        .sort("#is_live", "#file", "#position", descending=[True, False, False])
        .unique(columns, keep="first", maintain_order=True)
    )
    others = found.join(living, on=["#file", "#position"], how="anti")
    missing = target.join(living, on=columns, how="anti", nulls_equal=True)
    return RowDifference(
        struck={
            file["path"]: positions
            for number, file in enumerate(files)
            if (positions := _changed(number, struck[number], living, others)) is not None
        },
        missing=missing.to_arrow().cast(wanted.schema),
        num_struck=int(others["#is_live"].sum()),
        num_unstruck=living.height - int(living["#is_live"].sum()),
    )


def _files_with(table: Table, scope: Collection[Any], by: str) -> Iterator[Mapping[str, Any]]:
    """Yield the data files that may have rows with values of the scope."""
    values = sorted(scope)
    for file in list_files(table, f"min.{by}", f"max.{by}"):
        low, high = file.get(f"min.{by}"), file.get(f"max.{by}")
        if low is None or high is None or bisect_left(values, low) < bisect_right(values, high):
            yield file


def _with_places(
    table: Table, file: Mapping[str, Any], number: int, struck: Positions, columns: Collection[str]
) -> pl.DataFrame:
    """Return columns of all rows of a data file, struck or not, and their places."""
    of_file = partition_values(file)
    stored = read_columns(table.url, file, [name for name in columns if name not in of_file])
    count = file["physical_rows"]
    is_live = np.ones(count, np.bool_)
    is_live[struck] = False
    values = (pl.lit(of_file[name], pl.String).alias(name) for name in columns if name in of_file)
    return pl.DataFrame(stored).with_columns(
        *values,
        pl.lit(number, pl.Int64).alias("#file"),
        pl.int_range(count, dtype=pl.Int64).alias("#position"),
        pl.Series("#is_live", is_live),
    )


def _changed(
    number: int, struck: Positions, living: pl.DataFrame, others: pl.DataFrame
) -> Positions | None:
    """Return all positions to strike in a data file; None if they are struck already, and no others are."""
    of_file = pl.col("#file") == number
    live, dead = (rows.filter(of_file)["#position"].to_numpy() for rows in (living, others))
    positions = np.union1d(np.setdiff1d(struck, live), dead)
    return None if np.array_equal(positions, struck) else positions
