"""Read columns of a table, by batch of rows or by input file."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.live_rows import live_rows, read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake.unit_files import unit_parts

_BATCH_ROWS = 1 << 17


def read_batches(table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows, in the order of the data files.

    Raises TableError for a data file without one of them.
    """
    for entry in table.data_files().to_pylist():
        with live_rows(table.url, entry, columns) as file:
            yield from file.batches(_BATCH_ROWS)


class RowsBySource:
    """The rows of a table by input file; ``verdict`` selects rows of ``documents`` or ``texts``."""

    def __init__(self, table: Table, *, verdict: str | None = None) -> None:
        self._table = table
        self._files: list[tuple[str, str, LogicalFile]] = []
        for row in table.data_files().to_pylist():
            if verdict in (None, row.get("partition.verdict")):
                for part in unit_parts(table.url, row):
                    entry = part["min.source"], part["max.source"], LogicalFile.of(part)
                    self._files.append(entry)

    def sources(self) -> list[str]:
        """Return the input files in order; of a data file without a list of its units, the least source."""
        return sorted({low for low, _, _ in self._files})

    def read(self, source: str, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows of an input file."""
        schema = pa.schema([self._table.schema.field(name) for name in columns])
        parts = [schema.empty_table()]
        for low, high, file in self._files:
            if low <= source <= high:
                rows = read_live_rows(self._table.url, file, ["source", *columns])
                rows = rows.filter(pc.equal(rows["source"], source))
                parts.append(rows.select(list(columns)).cast(schema))
        return pa.concat_tables(parts)
