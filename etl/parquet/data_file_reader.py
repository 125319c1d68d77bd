"""Open the data files of a table; the checksums of all pages that are read are verified.

Rows of a table are read through ``etl.delta.live_rows``, which leaves out struck ones. Only the loader, which
reads ranges of remote files, opens them otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl import storage
from etl.errors import TableError
from etl.parquet.parquet_file import FileMetaData, open_parquet

FileEntry: TypeAlias = str | Mapping[str, Any]
"""A data file of a table: its entry in the list of data files, or only its path."""

Columns: TypeAlias = Sequence[str] | pa.Schema | None
"""The columns to read, by default all. A file may lack columns of a schema: see ``fill_columns``."""

Positions: TypeAlias = npt.NDArray[np.int64]
"""Positions of rows in a data file; the first row has position 0."""

_BUFFER_BYTES = 1 << 20

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


@contextmanager
def open_data_file(
    table: str,
    file: FileEntry,
    columns: Columns = None,
    *,
    at_once: bool = False,
    struck: Positions | None = None,
    part: tuple[int, int] | None = None,
) -> Iterator["DataFileReader"]:
    """Open a data file of the table at a URL, to read some columns of its rows.

    A stored column is read a part at a time, or ``at_once``, which takes fewer requests to a store.
    ``struck`` has the positions in the file of rows to leave out, ascending; ``part`` leaves out those before
    a position, and from another on. Raises StorageError if the file is not readable. Raises TableError, also
    while it is read, if it is damaged or does not have a column.
    """
    uri = storage.join(table, file if isinstance(file, str) else file["path"])
    with storage.open_input(uri) as source:
        yield DataFileReader(source, uri, columns, at_once=at_once, struck=struck, part=part)


def read_columns(table: str, file: FileEntry, columns: Columns = None) -> pa.Table:
    """Return the rows of a data file; the arguments and errors are as in ``open_data_file``."""
    with open_data_file(table, file, columns, at_once=True) as opened:
        return opened.read()


def read_row_groups(table: str, file: FileEntry, columns: Columns = None) -> Iterator[pa.Table]:
    """Yield the row groups of a data file; the arguments and errors are as in ``open_data_file``."""
    with open_data_file(table, file, columns) as opened:
        for group in range(opened.num_row_groups):
            yield opened.row_group(group)


class DataFileReader:
    """The rows of an open data file; the footer and the bounds include rows to leave out."""

    def __init__(
        self,
        source: pa.NativeFile,
        uri: str,
        columns: Columns,
        *,
        at_once: bool,
        struck: Positions | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Read the footer; the arguments are as in ``open_data_file``."""
        self._uri = uri
        self._struck = struck if struck is not None and len(struck) else None
        self._part = part
        with self._naming_file():
            buffer_bytes = 0 if at_once else _BUFFER_BYTES
            # Reads that are merged and made by other threads save requests; they cost more than local ones.
            merges = at_once and not storage.is_local(uri)
            self._file = open_parquet(source, pre_buffer=merges, buffer_size=buffer_bytes)
            stored: list[str] = self._file.schema_arrow.names
        self.footer: FileMetaData = self._file.metadata
        self.num_row_groups: int = self._file.num_row_groups
        self._schema = columns if isinstance(columns, pa.Schema) else None
        if isinstance(columns, pa.Schema):
            self._columns: list[str] | None = columns.names
            required = [field.name for field in columns if not field.nullable]
        else:
            required = list(columns or ())
            self._columns = None if columns is None else required
        if missing := {*required}.difference(stored):
            raise TableError(f"the data file has no column {min(missing)!r}", where=uri)

    @property
    def groups(self) -> range:
        """The row groups that have rows of the part, or all."""
        if self._part is None:
            return range(self.num_row_groups)
        start, stop = self._part
        first = int(np.searchsorted(self._ends, start, "right")) - 1
        return range(first, int(np.searchsorted(self._ends, stop, "left")))

    def read(self) -> pa.Table:
        """Return the rows of the file."""
        with self._naming_file():
            if self._part is None:
                rows, first = self._file.read(self._columns, use_threads=False), 0
            else:
                groups, first = self.groups, int(self._ends[self.groups.start])
                rows = self._file.read_row_groups([*groups], self._columns, use_threads=False)
            return self._fill(self._live(rows, first))

    def row_group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a row group; ``columns`` replaces the columns of the reader."""
        names = self._columns if columns is None else columns
        with self._naming_file():
            rows = self._file.read_row_group(number, names, use_threads=False)
            rows = rows if self._has_all else self._live(rows, int(self._ends[number]))
            return self._fill(rows) if columns is None else rows

    def groups_at(self, positions: Positions) -> Iterator[int]:
        """Yield the row groups with rows at these positions (ascending) in the file."""
        yield from np.flatnonzero(np.diff(np.searchsorted(positions, self._ends))).tolist()

    def positions(self, number: int) -> Positions:
        """Return the positions in the file of the rows of a row group that are not left out."""
        low, high = self._ends[number : number + 2]
        stored = np.arange(*np.clip((low, high), *(self._part or (low, high))))
        return stored if self._struck is None else np.setdiff1d(stored, self._struck)

    def batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file in batches of at most so many."""
        groups = self.groups
        batches = self._file.iter_batches(
            max_rows, columns=self._columns, row_groups=[*groups], use_threads=False
        )
        first = int(self._ends[groups.start])
        while True:
            with self._naming_file():
                batch = next(batches, None)
            if batch is None:
                return
            num_rows = batch.num_rows
            batch = self._live(batch, first)
            first += num_rows
            if not batch.num_rows:
                continue
            if self._schema is None or batch.schema.equals(self._schema):
                yield batch
            else:
                yield from self._fill(pa.Table.from_batches([batch])).to_batches()

    def bounds(self, group: int, column: str) -> tuple[Any, Any] | None:
        """Return the minimum and maximum of a column of a row group by the footer; None if not recorded."""
        if column not in self._numbers:
            return None
        statistics: Any = self.footer.row_group(group).column(self._numbers[column]).statistics
        known = statistics is not None and statistics.has_min_max
        return (statistics.min, statistics.max) if known else None

    def may_hold(self, group: int, column: str, low: Any, high: Any) -> bool:
        """Return whether a row group may have a value from ``low`` to ``high``, by the footer."""
        bounds = self.bounds(group, column)
        return bounds is None or (bounds[0] <= high and bounds[1] >= low)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        first = self.footer.row_group(0)
        return {first.column(i).path_in_schema: i for i in range(first.num_columns)}

    @cached_property
    def _ends(self) -> Positions:
        """The position of the first row of each row group, and the number of rows."""
        sizes = (self.footer.row_group(group).num_rows for group in range(self.num_row_groups))
        return np.cumsum([0, *sizes], dtype=np.int64)

    @property
    def _has_all(self) -> bool:
        return self._struck is None and self._part is None

    def _live(self, rows: _Rows, first: int) -> _Rows:
        """Leave out rows of a part of the file that begins at a position."""
        if self._part is not None:
            start, stop = np.clip(self._part, first, first + rows.num_rows)
            rows, first = rows.slice(start - first, stop - start), int(start)
        if self._struck is None:
            return rows
        low, high = np.searchsorted(self._struck, [first, first + rows.num_rows])
        if low == high:
            return rows
        is_live = np.ones(rows.num_rows, np.bool_)
        is_live[self._struck[low:high] - first] = False
        # pa.array() would import pandas.
        bits = pa.py_buffer(np.packbits(is_live, bitorder="little"))
        return rows.filter(pa.Array.from_buffers(pa.bool_(), rows.num_rows, [None, bits]))

    def _fill(self, rows: pa.Table) -> pa.Table:
        return rows if self._schema is None else fill_columns(rows, self._schema)

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one: of names
            raise TableError(
                f"a data file cannot be read ({error})",
                where=self._uri,
                hint="run `etl verify LAKE`, then `etl repair LAKE`",
            ) from error


def fill_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a data file with the columns of its table, null where the file has none.

    A column that was added to a table later is missing in older data files. Raises KeyError for a missing
    column that is not nullable.
    """
    columns = [
        pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        if field.nullable and field.name not in rows.column_names
        else rows[field.name]
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names).cast(schema)
