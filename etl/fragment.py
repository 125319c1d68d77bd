"""Fragments: the Parquet data files that workers write before the driver commits them.

A fragment has a unique name, row groups of bounded size, and the statistics for the Delta log. It is not
visible to readers until a commit adds it.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.errors import StorageError

_MAX_STATISTIC_CHARS = 512  # longer values would bloat the log
_LOOKUP_COLUMNS = ("source", "file")  # kept at any length: the driver finds data files by them
_MAX_ROW_GROUP_ROWS = 1 << 17
_FILE_NAME = re.compile(r"\w+-[0-9a-f]{12}-\d+\.parquet")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a table's data files, which affects speed and size but never a value."""

    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...]  # columns with minimum and maximum in the log
    dictionary: tuple[str, ...] = ("source",)
    ascending: tuple[str, ...] = ()  # ascending integers, stored as differences
    bulk: str | None = None  # the column that determines the size of row groups
    running: tuple[str, str] | None = None  # (counts, their running total inside one file)
    row_group_bytes: int = 16 << 20  # of the bulk column, before compression
    file_bytes: int = 512 << 20  # of the bulk column, before compression
    page_bytes: int = 1 << 20  # of a column, before compression: the least that a reader holds
    compression: str = "zstd"
    compression_level: int | None = 1


DOCUMENTS = Layout(
    partition_by=("verdict",),
    statistics=("id", "source", "row", "reason"),
    dictionary=("source", "lang", "reason"),
    bulk="text",
)
DUPLICATES = Layout(
    statistics=("source", "row", "file", "kind"),
    dictionary=("source", "keeper_source", "kind", "file"),
)
KEYS = Layout(partition_by=("kind",), statistics=("key",), dictionary=("file",), ascending=("key",))
# Chosen for training by benchmarks/stored_form.py: lz4 decodes more than twice as fast as zstd. At level 3
# (LZ4 HC) files are a sixth smaller than at the default level, and take three times as long to write. 6 MB of
# int32 are 1.5 M tokens; a reader holds one page for each open file.
TOKENS = Layout(
    statistics=("id", "source", "row", "token_end"),
    bulk="tokens",
    running=("num_tokens", "token_end"),
    row_group_bytes=6 << 20,
    page_bytes=1 << 18,
    compression="lz4",
    compression_level=3,
)
# For tables that are archived rather than read: half the size, a third of the speed.
ARCHIVED_TOKENS = replace(TOKENS, page_bytes=1 << 20, compression="zstd", compression_level=9)


@dataclass(frozen=True)
class Fragment:
    """A finished data file: path relative to the table, bytes, rows, and Delta statistics (JSON)."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    statistics: str


def is_fragment(path: str) -> bool:
    """Return whether the name of a data file has the form that ``FragmentWriter`` uses.

    >>> is_fragment("verdict=kept/" + "a" * 32 + "-0123456789ab-0.parquet"), is_fragment("x.parquet")
    (True, False)
    """
    return _FILE_NAME.fullmatch(path.rsplit("/", 1)[-1]) is not None


@dataclass
class _Statistics:
    """Running minimum, maximum and null count per column, in the form of the Delta log."""

    columns: tuple[str, ...]
    rows: int = 0
    low: dict[str, Any] = field(default_factory=dict)
    high: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    def update(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for name in self.columns:
            column = table[name]
            self.nulls[name] = self.nulls.get(name, 0) + column.null_count
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self.low[name] = min(self.low.get(name, bounds["min"]), bounds["min"])
                self.high[name] = max(self.high.get(name, bounds["max"]), bounds["max"])

    def to_json(self) -> str:
        names = [
            n for n in self.low if n in _LOOKUP_COLUMNS or _is_short(self.low[n], self.high[n])
        ]
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: self.low[name] for name in names},
                "maxValues": {name: self.high[name] for name in names},
                "nullCount": self.nulls,
            }
        )


def _is_short(*values: Any) -> bool:
    return all(not isinstance(v, str) or len(v) <= _MAX_STATISTIC_CHARS for v in values)


class FragmentWriter:
    """A writer that appends Arrow tables to new data files, invisible to readers until a commit.

    ``name`` is the prefix of the file names (the split's key); a random suffix makes them unique.
    """

    def __init__(
        self,
        url: str,
        schema: pa.Schema,
        layout: Layout,
        *,
        name: str,
        partition: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._layout = layout
        self._partition = dict(partition or {})
        self._schema = pa.schema([f for f in schema if f.name not in layout.partition_by])
        folder = "".join(f"{key}={value}/" for key, value in self._partition.items())
        self._prefix = f"{folder}{name}-{uuid.uuid4().hex[:12]}"
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._fragments: list[Fragment] = []
        self._file: _OpenFile | None = None

    def append(self, table: pa.Table) -> None:
        """Append rows; row groups are written as soon as they are full."""
        if table.num_rows == 0:
            return
        if self._layout.running is not None:  # a placeholder: the file determines the values
            counts, total = self._layout.running
            if total not in table.column_names:
                table = table.append_column(total, table[counts])
        table = table.select(self._schema.names).cast(self._schema)
        self._pending.append(table)
        self._pending_bytes += _bulk_bytes(table, self._layout.bulk)
        if self._pending_bytes >= self._layout.row_group_bytes:
            self._write_pending(keep_rest=True)

    def close(self) -> list[Fragment]:
        """Finish the files and return them; each footer is read back to check the number of rows."""
        self._write_pending(keep_rest=False)
        self._close_file()
        return self._fragments

    @property
    def path(self) -> str:
        """The path of the file to which the next row is written."""
        return f"{self._prefix}-{len(self._fragments)}.parquet"

    def _write_pending(self, *, keep_rest: bool) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        cuts = _row_group_cuts(table, self._layout)
        if keep_rest:
            cuts = cuts[:-1]
        start = 0
        for stop in cuts:
            self._write_row_group(table.slice(start, stop - start))
            start = stop
        rest = table.slice(start)
        self._pending = [rest] if rest.num_rows else []
        self._pending_bytes = _bulk_bytes(rest, self._layout.bulk)

    def _write_row_group(self, table: pa.Table) -> None:
        if self._file is None:
            uri = storage.join(self._url, self.path)
            self._file = _OpenFile(uri, self._schema, self._layout)
        self._file.write(table)
        if self._file.bulk_bytes >= self._layout.file_bytes:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is None:
            return
        size = self._file.close()
        rows, statistics = self._file.statistics.rows, self._file.statistics.to_json()
        self._fragments.append(Fragment(self.path, size, rows, self._partition, statistics))
        self._file = None


class _OpenFile:
    """A Parquet file being written, with its statistics."""

    def __init__(self, uri: str, schema: pa.Schema, layout: Layout) -> None:
        self.uri = uri
        self.statistics = _Statistics(layout.statistics)
        self.bulk_bytes = 0
        self._layout = layout
        self._total = 0
        self._output = storage.open_output(uri)
        output = self._output.__enter__()
        with storage.writing(uri):
            self._writer = pq.ParquetWriter(
                output,
                schema,
                compression=layout.compression,
                compression_level=layout.compression_level,
                data_page_size=layout.page_bytes,
                use_dictionary=[name for name in layout.dictionary if name in schema.names],
                write_statistics=[name for name in layout.statistics if name in schema.names],
                column_encoding=dict.fromkeys(layout.ascending, "DELTA_BINARY_PACKED") or None,
                write_page_checksum=True,  # `etl verify` finds bits that flip in storage
            )

    def write(self, table: pa.Table) -> None:
        if self._layout.running is not None:
            table = self._with_total(table, *self._layout.running)
        with storage.writing(self.uri):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.statistics.update(table)
        self.bulk_bytes += _bulk_bytes(table, self._layout.bulk)

    def _with_total(self, table: pa.Table, counts: str, total: str) -> pa.Table:
        ends = self._total + np.cumsum(np.asarray(table[counts].combine_chunks()), dtype=np.int64)
        self._total = int(ends[-1])
        index = table.schema.get_field_index(total)
        return table.set_column(index, table.schema.field(index), pa.array(ends, pa.int64()))

    def close(self) -> int:
        """Close, read the footer back, and return the size in bytes."""
        with storage.writing(self.uri):
            self._writer.close()
            self._output.__exit__(None, None, None)
        with storage.open_input(self.uri) as file:
            rows = pq.read_metadata(file).num_rows
            size = file.size()
        if rows != self.statistics.rows:
            raise StorageError(
                f"a data file has {rows} rows, but {self.statistics.rows} were written",
                where=self.uri,
            )
        return int(size)


def _bulk_bytes(table: pa.Table, bulk: str | None) -> int:
    """Return the bytes of the values of the bulk column, or the number of rows if there is none."""
    if bulk is None or table.num_rows == 0:
        return int(table.num_rows)
    return int(sum(_lengths(chunk).sum() for chunk in table[bulk].chunks))


def _lengths(chunk: pa.Array) -> np.ndarray:
    """Return the bytes of each value of a string or list<int32> array, which have int32 offsets."""
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)[
        chunk.offset : chunk.offset + len(chunk) + 1
    ]
    width = 4 if pa.types.is_list(chunk.type) else 1
    return np.diff(offsets).astype(np.int64) * width


def _row_group_cuts(table: pa.Table, layout: Layout) -> list[int]:
    """Return the row numbers at which row groups end; the last is the number of rows."""
    num_rows = table.num_rows
    if layout.bulk is None:
        return [*range(_MAX_ROW_GROUP_ROWS, num_rows, _MAX_ROW_GROUP_ROWS), num_rows]
    lengths = np.concatenate([_lengths(c) for c in table[layout.bulk].chunks])
    ends = np.cumsum(lengths)
    cuts: list[int] = []
    start, done = 0, 0
    while start < num_rows:
        stop = int(np.searchsorted(ends, done + layout.row_group_bytes, side="left")) + 1
        stop = min(stop, start + _MAX_ROW_GROUP_ROWS, num_rows)
        cuts.append(stop)
        start, done = stop, int(ends[stop - 1])
    return cuts
