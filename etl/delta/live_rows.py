"""Read the rows of a table's data files: those in the Parquet file that its deletion vector does not strike.

This is the only way to read rows of a table. A data file is given by its entry in the table's list of data
files (``Table.files``), with at least ``path`` and ``vector``: the rows of a path depend on the version.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from etl.delta.deletion_vectors import read_struck
from etl.parquet.data_file_reader import Columns, DataFileReader, open_data_file


def live_rows(
    table: str, file: Mapping[str, Any], columns: Columns = None, *, at_once: bool = False
) -> AbstractContextManager[DataFileReader]:
    """Open the live rows of a data file of the table at a URL: as a whole, by row groups or in batches.

    The arguments and errors are as in ``open_data_file``; raises TableError also for a deletion vector that
    is missing or damaged.
    """
    struck = read_struck(table, file)
    return open_data_file(table, file, columns, at_once=at_once, struck=struck)


def read_live_rows(table: str, file: Mapping[str, Any], columns: Columns = None) -> pa.Table:
    """Return the live rows of a data file; the arguments and errors are as in ``live_rows``."""
    with live_rows(table, file, columns, at_once=True) as rows:
        return rows.read()


def read_live_row_groups(
    table: str, file: Mapping[str, Any], columns: Columns = None
) -> Iterator[pa.Table]:
    """Yield the live rows of each row group; the arguments and errors are as in ``live_rows``."""
    with live_rows(table, file, columns) as rows:
        for group in range(rows.num_row_groups):
            yield rows.row_group(group)
