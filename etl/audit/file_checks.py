"""Is each data file of a table what the log says: there, of its size, with its rows, of the schema?

Every page of every column is decoded, its checksum first, and the statistics of the footer are those of
the values; ``quick`` reads the footers alone.
"""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.errors import one_line, said
from etl.table import Table

_THREADS = 8  # they wait for the store, more than they compute


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is not as it must be: in which table, in which data file of it, and what."""

    table: str
    file: str | None  # its path inside the table; None: the table as a whole
    what: str
    redo: str | None = field(default=None, compare=False)  # the table to mend, if it is another one

    def __str__(self) -> str:
        place = self.table if self.file is None else f"{self.table}/{self.file}"
        return one_line(f"{place}: {self.what}")


def check_files(
    table: Table,
    *,
    quick: bool = False,
    vocab_size: int | None = None,
    known: Collection[str] = (),
) -> list[Problem]:
    """The problems of the data files of a table's version, each for itself; ``known`` ones are left out.

    Token ids are those of a vocabulary of ``vocab_size``.
    """
    name = table.url.rsplit("/", 1)[-1]
    schema = table.schema

    def check(fragment: Mapping[str, Any]) -> list[Problem]:
        checked = _Checked(table.url, fragment, schema)
        found = checked.problems(quick=quick, vocab_size=vocab_size)
        return [Problem(name, fragment["path"], what) for what in found]

    with ThreadPoolExecutor(_THREADS) as pool:
        files = [f for f in table.fragments().to_pylist() if f["path"] not in known]
        found = pool.map(check, files)
        return [problem for problems in found for problem in problems]


@dataclass(frozen=True)
class _Checked:
    """One data file: where it is, what the log says of it, and the table's schema."""

    url: str
    fragment: Mapping[str, Any]
    schema: pa.Schema

    def problems(self, *, quick: bool, vocab_size: int | None) -> Iterator[str]:
        """What is wrong with it; a file that cannot be opened has no further problems."""
        uri = storage.join(self.url, self.fragment["path"])
        found = storage.size(uri)
        if found is None:
            yield "the file is not there"
            return
        if found != self.fragment["size"]:
            yield f"the file has {found} bytes where the log says {self.fragment['size']}"
        try:
            with storage.open_input(uri) as source:
                file = pq.ParquetFile(source, page_checksum_verification=True)
                problems = list(self._footer(file))
                if not problems and not quick:
                    problems = list(self._pages(file, vocab_size))
                yield from problems
        except Exception as error:  # noqa: BLE001 - a damaged footer fails in ways of its own
            yield f"cannot be read: {said(error)}"

    def _footer(self, file: pq.ParquetFile) -> Iterator[str]:
        rows = file.metadata.num_rows
        if rows != self.fragment["rows"]:
            yield f"the file has {rows} rows where the log says {self.fragment['rows']}"
        stored = [f for f in self.schema if f"partition.{f.name}" not in self.fragment]
        if not file.schema_arrow.equals(pa.schema(stored), check_metadata=False):
            yield f"its columns are not those of the table: {_difference(file.schema_arrow, stored)}"
            return
        for name in self.schema.names:
            low, high = self.fragment.get(f"min.{name}"), self.fragment.get(f"max.{name}")
            found = _range(file.metadata, name)
            if low is not None and found is not None and found != (low, high):
                yield f"{name} goes from {found[0]!r} to {found[1]!r}, the log says {low!r} to {high!r}"
        yield from self._reasons(file.metadata)

    def _reasons(self, metadata: pq.FileMetaData) -> Iterator[str]:
        """A kept row has no reason, a rejected one has one."""
        verdict = self.fragment.get("partition.verdict")
        missing = _null_count(metadata, "reason")
        if verdict is None or missing is None:
            return
        with_reason = metadata.num_rows - missing
        if verdict == "kept" and with_reason:
            yield f"{with_reason} kept rows have a reason for being rejected"
        if verdict == "rejected" and missing:
            yield f"{missing} rejected rows have no reason"

    def _pages(self, file: pq.ParquetFile, vocab_size: int | None) -> Iterator[str]:
        for group in range(file.num_row_groups):
            ranges = _Ranges(file.metadata.row_group(group))
            for batch in file.iter_batches(4096, row_groups=[group], use_threads=False):
                ranges.update(batch)
                if "tokens" in batch.schema.names:
                    yield from _token_problems(batch, vocab_size)
            yield from ranges.problems(f"row group {group}")


class _Ranges:
    """The values of a row group against the minimum and maximum that its footer says."""

    def __init__(self, group: pq.RowGroupMetaData) -> None:
        columns = [group.column(i) for i in range(group.num_columns)]
        said = {c.path_in_schema: c.statistics for c in columns if c.statistics is not None}
        self._said = {name: (s.min, s.max) for name, s in said.items() if s.has_min_max}
        self._found: dict[str, tuple[Any, Any]] = {}
        self._missing = group.num_rows

    def update(self, batch: pa.RecordBatch) -> None:
        self._missing -= batch.num_rows
        for name in self._said.keys() & set(batch.schema.names):
            found = pc.min_max(batch[name]).as_py()
            low, high = self._found.get(name, (found["min"], found["max"]))
            if found["min"] is not None:
                self._found[name] = (min(low, found["min"]), max(high, found["max"]))

    def problems(self, where: str) -> Iterator[str]:
        if self._missing:
            yield f"{where} has {self._missing} rows less than its footer says"
        for name, found in self._found.items():
            if found != self._said[name]:
                low, high = self._said[name]
                yield f"{where}: {name} goes from {found[0]!r} to {found[1]!r}, not {low!r} to {high!r}"


def _token_problems(batch: pa.RecordBatch, vocab_size: int | None) -> Iterator[str]:
    lengths = pc.list_value_length(batch["tokens"])
    if not lengths.equals(batch["num_tokens"].cast(lengths.type)):
        yield "num_tokens is not the length of tokens"
    ids = np.asarray(batch["tokens"].flatten())
    if ids.size and (ids.min() < 0 or (vocab_size is not None and ids.max() >= vocab_size)):
        yield f"token ids from {ids.min()} to {ids.max()}, the vocabulary has {vocab_size}"


def _range(metadata: pq.FileMetaData, name: str) -> tuple[Any, Any] | None:
    """The minimum and maximum of a column by the footer; None where that does not say."""
    found = _statistics(metadata, name)
    if not found or not all(s is not None and (s.has_min_max or _is_null(s)) for s in found):
        return None
    known = [s for s in found if s.has_min_max]
    return (min(s.min for s in known), max(s.max for s in known)) if known else None


def _null_count(metadata: pq.FileMetaData, name: str) -> int | None:
    found = _statistics(metadata, name)
    if not found or not all(s is not None and s.has_null_count for s in found):
        return None
    return int(sum(s.null_count for s in found))


def _is_null(statistics: pq.Statistics) -> bool:
    return bool(statistics.has_null_count and statistics.num_values == 0)


def _statistics(metadata: pq.FileMetaData, name: str) -> list[Any]:
    """The statistics of a flat column, one per row group; None where the writer left them out."""
    if metadata.num_row_groups == 0:
        return []
    first = metadata.row_group(0)
    places = [i for i in range(first.num_columns) if first.column(i).path_in_schema == name]
    groups = range(metadata.num_row_groups)
    return [metadata.row_group(group).column(i).statistics for i in places for group in groups]


def _difference(found: pa.Schema, expected: list[pa.Field]) -> str:
    """The first columns that differ."""
    known = {field.name: field for field in expected}
    differing = [
        str(field) for field in found if field.name not in known or known[field.name] != field
    ]
    missing = [name for name in known if name not in found.names]
    return (
        f"it has {differing[:3]}, and lacks {missing[:3]}" if missing else f"it has {differing[:3]}"
    )
