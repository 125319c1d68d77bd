"""Read the rows of a table's data files: those in the Parquet file that its deletion vector does not strike.

This is the only way to read rows of a table. A data file is given as a ``LogicalFile``, or by its entry in
the table's list of data files (``Table.files``) with at least ``path`` and ``vector``: the rows of a path
depend on the version. Keep or send such files, not paths. Of a part of a file, only its rows are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.deletion_vectors import read_struck
from etl.delta.logical_file import LogicalFile
from etl.parquet.data_file_reader import Columns, DataFileReader, open_data_file

TableFile: TypeAlias = LogicalFile | Mapping[str, Any]
"""A data file at a version: with its deletion vector."""


def live_rows(
    table: str, file: TableFile, columns: Columns = None, *, at_once: bool = False
) -> AbstractContextManager[DataFileReader]:
    """Open the live rows of a data file of the table at a URL: as a whole, by row groups or in batches.

    The arguments and errors are as in ``open_data_file``; raises TableError also for a deletion vector that
    is missing or damaged.
    """
    entry = file._asdict() if isinstance(file, LogicalFile) else file
    struck, part = read_struck(table, entry), entry.get("part")
    return open_data_file(table, entry, columns, at_once=at_once, struck=struck, part=part)


def read_live_rows(table: str, file: TableFile, columns: Columns = None) -> pa.Table:
    """Return the live rows of a data file; the arguments and errors are as in ``live_rows``."""
    with live_rows(table, file, columns, at_once=True) as rows:
        return rows.read()


def read_live_row_groups(
    table: str, file: TableFile, columns: Columns = None
) -> Iterator[pa.Table]:
    """Yield the live rows of each row group; the arguments and errors are as in ``live_rows``."""
    with live_rows(table, file, columns) as rows:
        for group in rows.groups:
            yield rows.row_group(group)


def read_live_rows_with(
    table: str, file: TableFile, column: str, values: pa.Array, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the live rows with some values in a column, by row group.

    The other columns of row groups without such rows are not read. The errors are as in ``live_rows``.
    """
    with live_rows(table, file, columns) as rows:
        for group in rows.groups:
            is_wanted = pc.is_in(rows.row_group(group, [column])[column], values)
            if pc.any(is_wanted).as_py():
                yield rows.row_group(group).filter(is_wanted)
