"""Count over lists of data files: rows, and values of a column, which is read where statistics do not say."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.delta.actions import string_scalar
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table

_THREADS = 8  # they wait for storage more than they compute
_FILES_PER_BATCH = 4096  # as Python objects, a few kilobytes each


def iterate_rows(files: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file list as dictionaries, a batch of which is held at a time."""
    for start in range(0, files.num_rows, _FILES_PER_BATCH):
        yield from files.slice(start, _FILES_PER_BATCH).to_pylist()


def sum_counts(files: pa.Table, column: str) -> int:
    """Return the sum of a column of the file list; 0 if it does not have the column."""
    return int(pc.sum(files[column]).as_py() or 0) if column in files.column_names else 0


def count_tokens(table: Table, files: pa.Table) -> int:
    """Return the number of tokens in some data files of ``tokens``; 0 for other tables.

    The log counts the tokens of struck rows, so that files with such rows are read.
    """
    if "max.token_end" not in files.column_names:
        return 0
    is_whole = pc.is_null(files["vector"])
    others = files.filter(pc.invert(is_whole)).select(["path", "vector"])
    columns = (read_live_rows(table.url, file, ["num_tokens"]) for file in iterate_rows(others))
    read = sum(pc.sum(rows["num_tokens"]).as_py() or 0 for rows in columns)
    return sum_counts(files.filter(is_whole), "max.token_end") + int(read)


def with_verdict(files: pa.Table, verdict: str) -> pa.Table:
    """Return the data files of ``documents`` with kept or with rejected rows."""
    return files.filter(pc.equal(files["partition.verdict"], string_scalar(verdict)))


def count_values(table: Table, column: str, files: pa.Table) -> Counter[str | None]:
    """Count the values of a text column in some data files; read only that column."""
    total: Counter[str | None] = Counter()
    unresolved = []
    names = [f"{kind}.{column}" for kind in ("min", "max", "null_count")]
    files = files.select(["path", "vector", "rows", *(n for n in names if n in files.column_names)])
    for row in iterate_rows(files):
        low, high = row.get(f"min.{column}"), row.get(f"max.{column}")
        if low is not None and low == high and row.get(f"null_count.{column}") == 0:
            total[low] += row["rows"]  # a single value in the whole file
        else:
            unresolved.append(LogicalFile.of(row))
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(unresolved), _FILES_PER_BATCH):  # no task for each file at once
            batch = unresolved[start : start + _FILES_PER_BATCH]
            for values in pool.map(lambda file: _count_in_file(table.url, file, column), batch):
                total.update(values)
    return total


def count_rules(documents: Table, files: pa.Table) -> Counter[str]:
    """Count the documents that each rule rejected in some data files, ignoring details of a reason."""
    total: Counter[str] = Counter()
    for reason, count in count_values(documents, "reason", files).items():
        total["none" if reason is None else schemas.rule_of(reason)] += count
    return total


def _count_in_file(url: str, file: LogicalFile, column: str) -> dict[str | None, int]:
    counts = pc.value_counts(read_live_rows(url, file, [column])[column]).to_pylist()
    return {count["values"]: count["counts"] for count in counts}
