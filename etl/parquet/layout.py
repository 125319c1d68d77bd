"""How the data files of a table are written: row groups, pages, compression, statistics."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a table's data files, which affects speed and size but never a value."""

    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...]  # columns with minimum and maximum in the log
    lookup: tuple[str, ...] = ()  # columns of ``statistics`` whose strings are whole in the log
    dictionary: tuple[str, ...] = ()
    ascending: tuple[str, ...] = ()  # ascending integers, stored as differences
    bulk: str | None = None  # the column that determines the size of row groups
    bulk_hash: str | None = (
        None  # the column that the writer fills with the hash of the bulk column
    )
    running: tuple[str, str] | None = None  # (counts, their running total inside one file)
    not_digested: Collection[str] = ()  # columns that are not part of a digest of the rows
    row_group_bytes: int = 16 << 20  # of the bulk column, before compression
    row_group_rows: int = 1 << 17  # at most
    file_bytes: int = 512 << 20  # of the bulk column, before compression
    page_bytes: int = 1 << 20  # of a column, before compression: the least that a reader holds
    marks_pages: bool = False  # the footer says where the pages of the bulk column, of lists, begin
    compression: str = "zstd"
    compression_level: int | None = 1

    @property
    def row_group_size(self) -> int:
        """The size of a full row group, as ``bulk_bytes`` measures it."""
        return self.row_group_rows if self.bulk is None else self.row_group_bytes


def bulk_bytes(table: pa.Table, bulk: str | None) -> int:
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


def row_group_cuts(table: pa.Table, layout: Layout) -> list[int]:
    """Return the row numbers at which row groups end; the last is the number of rows."""
    num_rows = table.num_rows
    if layout.bulk is None:
        return [*range(layout.row_group_rows, num_rows, layout.row_group_rows), num_rows]
    lengths = np.concatenate([_lengths(c) for c in table[layout.bulk].chunks])
    ends = np.cumsum(lengths)
    cuts: list[int] = []
    start, done = 0, 0
    while start < num_rows:
        stop = int(np.searchsorted(ends, done + layout.row_group_bytes, side="left")) + 1
        stop = min(stop, start + layout.row_group_rows, num_rows)
        cuts.append(stop)
        start, done = stop, int(ends[stop - 1])
    return cuts
