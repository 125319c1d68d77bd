"""Merge small data files into larger ones.

Rows do not change, only the files that hold them. The rows of a unit of work stay together, so the log can
list the units in a file (``etl.lake.unit_files``).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.errors import TableError
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Rewrite
from etl.lake.table_specs import ARCHIVED_TOKENS, TOKENS
from etl.lake.unit_files import UnitRows, rows_of, to_tag, unit_parts
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.data_file_reader import fill_columns, open_data_file
from etl.parquet.layout import Layout
from etl.parquet.page_marks import find_marks


@dataclass(frozen=True, kw_only=True)
class FileGroup:
    """Data files of one partition to merge, in row order, their live rows, and the units in them."""

    files: tuple[LogicalFile, ...]
    units: tuple[UnitRows, ...]  # in row order; none if their rows are mixed
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
    tag = to_tag(group.units)
    return rewrite_of(ledger, group, [replace(file, units=tag) for file in data_files])


def rewrite_of(ledger: Ledger, group: FileGroup, data_files: Sequence[DataFile]) -> Rewrite:
    """Return the rewrite of a group; raise TableError if the new files have another number of rows."""
    written = sum(file.rows for file in data_files)
    if written != group.rows:
        raise TableError(
            f"{len(group.files)} data files have {written} rows, but the log says {group.rows}",
            where=ledger.url,
            hint="run `etl verify LAKE`",
        )
    return Rewrite(group.files, data_files)


def rewrite_without(
    ledger: Ledger, file: Mapping[str, Any], units: Collection[str], layout: Layout
) -> list[DataFile]:
    """Write the rows of a data file that are not of some units to a new file, given its entry.

    Raises TableError if the file is damaged.
    """
    assert ledger.table is not None
    rest = [part for part in unit_parts(ledger.url, file) if part["unit"] not in units]
    key = ledger.key("rest", file["path"])
    tables = (t for part in rest for t in _read_row_groups(ledger, LogicalFile.of(part)))
    partition = {name: file[f"partition.{name}"] for name in ledger.table.partition_columns}
    written = _write_files(ledger, tables, layout, key, partition)
    tag = to_tag(rows_of(part) for part in rest)
    return [replace(each, units=tag) for each in written]


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
