"""Reader for Parquet: files are cut by row group and read page by page."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import StorageError
from etl.sources.columns import columns_to_read
from etl.sources.formats import columnar
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".parquet",)
COMPRESSIBLE: bool = False

_BUFFER_BYTES = 1 << 20
_SMALL_GROUP_BYTES = 32 << 20


def cut(whole: Split, split_bytes: int) -> list[Split]:
    """Cut a file into pieces of about ``split_bytes``, each of whole row groups.

    Only the footers of files larger than ``split_bytes`` are read. A file whose footer cannot be read
    becomes one split; reading it reports the error.
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


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the split's rows as tables of schema RAW.

    Memory holds one batch, and either a small row group or a few pages of a larger one.
    """
    row = split.known_first_row
    with storage.open_input(split.uri) as file:
        footer = pq.read_metadata(file)
        # In a column chunk that is read whole, no page can claim more bytes than the chunk has; when
        # streaming, Arrow allocates the size a page claims. The sizes of column chunks in the footer are not
        # used here: in a damaged footer, asking for them aborts the process.
        small = split.size <= _SMALL_GROUP_BYTES * footer.num_row_groups
        buffer_bytes = 0 if small else _BUFFER_BYTES
        parquet = pq.ParquetFile(file, metadata=footer, pre_buffer=False, buffer_size=buffer_bytes)
        names = columns_to_read(source, parquet.schema_arrow.names, split)
        for index in range(parquet.num_row_groups)[split.start : split.stop]:
            batches = parquet.iter_batches(
                _batch_rows(parquet.metadata.row_group(index), batch_bytes),
                row_groups=[index],
                columns=names,
                use_threads=False,
            )
            for batch in batches:
                yield columnar.convert_batch(batch, split, source, row)
                row += len(batch)


def count_records(split: Split) -> int:
    """Return the number of rows in the split's row groups, from the footer."""
    with storage.open_input(split.uri) as file:
        footer = pq.read_metadata(file)
    groups = range(footer.num_row_groups)[split.start : split.stop]
    return sum(footer.row_group(index).num_rows for index in groups)


def _batch_rows(group: Any, batch_bytes: int) -> int:
    """Return the rows per batch, from the size of all columns together.

    pyarrow aborts the process when asked for the size of a column that is not in the footer.
    """
    return columnar.choose_batch_rows(group.total_byte_size / max(group.num_rows, 1), batch_bytes)
