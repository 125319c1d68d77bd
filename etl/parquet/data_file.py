"""Write data files (Parquet), which readers do not see before they are committed."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from etl import storage
from etl.errors import StorageError
from etl.parquet.layout import Layout, bulk_bytes, row_group_cuts
from etl.parquet.page_marks import MarkedOutput
from etl.parquet.parquet_file import parquet_writer, read_footer
from etl.parquet.row_digests import add_digests, digest_rows, hash_column, to_hex
from etl.parquet.statistics_collector import StatisticsCollector

DIGEST_TAG: Final = "tokenlake.digest"
"""The tag of a data file in a log with the digest of its rows."""

UNITS_TAG: Final = "tokenlake.units"
"""The tag of a data file in a log with the units of work whose rows it holds, if there are several."""

_FILE_NAME = re.compile(r"\w+-[0-9a-f]{12}-\d+\.parquet")


@dataclass(frozen=True)
class DataFile:
    """A finished data file: path relative to the table, bytes, rows, and Delta statistics (JSON).

    A deletion vector, given as in the list of a table's data files, may strike some of these rows. ``digest``
    is that of all its rows (``etl.parquet.row_digests``) without the columns that no digest has, if known.
    ``units`` says which units of work have rows in the file, if there are several (``etl.lake.unit_files``).
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    statistics: str
    vector: str | None = None
    digest: str | None = None
    units: str | None = None


def is_data_file(path: str) -> bool:
    """Return whether the name of a data file has the form that ``DataFileWriter`` uses.

    >>> is_data_file("kind=a/" + "a" * 32 + "-0123456789ab-0.parquet"), is_data_file("x.parquet")
    (True, False)
    """
    return _FILE_NAME.fullmatch(path.rsplit("/", 1)[-1]) is not None


class DataFileWriter:
    """A writer that appends Arrow tables to new data files, invisible to readers until a commit.

    ``name`` is the prefix of the file names; a random suffix makes them unique.
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
        self._files: list[DataFile] = []
        self._file: _OpenFile | None = None

    def append(self, table: pa.Table) -> None:
        """Append rows; row groups are written as soon as they are full."""
        if table.num_rows == 0:
            return
        if self._layout.running is not None:  # a placeholder: the file determines the values
            counts, total = self._layout.running
            if total not in table.column_names:
                table = table.append_column(total, table[counts])
        bulk, name = self._layout.bulk, self._layout.bulk_hash
        if bulk is not None and name is not None and name not in table.column_names:
            table = table.append_column(
                name, hash_column(table[bulk].cast(self._schema.field(bulk).type))
            )
        table = table.select(self._schema.names).cast(self._schema)
        self._pending.append(table)
        self._pending_bytes += bulk_bytes(table, self._layout.bulk)
        if self._pending_bytes >= self._layout.row_group_size:
            self._write_pending(keep_rest=True)

    def close(self) -> list[DataFile]:
        """Finish the files and return them; each footer is read back to check the number of rows."""
        self._write_pending(keep_rest=False)
        self._close_file()
        return self._files

    @property
    def path(self) -> str:
        """The path of the file to which the next row is written."""
        return f"{self._prefix}-{len(self._files)}.parquet"

    def _write_pending(self, *, keep_rest: bool) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        cuts = row_group_cuts(table, self._layout)
        if keep_rest:
            cuts = cuts[:-1]
        start = 0
        for stop in cuts:
            self._write_row_group(table.slice(start, stop - start))
            start = stop
        rest = table.slice(start)
        self._pending = [rest] if rest.num_rows else []
        self._pending_bytes = bulk_bytes(rest, self._layout.bulk)

    def _write_row_group(self, table: pa.Table) -> None:
        if self._file is None:
            uri = storage.join(self._url, self.path)
            self._file = _OpenFile(uri, self._schema, self._layout, self._partition)
        self._file.write(table)
        if self._file.bulk_bytes >= self._layout.file_bytes:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is None:
            return
        size = self._file.close()
        rows, statistics = self._file.statistics.rows, self._file.statistics.to_json()
        digest = to_hex(add_digests([self._file.digest]))
        self._files.append(
            DataFile(self.path, size, rows, self._partition, statistics, digest=digest)
        )
        self._file = None


class _OpenFile:
    """A Parquet file being written, with its statistics."""

    def __init__(
        self, uri: str, schema: pa.Schema, layout: Layout, partition: Mapping[str, str]
    ) -> None:
        self.uri = uri
        self.digest = 0
        self.statistics = StatisticsCollector(layout.statistics, layout.lookup)
        self.bulk_bytes = 0
        self._layout = layout
        self._partition = partition
        self._total = 0
        self._output = storage.open_output(uri)
        self._file = self._output.__enter__()
        self._started = 0  # how many bytes of the file the disk writes already
        with storage.convert_write_errors(uri):
            self._pages = MarkedOutput(self._file) if layout.marks_pages else None
            self._writer = parquet_writer(
                self._pages or self._file,
                schema,
                compression=layout.compression,
                compression_level=layout.compression_level,
                data_page_size=layout.page_bytes,
                use_dictionary=[name for name in layout.dictionary if name in schema.names],
                write_statistics=[name for name in layout.statistics if name in schema.names],
                column_encoding=dict.fromkeys(layout.ascending, "DELTA_BINARY_PACKED") or None,
            )

    def write(self, table: pa.Table) -> None:
        if self._layout.running is not None:
            table = self._with_total(table, *self._layout.running)
        with storage.convert_write_errors(self.uri):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            if self._pages is not None:
                self._pages.end_row_group(table, str(self._layout.bulk))
            self._started = storage.start_writing(self._file, self._started)
        self.statistics.update(table)
        self.digest += digest_rows(table, without=self._layout.not_digested, values=self._partition)
        self.bulk_bytes += bulk_bytes(table, self._layout.bulk)

    def _with_total(self, table: pa.Table, counts: str, total: str) -> pa.Table:
        ends = self._total + np.cumsum(np.asarray(table[counts].combine_chunks()), dtype=np.int64)
        self._total = int(ends[-1])
        index = table.schema.get_field_index(total)
        return table.set_column(index, table.schema.field(index), pa.array(ends, pa.int64()))

    def close(self) -> int:
        """Close, read the footer back, and return the size in bytes."""
        with storage.convert_write_errors(self.uri):
            if self._pages is not None:
                self._writer.add_key_value_metadata(self._pages.metadata())
            self._writer.close()
            self._output.__exit__(None, None, None)
        with storage.open_input(self.uri) as file:
            rows = read_footer(file).num_rows
            size = file.size()
        if rows != self.statistics.rows:
            raise StorageError(
                f"a data file has {rows} rows, but {self.statistics.rows} were written",
                where=self.uri,
            )
        return int(size)
