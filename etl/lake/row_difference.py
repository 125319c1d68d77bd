"""Bring a table to the rows that it should have, by strikes: a row is struck, or lives again.

Nothing is remembered of an interrupted change: the next call finds the difference between the rows that
a table should have and the rows that live in it, and commits that. So the same call may follow a change, a
removal or a repair, in any order, and after a kill between the commits of two tables.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.delta.deletion_vectors import read_struck
from etl.delta.table import Table
from etl.lake.row_numbers import number_rows
from etl.lake.table_digest import list_files, partition_values
from etl.parquet.data_file_reader import Positions, read_columns


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
    files = sorted(_files_with(table, scope, by), key=itemgetter("path"))
    struck = [read_struck(table.url, file) for file in files]
    values = pa.array([*scope], table.schema.field(by).type)
    found = _read_all(table.url, [*zip(files, struck, strict=True)], wanted.schema, values, by)
    numbers = number_rows(pa.concat_tables([wanted, found.rows]))
    target, first = np.unique(numbers[: len(wanted)], return_index=True)
    living, has_row = _living(target, numbers[len(wanted) :], found.is_live)
    changes = living != found.is_live
    return RowDifference(
        struck={
            files[number]["path"]: _changed(struck[number], found, living, number)
            for number in np.unique(found.files[changes]).tolist()
        },
        missing=wanted.take(np.sort(first[~has_row])),
        num_struck=int((changes & found.is_live).sum()),
        num_unstruck=int((changes & living).sum()),
    )


def _living(
    target: NDArray[np.int64], numbers: NDArray[np.int64], is_live: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows shall live, given their numbers, and which numbers of the target have such a row.

    A row that lives goes on living. Of equal rows that are all struck, the first comes back.
    """
    living, has_row = np.zeros(len(numbers), np.bool_), np.zeros(len(target), np.bool_)
    places = np.searchsorted(target, numbers)
    places[places == len(target)] = 0
    wanted = np.flatnonzero(target[places] == numbers) if len(target) else places[:0]
    order = wanted[np.lexsort((~is_live[wanted], numbers[wanted]))]
    is_first = np.diff(numbers[order], prepend=-1) != 0
    living[order[is_first]] = True
    has_row[places[living]] = True
    return living, has_row


@dataclass(frozen=True)
class _Found:
    """Rows of data files, struck or not, in the order of their places."""

    rows: pa.Table
    files: NDArray[np.int64]  # the number of the data file
    positions: Positions
    is_live: NDArray[np.bool_]


def _read_all(
    url: str,
    files: Sequence[tuple[Mapping[str, Any], Positions]],
    schema: pa.Schema,
    scope: pa.Array,
    by: str,
) -> _Found:
    """Read columns of the rows with values of the scope from data files, given with their struck rows."""
    tables, positions, lives = (
        [schema.empty_table()],
        [np.empty(0, np.int64)],
        [np.empty(0, np.bool_)],
    )
    for file, struck in files:
        rows = _read_columns(url, file, [*dict.fromkeys([by, *schema.names])])
        is_live = np.ones(rows.num_rows, np.bool_)
        is_live[struck] = False
        chosen = np.flatnonzero(pc.is_in(rows[by], scope).to_numpy())
        if len(chosen) < rows.num_rows:
            rows, is_live = rows.take(chosen), is_live[chosen]
        tables.append(rows.select(schema.names).cast(schema))
        positions.append(chosen)
        lives.append(is_live)
    numbers = np.repeat(np.arange(len(files)), [len(each) for each in positions[1:]])
    return _Found(
        pa.concat_tables(tables), numbers, np.concatenate(positions), np.concatenate(lives)
    )


def _files_with(table: Table, scope: Collection[Any], by: str) -> Iterator[Mapping[str, Any]]:
    """Yield the data files that may have rows with values of the scope."""
    values = sorted(scope)
    for file in list_files(table, f"min.{by}", f"max.{by}"):
        low, high = file.get(f"min.{by}"), file.get(f"max.{by}")
        if low is None or high is None or bisect_left(values, low) < bisect_right(values, high):
            yield file


def _read_columns(url: str, file: Mapping[str, Any], names: Collection[str]) -> pa.Table:
    """Return columns of all rows of a data file, struck or not."""
    of_file = partition_values(file)
    rows = read_columns(url, file, [name for name in names if name not in of_file])
    for name in of_file.keys() & names:
        rows = rows.append_column(name, pa.repeat(pa.scalar(of_file[name], pa.string()), len(rows)))
    return rows


def _changed(struck: Positions, found: _Found, living: NDArray[np.bool_], number: int) -> Positions:
    """Return all positions to strike in a data file, given those that are struck."""
    start, stop = np.searchsorted(found.files, [number, number + 1])
    positions, lives = found.positions[start:stop], living[start:stop]
    return np.union1d(np.setdiff1d(struck, positions[lives]), positions[~lives])
