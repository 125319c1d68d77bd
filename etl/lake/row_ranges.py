"""Find the data files of a table that hold rows of an input file, and read columns of some of these rows."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import TableError

Address: TypeAlias = tuple[str, int]
"""The source and row of a document."""


class RangeIndex:
    """Data files of a table by the ranges of their addresses, as their statistics say.

    >>> first, second = LogicalFile("0.parquet"), LogicalFile("1.parquet")
    >>> index = RangeIndex([(("c", 0), ("d", 9), second), (("a", 0), ("c", 5), first)])
    >>> [file.path for file in index.files_between(("c", 4), ("c", 7))]
    ['0.parquet', '1.parquet']
    """

    def __init__(self, spans: Iterable[tuple[Address, Address, LogicalFile]]) -> None:
        """``spans`` has the least and greatest address of each data file, and the file."""
        self._spans = sorted(spans, key=itemgetter(0, 1))
        self._lows = [low for low, _, _ in self._spans]
        self._reach = list(accumulate((high for _, high, _ in self._spans), max))

    @classmethod
    def of(cls, table: Table, *, verdict: str | None = None) -> Self:
        """Return the index of a table's data files, or of those with a verdict."""
        names = ["path", "vector", "min.source", "min.row", "max.source", "max.row"]
        names += [] if verdict is None else ["partition.verdict"]
        return cls(
            (
                (f["min.source"], f["min.row"]),
                (f["max.source"], f["max.row"]),
                LogicalFile.of(f),
            )
            for f in table.files(*names, by=())
            if verdict is None or f["partition.verdict"] == verdict
        )

    def files_between(self, low: Address, high: Address) -> tuple[LogicalFile, ...]:
        """Return the files that may hold an address in a range; few are compared if few overlap."""
        first, stop = bisect_left(self._reach, low), bisect_right(self._lows, high)
        return tuple(file for _, greatest, file in self._spans[first:stop] if low <= greatest)


def read_source(
    table_url: str, files: Sequence[LogicalFile], source: str, columns: Sequence[str] | pa.Schema
) -> pa.Table:
    """Return columns of the rows of an input file in some data files; ``columns`` includes ``source``.

    Raises TableError if there are no such files.
    """
    if not files:
        raise _missing_rows(table_url)
    parts = (read_live_rows(table_url, file, columns) for file in files)
    return pa.concat_tables(part.filter(pc.equal(part["source"], source)) for part in parts)


def take_rows(table: pa.Table, rows: pa.ChunkedArray, table_url: str) -> pa.Table:
    """Return the rows of one input file with these values of ``row``, in their order.

    Raises TableError if there is none for one of them.
    """
    indices = pc.index_in(rows, table["row"].combine_chunks())
    if indices.null_count:
        raise _missing_rows(table_url)
    return table.take(indices)


def _missing_rows(table_url: str) -> TableError:
    what = "the table lacks rows that another one has"
    return TableError(what, where=table_url, hint="run `etl verify LAKE`")
