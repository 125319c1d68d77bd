"""Parquet: cut by row groups, read page by page."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import StorageError
from etl.sources import columnar
from etl.sources.source import Source, Split, needed

_BUFFER_BYTES = 1 << 20
_SMALL_GROUP_BYTES = 32 << 20


def cut(whole: Split, split_bytes: int) -> list[Split]:
    """Pieces of about ``split_bytes``, of whole row groups; reads the footer of larger files only.

    A footer that cannot be read gives one split, whose reading then fails by itself.
    """
    if whole.size <= split_bytes:
        return [whole]
    try:
        with storage.open_input(whole.uri) as file:
            footer = pq.read_metadata(file)
    except (StorageError, pa.ArrowException, OSError, UnicodeDecodeError):
        return [whole]
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    scale = whole.size / max(sum(group.total_byte_size for group in groups), 1)
    splits: list[Split] = []
    start, first_row, rows, size = 0, 0, 0, 0.0
    for stop, group in enumerate(groups, 1):
        rows += group.num_rows
        size += group.total_byte_size * scale
        if size >= split_bytes or stop == len(groups):
            splits.append(
                replace(whole, start=start, stop=stop, first_row=first_row, bytes=round(size))
            )
            start, first_row, rows, size = stop, first_row + rows, 0, 0.0
    return splits or [whole]


def read(split: Split, source: Source, batch_bytes: int) -> Iterator[pa.Table]:
    """The split's rows as tables of schema RAW; memory holds a batch, and small row groups or a few pages."""
    row = split.known_first_row
    with storage.open_input(split.uri) as file:
        footer = pq.read_metadata(file)
        # Read whole, a column chunk has no page that claims more than is there; of a stream Arrow takes the
        # memory that is claimed. Its own sizes are not asked: of a damaged footer that ends the process.
        small = split.size <= _SMALL_GROUP_BYTES * footer.num_row_groups
        buffer_bytes = 0 if small else _BUFFER_BYTES
        parquet = pq.ParquetFile(file, metadata=footer, pre_buffer=False, buffer_size=buffer_bytes)
        names = needed(source, parquet.schema_arrow.names, split)
        for index in range(parquet.num_row_groups)[split.start : split.stop]:
            batches = parquet.iter_batches(
                _batch_rows(parquet.metadata.row_group(index), batch_bytes),
                row_groups=[index],
                columns=names,
                use_threads=False,
            )
            for batch in batches:
                yield columnar.raw(batch, split, source, row)
                row += len(batch)


def _batch_rows(group: Any, batch_bytes: int) -> int:
    """Rows of a batch, by the size of all columns: pyarrow aborts when asked for one that a footer lacks."""
    return columnar.batch_rows(group.total_byte_size / max(group.num_rows, 1), batch_bytes)
