"""Read random rows of `documents`: a few data files in random order.

The order and the choice depend on a seed and the addresses of the rows alone.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.actions import to_arrow
from etl.delta.live_rows import live_rows, read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake.random_keys import random_keys, uniform
from etl.lake.row_ranges import Address, RangeIndex

KEY = "key"
"""The column with the random key of a row, from 0 to 1."""

FILE: Final = ("path", "vector")
"""The columns with the data file of a row."""


def shuffled_files(files: pa.Table, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list of data files in random order."""
    paths = files["path"].to_pylist()
    digests = [
        hashlib.blake2b(f"{seed}\x00{path}".encode(), digest_size=8).digest() for path in paths
    ]
    for index in sorted(range(len(paths)), key=digests.__getitem__):
        yield files.slice(index, 1).to_pylist()[0]


def read_keyed(table: Table, file: LogicalFile, columns: Sequence[str], seed: int) -> pl.DataFrame:
    """Return some columns of a data file, with ``source``, ``row``, the random ``KEY`` and ``FILE``."""
    rows = read_live_rows(table.url, file, _schema(table, columns))
    keys = uniform(random_keys(rows, seed)) if rows.num_rows else np.empty(0)
    return pl.DataFrame(rows).with_columns(pl.Series(KEY, keys), *_constants(file))


def sample_rows(
    table: Table, files: pa.Table, columns: Sequence[str], *, rows: int, max_files: int, seed: int
) -> pl.DataFrame:
    """Return about ``rows`` rows of at most ``max_files`` data files, each row with the same probability."""
    chosen = [file for file, _ in zip(shuffled_files(files, seed), range(max_files), strict=False)]
    total = sum(file["rows"] for file in chosen)
    share = min(1.0, rows / total) if total else 1.0
    rows_of = (read_keyed(table, LogicalFile.of(file), columns, seed) for file in chosen)
    return pl.concat(
        [_no_rows(table, columns), *(each.filter(pl.col(KEY) < share) for each in rows_of)]
    )


def read_documents(
    table: Table, addresses: pl.DataFrame, columns: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return some columns of the rows with this ``FILE``, ``source`` and ``row``, in the same order."""
    values: dict[tuple[str, int], Mapping[str, Any]] = {}
    for file, rows in addresses.group_by(FILE, maintain_order=True):
        wanted = {*rows.select("source", "row").iter_rows()}
        for row in read_in_file(table, LogicalFile(*file), wanted, columns):
            values[row["source"], row["row"]] = row
    return [values[address] for address in addresses.select("source", "row").iter_rows()]


def read_in_file(
    table: Table, file: LogicalFile, wanted: AbstractSet[tuple[str, int]], columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield some columns of the rows of a data file with the wanted addresses, read by row group."""
    numbers = to_arrow(np.array(sorted({row for _, row in wanted}), np.int64))
    with live_rows(table.url, file, _schema(table, columns)) as opened:
        for group in range(opened.num_row_groups):
            keys = opened.row_group(group, ["row"])
            indices = pc.indices_nonzero(pc.is_in(keys["row"], numbers))
            if len(indices):
                rows = opened.row_group(group).take(indices).to_pylist()
                yield from (row for row in rows if (row["source"], row["row"]) in wanted)


def read_at(
    table: Table, index: RangeIndex, addresses: Iterable[Address], columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield some columns of the rows of a table with some addresses, given the index of its data files."""
    by_file: dict[LogicalFile, set[Address]] = {}
    for address in addresses:
        for file in index.files_between(address, address):
            by_file.setdefault(file, set()).add(address)
    for file, wanted in by_file.items():
        yield from read_in_file(table, file, wanted, columns)


def _no_rows(table: Table, columns: Sequence[str]) -> pl.DataFrame:
    rows = pl.DataFrame(_schema(table, columns).empty_table())
    return rows.with_columns(pl.Series(KEY, [], pl.Float64), *_constants(LogicalFile("")))


def _constants(file: LogicalFile) -> list[pl.Expr]:
    return [
        pl.lit(value, pl.String).alias(name) for name, value in zip(FILE, file[:2], strict=True)
    ]


def _schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    names = dict.fromkeys(["source", "row", *columns])
    return pa.schema([table.schema.field(name) for name in names])
