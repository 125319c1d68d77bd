"""Merge small data files into larger ones.

Rows do not change, only the files that hold them. All rows of a unit of work are in one file, so the log can
name the file of each unit (see ``etl.lake.ledger``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.errors import TableError
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Rewrite, RewrittenFile
from etl.lake.table_specs import ARCHIVED_TOKENS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.data_file_reader import fill_columns, open_data_file
from etl.parquet.layout import Layout
from etl.parquet.page_marks import find_marks


@dataclass(frozen=True, kw_only=True)
class FileGroup:
    """Data files of one partition to merge, in row order, their live rows, and the units in them."""

    files: tuple[LogicalFile, ...]
    units: tuple[str, ...]
    rows: int
    partition: Mapping[str, str] = field(default_factory=dict)


def merge_files(ledger: Ledger, group: FileGroup, layout: Layout) -> Rewrite:
    """Write the rows of a group to one new file.

    Holds one row group in memory, or all rows if the layout has ascending columns, which they are then
    sorted by. Raises TableError if the number of rows differs from the log.
    """
    key = ledger.key("merged", *(file.path for file in group.files))
    tables: Iterable[pa.Table] = (
        table for file in group.files for table in _read_row_groups(ledger, file)
    )
    if layout.ascending:
        order = [(name, "ascending") for name in layout.ascending]
        tables = [pa.concat_tables(tables).sort_by(order)]
    if layout is TOKENS.layout:
        layout = _tokens_layout(ledger, group.files[0].path)
    data_files = _write_files(ledger, tables, layout, key, group.partition)
    return rewrite_of(ledger, group, RewrittenFile(key, data_files, group.units))


def rewrite_of(ledger: Ledger, group: FileGroup, merged: RewrittenFile) -> Rewrite:
    """Return the rewrite of a group; raise TableError if the new files have another number of rows."""
    written = sum(file.rows for file in merged.data_files)
    if written != group.rows:
        raise TableError(
            f"{len(group.files)} data files have {written} rows, but the log says {group.rows}",
            where=ledger.url,
            hint="run `etl verify LAKE`",
        )
    return Rewrite(group.files, [merged])


def _tokens_layout(ledger: Ledger, path: str) -> Layout:
    """Return the layout of a data file of tokens, so that rewriting keeps an archive compressed."""
    with open_data_file(ledger.url, path) as file:
        has_marks = bool(find_marks(file.footer.metadata))
    return TOKENS.layout if has_marks else ARCHIVED_TOKENS


def _read_row_groups(ledger: Ledger, file: LogicalFile) -> Iterator[pa.Table]:
    """Yield the live rows of each row group; raise TableError rather than copy damaged ones."""
    assert ledger.table is not None
    fields = list(ledger.table.schema)
    for rows in read_live_row_groups(ledger.url, file):
        own = [f for f in fields if f.nullable or f.name in rows.column_names]
        yield fill_columns(rows, pa.schema(own))


def _write_files(
    ledger: Ledger,
    tables: Iterable[pa.Table],
    layout: Layout,
    key: str,
    partition: Mapping[str, str] | None = None,
) -> Sequence[DataFile]:
    assert ledger.table is not None
    one_file = replace(layout, file_bytes=1 << 62)  # the caller bounds the size
    writer = DataFileWriter(
        ledger.url, ledger.table.schema, one_file, name=key, partition=partition
    )
    for table in tables:
        writer.append(table)
    return writer.close()
