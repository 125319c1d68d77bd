"""Check each data file of a table against the log: presence, size, rows, schema, values, deletion vector.

Every page of every column is decoded after its checksum is verified, and the statistics in the footer are
compared with the values. ``quick`` reads the footers and the deletion vectors only.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.audit.value_counts import iterate_rows
from etl.delta import deletion_vectors
from etl.delta.table import Table
from etl.errors import TokenlakeError, error_line
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.lake.table_digest import not_digested, partition_values
from etl.parquet.parquet_file import FileMetaData, ParquetFile, RowGroupMetaData, open_parquet
from etl.parquet.row_digests import add_digests, digest_rows, hash_column, to_hex
from etl.parquet.statistics_collector import prefix_bounds
from etl.visible_text import one_line

_THREADS = 8  # they wait for storage more than they compute
_FILES_PER_BATCH = 1024  # as Python objects, a few kilobytes each


@dataclass(frozen=True, order=True)
class Problem:
    """A problem found in a lake: its table, its data file and a description."""

    table: str
    file: str | None  # path inside the table; None for the table as a whole
    what: str
    redo: str | None = field(default=None, compare=False)  # the table to repair, if not ``table``
    is_foreign: bool = False  # whether it is a change of data by another program
    release: str | None = None  # the only release that the problem concerns
    hint: str | None = field(default=None, compare=False)  # what helps instead of a repair

    def __str__(self) -> str:
        where = self.table if self.file is None else f"{self.table}/{self.file}"
        hint = "" if self.hint is None else f"; {self.hint}"
        return one_line(f"{where}: {self.what}{hint}")


class Problems(Shown, list[Problem]):
    """The problems of a lake; a notebook shows them as a table.

    ``digests`` has the digest of each table whose data files have no problem.
    """

    digests: Mapping[str, str] = MappingProxyType({})

    def _cards(self) -> list[Card]:
        """Return the problems as a card."""
        if not self:
            return [Card(title="No problems found")]
        grid = make_grid(
            "Problems",
            ("table", "data file", "problem"),
            self,
            lambda each: (each.table, each.file or "", each.what),
        )
        title = f"{len(self):,} problem{'s' if len(self) > 1 else ''}"
        return [Card(title=title, facts={"first": self[0]}, grids=[replace(grid, is_text=True)])]


def check_files(
    table: Table,
    *,
    quick: bool = False,
    vocab_size: int | None = None,
    known: Container[str] = (),
) -> list[Problem]:
    """Check each data file of a table's version, except those in ``known``; return the problems.

    ``known`` has the names that ``logical_name`` gives. Token ids must be less than ``vocab_size``.
    """
    name = table.url.rsplit("/", 1)[-1]
    schema = table.schema
    # A file has the vectors of many data files.
    find_vector_problem = cache(partial(deletion_vectors.find_problem, table.url))

    def check(entry: Mapping[str, Any]) -> list[Problem]:
        file = _DataFile(table.url, entry, schema)
        problems = [
            *file.problems(quick=quick, vocab_size=vocab_size),
            *file.vector_problems(find_vector_problem),
        ]
        return [Problem(name, entry["path"], what) for what in problems]

    every = (file for batch in table.file_batches() for file in iterate_rows(batch))
    files = (file for file in every if logical_name(file) not in known)
    problems: list[Problem] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        while batch := list(islice(files, _FILES_PER_BATCH)):
            for found in pool.map(check, batch):
                problems += found
    return problems


def logical_name(file: Mapping[str, Any]) -> str:
    """Return a name of a data file in the list of a table: another one with another deletion vector."""
    return f"{file['path']}\0{file['vector'] or ''}"


@dataclass(frozen=True)
class _DataFile:
    """A data file: the table's URL, the file's entry in the log, and the table's schema."""

    url: str
    entry: Mapping[str, Any]
    schema: pa.Schema

    def problems(self, *, quick: bool, vocab_size: int | None) -> Iterator[str]:
        """Yield the problems of the file; if it cannot be opened, this is the only problem."""
        uri = storage.join(self.url, self.entry["path"])
        size = storage.file_size(uri)
        if size is None:
            yield "the file is missing"
            return
        if size != self.entry["size"]:
            yield f"the file has {size} bytes, but the log records {self.entry['size']}"
        try:
            with storage.open_input(uri) as source:
                file = open_parquet(source)
                problems = list(self._footer(file))
                if not problems and not quick:
                    problems = list(self._pages(file, vocab_size))
                yield from problems
        except Exception as error:  # noqa: BLE001 - a damaged footer can raise anything
            yield f"the file cannot be read: {error_line(error)}"

    def vector_problems(self, find_problem: Callable[[str], str | None]) -> Iterator[str]:
        """Yield the problems of the deletion vector; ``find_problem`` checks a file of vectors as a whole."""
        if self.entry["vector"] is None:
            return
        try:
            deletion_vectors.read_struck(self.url, self.entry)
            path = deletion_vectors.path_of(self.entry["vector"])
            what = None if path is None else find_problem(path)
        except TokenlakeError as error:
            yield error.what
        else:
            if what is not None:
                yield f"the file {path} of its deletion vector {what}"

    def _footer(self, file: ParquetFile) -> Iterator[str]:
        rows, recorded = file.metadata.num_rows, self.entry["physical_rows"]
        if rows != recorded:
            yield f"the file has {rows} rows, but the log records {recorded}"
        names = file.schema_arrow.names
        stored = [
            field
            for field in self.schema
            if f"partition.{field.name}" not in self.entry
            # A nullable column that was added to the table later is missing in older files.
            and (field.name in names or not field.nullable)
        ]
        if not file.schema_arrow.equals(pa.schema(stored), check_metadata=False):
            difference = _difference(file.schema_arrow, stored)
            yield f"its columns differ from those of the table: {difference}"
            return
        for name in self.schema.names:
            low, high = self.entry.get(f"min.{name}"), self.entry.get(f"max.{name}")
            stored_range = _range(file.metadata, name)
            if low is None or stored_range is None:
                continue
            first, last = stored_range
            if (low, high) not in (stored_range, prefix_bounds(first, last)):
                yield f"{name} is {first!r} to {last!r}, but the log records {low!r} to {high!r}"
        yield from self._reasons(file.metadata)

    def _reasons(self, metadata: FileMetaData) -> Iterator[str]:
        """Check that rejected rows have a reason and kept rows have none."""
        verdict = self.entry.get("partition.verdict")
        missing = _null_count(metadata, "reason")
        if verdict is None or missing is None:
            return
        with_reason = metadata.num_rows - missing
        if verdict == "kept" and with_reason:
            yield f"{with_reason} kept rows have a reason for rejection"
        if verdict == "rejected" and missing:
            yield f"{missing} rejected rows have no reason"

    def _pages(self, file: ParquetFile, vocab_size: int | None) -> Iterator[str]:
        digest = 0
        without, values = not_digested(self.url), partition_values(self.entry)
        for group in range(file.num_row_groups):
            ranges = _Ranges(file.metadata.row_group(group))
            for batch in file.iter_batches(4096, row_groups=[group], use_threads=False):
                ranges.update(batch)
                rows = pa.Table.from_batches([batch])
                digest += digest_rows(rows, without=without, values=values)
                yield from _hash_problems(rows)
                if "tokens" in batch.schema.names:
                    yield from _token_problems(batch, vocab_size)
            yield from ranges.problems(f"row group {group}")
        actual, recorded = to_hex(add_digests([digest])), self.entry["digest"]
        if recorded not in (None, actual):
            yield f"its rows have the digest {actual}, but the log records {recorded}"


class _Ranges:
    """The ranges of a row group's values, compared with the minima and maxima in its footer."""

    def __init__(self, group: RowGroupMetaData) -> None:
        columns = [group.column(i) for i in range(group.num_columns)]
        known = {c.path_in_schema: c.statistics for c in columns if c.statistics is not None}
        self._recorded = {name: (s.min, s.max) for name, s in known.items() if s.has_min_max}
        self._actual: dict[str, tuple[Any, Any]] = {}
        self._missing = group.num_rows

    def update(self, batch: pa.RecordBatch) -> None:
        self._missing -= batch.num_rows
        for name in self._recorded.keys() & set(batch.schema.names):
            limits = pc.min_max(batch[name]).as_py()
            low, high = self._actual.get(name, (limits["min"], limits["max"]))
            if limits["min"] is not None:
                self._actual[name] = (min(low, limits["min"]), max(high, limits["max"]))

    def problems(self, where: str) -> Iterator[str]:
        if self._missing:
            yield f"{where} has {self._missing} fewer rows than its footer records"
        for name, (first, last) in self._actual.items():
            low, high = self._recorded[name]
            if (first, last) != (low, high):
                what = (
                    f"{name} is {first!r} to {last!r}, but the footer records {low!r} to {high!r}"
                )
                yield f"{where}: {what}"


def _hash_problems(rows: pa.Table) -> Iterator[str]:
    for column in ("text", "tokens"):
        name = f"{column}_hash"
        if {column, name} <= {*rows.column_names} and hash_column(rows[column]) != rows[name]:
            yield f"{name} is not the hash of {column}"


def _token_problems(batch: pa.RecordBatch, vocab_size: int | None) -> Iterator[str]:
    lengths = pc.list_value_length(batch["tokens"])
    if not lengths.equals(batch["num_tokens"].cast(lengths.type)):
        yield "num_tokens is not the length of tokens"
    low, high = pc.min_max(batch["tokens"].flatten()).as_py().values()
    if low is not None and (low < 0 or (vocab_size is not None and high >= vocab_size)):
        limit = "but must not be negative"
        if vocab_size is not None:
            limit = f"but the vocabulary has {vocab_size} tokens"
        yield f"token ids range from {low} to {high}, {limit}"


def _range(metadata: FileMetaData, name: str) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column by the footer; None if it does not record them."""
    groups = _statistics(metadata, name)
    if not groups or not all(s is not None and (s.has_min_max or _is_null(s)) for s in groups):
        return None
    known = [s for s in groups if s.has_min_max]
    return (min(s.min for s in known), max(s.max for s in known)) if known else None


def _null_count(metadata: FileMetaData, name: str) -> int | None:
    groups = _statistics(metadata, name)
    if not groups or not all(s is not None and s.has_null_count for s in groups):
        return None
    return int(sum(s.null_count for s in groups))


def _is_null(statistics: Any) -> bool:
    return bool(statistics.has_null_count and statistics.num_values == 0)


def _statistics(metadata: FileMetaData, name: str) -> list[Any]:
    """Return the statistics of a flat column per row group; None where the writer omitted them."""
    if metadata.num_row_groups == 0:
        return []
    first = metadata.row_group(0)
    indices = [i for i in range(first.num_columns) if first.column(i).path_in_schema == name]
    groups = range(metadata.num_row_groups)
    return [metadata.row_group(group).column(i).statistics for i in indices for group in groups]


def _difference(actual: pa.Schema, expected: list[pa.Field]) -> str:
    """Describe the first columns that differ."""
    known = {field.name: field for field in expected}
    differing = [
        str(field) for field in actual if field.name not in known or known[field.name] != field
    ]
    missing = [name for name in known if name not in actual.names]
    lacks = f" and lacks {missing[:3]}" if missing else ""
    return f"it has {differing[:3]}{lacks}"
