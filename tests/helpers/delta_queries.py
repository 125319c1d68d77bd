"""Query versions of a Delta table with an engine.

``make test-engines`` runs it as a program in the engine's own environment, without the project: it reads the
name of a reader and tables with versions as JSON, and writes the answers, or the error, of each. It also runs
the examples of ``docs/engines``, and writes the ids that they find.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

BETWEEN = (60_000, 70_000)
"""The numbers that a query selects: those of some row groups of one data file."""

QUERIES = (
    "SELECT count(*) AS a FROM {}",
    "SELECT sum(number) AS a, sum(number * char_length(text)) AS b FROM {}",
    "SELECT min(number) AS a, max(number) AS b FROM {}",
    f"SELECT count(*) AS a FROM {{}} WHERE number >= {BETWEEN[0]} AND number <= {BETWEEN[1]}",
    "SELECT count(*) AS a FROM {} WHERE verdict = 'kept'",
    "SELECT count(text) AS a FROM {}",
)
"""Sums, and queries that an engine may answer from statistics or by skipping files and row groups."""

Answers = list[list[int]]
"""The row that each query returns."""

Run = Callable[[str], Sequence[Any]]


def answer_from_arrow(rows: Any) -> Answers:
    """Return what the queries return for an Arrow table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.table(rows).select(["number", "text", "verdict"])
    numbers, verdicts = rows["number"], rows["verdict"].cast(pa.string())
    lengths = pc.utf8_length(rows["text"].cast(pa.string()))
    is_between = pc.and_(pc.greater_equal(numbers, BETWEEN[0]), pc.less_equal(numbers, BETWEEN[1]))
    return [
        [rows.num_rows],
        [pc.sum(numbers).as_py(), pc.sum(pc.multiply(numbers, lengths.cast(pa.int64()))).as_py()],
        [pc.min(numbers).as_py(), pc.max(numbers).as_py()],
        [pc.sum(is_between).as_py()],
        [pc.sum(pc.equal(verdicts, "kept")).as_py() or 0],
        [rows.num_rows - rows["text"].null_count],
    ]


def answer_from_sql(run: Run, table: str) -> Answers:
    """Return what the queries return if ``run`` runs them on a table."""
    return [[int(value) for value in run(query.format(table))] for query in QUERIES]


def query_with_datafusion(table: str, version: int | None) -> Answers:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("t", DeltaTable(table, version=version))

    def run(text: str) -> Sequence[Any]:
        (row,) = pa.table(query.execute(text).read_all()).to_pylist()
        return list(row.values())

    return answer_from_sql(run, "t")


def scan_with_delta_rs(table: str, version: int | None) -> Answers:
    from deltalake import DeltaTable

    return answer_from_arrow(DeltaTable(table, version=version).scan())


def read_to_pyarrow(table: str, version: int | None) -> Answers:
    from deltalake import DeltaTable

    return answer_from_arrow(DeltaTable(table, version=version).to_pyarrow_table())


def read_pyarrow_dataset(table: str, version: int | None) -> Answers:
    from deltalake import DeltaTable

    return answer_from_arrow(DeltaTable(table, version=version).to_pyarrow_dataset().to_table())


def count_with_delta_rs(table: str, version: int | None) -> Answers:
    from deltalake import DeltaTable

    return [[DeltaTable(table, version=version).count()]]


def query_with_polars(table: str, version: int | None) -> Answers:
    import polars as pl

    context = pl.SQLContext(t=pl.scan_delta(table, version=version))
    return answer_from_sql(lambda query: context.execute(query).collect().row(0), "t")


@cache
def connect_to_duckdb() -> Any:
    import duckdb
    import duckdb_extension_delta  # type: ignore[import-not-found] # only in its own environment

    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def run_in_duckdb(query: str) -> Sequence[Any]:
    (row,) = connect_to_duckdb().execute(query).fetchall()
    return tuple(row)


def query_with_duckdb(table: str, version: int | None) -> Answers:
    at = "" if version is None else f", version = {version}"
    return answer_from_sql(run_in_duckdb, f"delta_scan('{table}'{at})")


def query_files_with_duckdb(table: str, _version: int | None) -> Answers:
    return answer_from_sql(run_in_duckdb, f"read_parquet('{table}/verdict=*/*.parquet')")


def query_with_clickhouse(table: str, version: int | None, *settings: str) -> Answers:
    import chdb  # type: ignore[import-not-found] # only in its own environment

    at = [] if version is None else [f"delta_lake_snapshot_version = {version}"]
    ending = ", ".join(["output_format_json_quote_64bit_integers = 0", *settings, *at])

    def run(query: str) -> Sequence[Any]:
        row: list[Any] = json.loads(
            str(chdb.query(f"{query} SETTINGS {ending}", "JSONCompactEachRow"))
        )
        return row

    return answer_from_sql(run, f"deltaLakeLocal('{table}')")


def query_with_clickhouse_without_count(table: str, version: int | None) -> Answers:
    return query_with_clickhouse(table, version, "optimize_trivial_count_query = 0")


def query_with_old_clickhouse(table: str, version: int | None) -> Answers:
    return query_with_clickhouse(table, version, "allow_experimental_delta_kernel_rs = 0")


@cache
def start_sail() -> tuple[Any, Any]:
    """Return a session and its server, which would stop without a reference."""
    from pysail.spark import SparkConnectServer  # type: ignore[import-not-found]
    from pyspark.sql import SparkSession  # type: ignore[import-not-found]

    server = SparkConnectServer(port=0)
    server.start()
    _, port = server.listening_address
    return SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate(), server


def query_with_sail(table: str, version: int | None) -> Answers:
    spark, _ = start_sail()
    reader = spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    reader.load(table).createOrReplaceTempView("t")
    return answer_from_sql(lambda query: tuple(spark.sql(query).collect()[0]), "t")


def scan_with_kernel(table: str, _version: int | None) -> Answers:
    import delta_kernel_rust_sharing_wrapper as kernel  # type: ignore[import-not-found]

    interface = kernel.PythonInterface(f"file://{table}")
    snapshot = kernel.Table(f"file://{table}").snapshot(interface)
    return answer_from_arrow(kernel.ScanBuilder(snapshot).build().execute(interface).read_all())


def read_with_daft(table: str, version: int | None) -> Answers:
    import daft  # only in its own environment

    return answer_from_arrow(daft.read_deltalake(table, version=version).to_arrow())


def read_with_daft_despite_vectors(table: str, version: int | None) -> Answers:
    import daft

    rows = daft.read_deltalake(table, version=version, ignore_deletion_vectors=True)
    return answer_from_arrow(rows.to_arrow())


READERS: dict[str, Callable[[str, int | None], Answers]] = {
    "`QueryBuilder`": query_with_datafusion,
    "`DeltaTable.scan`": scan_with_delta_rs,
    "`to_pyarrow_table`, `to_pandas`": read_to_pyarrow,
    "`to_pyarrow_dataset`": read_pyarrow_dataset,
    "`count()`": count_with_delta_rs,
    "`scan_delta`, `read_delta`": query_with_polars,
    "`delta_scan`": query_with_duckdb,
    "`read_parquet`": query_files_with_duckdb,
    "`deltaLakeLocal` with `optimize_trivial_count_query = 0`": query_with_clickhouse_without_count,
    "`deltaLakeLocal`": query_with_clickhouse,
    "`deltaLakeLocal` with `allow_experimental_delta_kernel_rs = 0`": query_with_old_clickhouse,
    '`format("delta")`': query_with_sail,
    "`ScanBuilder`": scan_with_kernel,
    "`read_deltalake`": read_with_daft,
    "`read_deltalake` with `ignore_deletion_vectors=True`": read_with_daft_despite_vectors,
}
"""The readers, named as in ``docs/reference/tables.md``."""


def run_python_example(code: str) -> list[list[str]]:
    """Return the ids of the three results that an example in Python names."""
    names: dict[str, Any] = {}
    exec(code, names)  # a file of docs/engines
    return [ids_of(names[name]) for name in ("head", "old", "joined")]


def ids_of(result: Any) -> list[str]:
    if hasattr(result, "collect"):  # of Polars or Spark
        rows = result.collect()
        return [row["id"] for row in (rows.to_dicts() if hasattr(rows, "to_dicts") else rows)]
    import pyarrow as pa

    return [row["id"] for row in pa.table(result).to_pylist()]


def run_duckdb_example(code: str) -> list[list[str]]:
    """Return the first column of each statement's result."""
    queries = code.split(";")[:-1]
    return [[row[0] for row in connect_to_duckdb().execute(q).fetchall()] for q in queries]


def run_clickhouse_example(code: str) -> list[list[str]]:
    """Return the first column of each statement's result."""
    import chdb

    results = [str(chdb.query(query, "JSONCompactEachRow")) for query in code.split(";")[:-1]]
    return [[json.loads(line)[0] for line in result.splitlines()] for result in results]


EXAMPLES: dict[str, Callable[[str], list[list[str]]]] = {
    "delta-rs.py": run_python_example,
    "polars.py": run_python_example,
    "duckdb.sql": run_duckdb_example,
    "clickhouse.sql": run_clickhouse_example,
    "sail.py": run_python_example,
}


def answer(request: dict[str, Any]) -> Iterator[Answers | list[str] | str]:
    if "example" in request:
        yield from EXAMPLES[request["example"]](request["code"])
        return
    for table, version in request["versions"]:
        try:
            yield READERS[request["reader"]](table, version)
        except Exception as error:  # noqa: BLE001 # each engine has its own
            yield f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    json.dump(list(answer(json.load(sys.stdin))), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # pyarrow's threads may abort a process that ends while they run
