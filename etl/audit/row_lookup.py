"""Look up a few rows in a large table by the statistics in its log and in its file footers.

Only the data files and row groups that may match are read, and only the requested columns of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.actions import string_scalar
from etl.delta.live_rows import live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import TableError
from etl.parquet.data_file_reader import fill_columns

Wanted = Mapping[str, str | int]
"""Column -> the value that it must have."""


@dataclass(frozen=True)
class FoundRow:
    """A matching row: its data file, its number in that file, and its values with the partition's."""

    file: Mapping[str, Any]  # its entry in the list of data files
    number: int
    values: dict[str, Any]

    @property
    def path(self) -> str:
        """The path of the data file in the table."""
        return str(self.file["path"])


def find_rows(
    table: Table,
    wanted: Wanted,
    columns: Sequence[str] | None = None,
    *,
    files: pa.Table | None = None,
) -> Iterator[FoundRow]:
    """Yield the rows in which every wanted column has its value, with all ``columns`` by default.

    ``files`` are the data files to look in, by default all data files of the table.
    """
    for entry in find_candidate_files(table.data_files() if files is None else files, wanted):
        partition = {
            name.removeprefix("partition."): value
            for name, value in entry.items()
            if name.startswith("partition.")
        }
        for number, values in _find_in_file(table.url, LogicalFile.of(entry), wanted, columns):
            yield FoundRow(entry, number, {**values, **partition})


def text_of(texts: Table, source: str, row: int) -> dict[str, Any]:
    """Return ``id`` and ``text`` of a document. Raises TableError if the table does not have it."""
    found = next(find_rows(texts, {"source": source, "row": row}, ["id", "text"]), None)
    if found is None:
        hint = "`etl verify` names the files that are damaged"
        raise TableError("a document is missing", where=f"{source} row {row}", hint=hint)
    return found.values


def is_struck(table: Table, wanted: Wanted) -> bool:
    """Return whether a data file has a row with these values that is struck."""
    files = table.data_files()
    files = files.filter(pc.is_valid(files["vector"]))
    stored = files.set_column(
        files.column_names.index("vector"), "vector", pa.nulls(files.num_rows, pa.string())
    )
    found = {(row.path, row.number) for row in find_rows(table, wanted, files=stored)}
    return not found <= {(row.path, row.number) for row in find_rows(table, wanted, files=files)}


def find_candidate_files(files: pa.Table, wanted: Wanted) -> list[dict[str, Any]]:
    """Return the data files that may hold such a row, by the minima and maxima of their columns.

    >>> files = pa.table({"path": ["a", "b"], "min.row": [0, 10], "max.row": [9, 19]})
    >>> [file["path"] for file in find_candidate_files(files, {"row": 12})]
    ['b']
    """
    if files.num_rows == 0:
        return []
    may_match = [pl.lit(True)]
    for name, value in wanted.items():
        if f"min.{name}" in files.column_names:
            inside = pl.lit(value).is_between(pl.col(f"min.{name}"), pl.col(f"max.{name}"))
            may_match.append(inside.fill_null(True))  # null: no statistics
        if f"null_count.{name}" in files.column_names:
            empty = pl.col(f"null_count.{name}") == pl.col("physical_rows")
            may_match.append(~empty.fill_null(False))
    return pl.DataFrame(files).filter(may_match).to_dicts()


def read_first_rows(table: Table, limit: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the first rows of a table in the order of its data files.

    Raises TableError for a column that the table does not have.
    """
    names = list(columns or table.schema.names)
    for name in names:
        if name not in table.schema.names:
            hint = f"its columns are {', '.join(table.schema.names)}"
            raise TableError(f"the table has no column {name!r}", where=table.url, hint=hint)
    schema = pa.schema([table.schema.field(name) for name in names])
    parts = [pa.Table.from_batches([], schema)]  # schema.empty_table() would import pandas
    missing = limit
    for entry in table.data_files().to_pylist():
        if missing <= 0:
            break
        parts.append(fill_columns(_read_rows(table.url, entry, schema, missing), schema))
        missing -= parts[-1].num_rows
    return pa.concat_tables(parts)


def _find_in_file(
    url: str, logical: LogicalFile, wanted: Wanted, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    equal = [pl.col(name) == value for name, value in wanted.items()]
    with live_rows(url, logical) as file:
        for group in range(file.num_row_groups):
            if all(file.may_hold(group, name, value, value) for name, value in wanted.items()):
                keys = pl.DataFrame(file.row_group(group, list(wanted)))
                indices = keys.with_row_index("").filter(equal)[""].to_list()
                if indices:
                    rows = file.row_group(group, columns)
                    positions = file.positions(group)[indices].tolist()
                    for position, index in zip(positions, indices, strict=True):
                        yield position, rows.slice(index, 1).to_pylist()[0]


def _read_rows(url: str, entry: Mapping[str, Any], schema: pa.Schema, limit: int) -> pa.Table:
    stored = pa.schema([field for field in schema if f"partition.{field.name}" not in entry])
    batches, num_rows = [], 0
    with live_rows(url, entry, stored) as file:
        for batch in file.batches(limit):
            batches.append(batch.slice(0, limit - num_rows))
            num_rows += batches[-1].num_rows
            if num_rows == limit:
                break
    rows = pa.Table.from_batches(batches, stored)
    for name in schema.names:
        if f"partition.{name}" in entry:
            value = entry[f"partition.{name}"]
            column = pa.nulls(num_rows, pa.string())
            if value is not None:
                column = pa.repeat(string_scalar(value), num_rows)
            rows = rows.append_column(name, column)
    return rows
