"""Count the rows of a Delta table that an engine finds by comparisons of strings.

``make test-engines`` runs it as a program in the engine's own environment, without the project: it reads the
engine, the table and the comparisons as JSON, and writes the counts.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.helpers.delta_queries import connect_to_duckdb

Comparison = tuple[str, str, str]
"""A column, one of ``=``, ``<`` and ``>``, and a value."""


def count_with_pyarrow(table: str, comparisons: Sequence[Comparison]) -> Iterator[int]:
    from deltalake import DeltaTable

    rows = DeltaTable(table)
    for column, operator, value in comparisons:
        yield rows.to_pyarrow_table(columns=[column], filters=[(column, operator, value)]).num_rows


def count_with_datafusion(table: str, comparisons: Sequence[Comparison]) -> Iterator[int]:
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("rows", DeltaTable(table))
    for column, operator, value in comparisons:
        quoted = value.replace("'", "''")
        result: Any = query.execute(
            f"SELECT {column} FROM rows WHERE {column} {operator} '{quoted}'"
        ).read_all()
        yield result.num_rows


def count_with_polars(table: str, comparisons: Sequence[Comparison]) -> Iterator[int]:
    import polars as pl

    for name, operator, value in comparisons:
        column = pl.col(name)
        condition = {"=": column == value, "<": column < value, ">": column > value}[operator]
        yield pl.scan_delta(table).filter(condition).select(name).collect().height


def count_with_duckdb(table: str, comparisons: Sequence[Comparison]) -> Iterator[int]:
    connection = connect_to_duckdb()
    for column, operator, value in comparisons:
        query = f"SELECT count(*) FROM delta_scan(?) WHERE {column} {operator} ?"
        ((count,),) = connection.execute(query, [table, value]).fetchall()
        yield count


READERS: dict[str, Callable[[str, Sequence[Comparison]], Iterator[int]]] = {
    "pyarrow": count_with_pyarrow,
    "datafusion": count_with_datafusion,
    "polars": count_with_polars,
    "duckdb": count_with_duckdb,
}

if __name__ == "__main__":
    request = json.load(sys.stdin)
    counts = READERS[request["reader"]](request["table"], request["comparisons"])
    json.dump(list(counts), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # pyarrow's threads may abort a process that ends while they run
