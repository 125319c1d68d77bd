"""Reader for Parquet: files are cut by row group and read page by page."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import SourceError, StorageError
from etl.sources.columns import columns_to_read
from etl.sources.formats import columnar
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.formats.parquet_footer import FooterReader
from etl.sources.formats.parquet_pages import PageChecks, TooLargeError
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".parquet",)
COMPRESSIBLE: bool = False

_BUFFER_BYTES = 1 << 20
_SMALL_GROUP_BYTES = 32 << 20
_MAX_ROWS = (
    64  # decoded at a time: chosen here, as fast as more, and limits what dictionaries decode to
)


def cut(whole: Split, split_bytes: int) -> list[Split]:
    """Cut a file into pieces of about ``split_bytes``, each of whole row groups.

    Only the footers of files larger than ``split_bytes`` are read. A file whose footer cannot be read
    becomes one split; reading it reports the error.
    """
    if whole.size <= split_bytes:
        return [whole]
    try:
        with storage.open_input(whole.uri) as file:
            footer = _read_metadata(file, whole)
    except (SourceError, StorageError, pa.ArrowException, OSError, UnicodeDecodeError):
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

    Memory holds one batch, and either a small row group or a few pages of a larger one. The rows of a row
    group that takes too much memory have a reason.
    """
    with storage.open_input(split.uri) as file:
        file_reader = _FileReader(file, split, source, batch_bytes)
        row = split.known_first_row
        for index in file_reader.groups:
            yield from file_reader.read_group(index, row)
            row += file_reader.count_rows(index)


def count_records(split: Split) -> int:
    """Return the number of rows in the split's row groups, from the footer."""
    with storage.open_input(split.uri) as file:
        footer = _read_metadata(file, split)
    groups = range(footer.num_row_groups)[split.start : split.stop]
    return sum(footer.row_group(index).num_rows for index in groups)


def _read_metadata(file: pa.NativeFile, split: Split) -> pq.FileMetaData:
    FooterReader(file, split).read(groups=())
    return pq.read_metadata(file)


class _FileReader:
    """Reads row groups of a file."""

    def __init__(self, file: pa.NativeFile, split: Split, source: Source, batch_bytes: int) -> None:
        self._file, self._split, self._source, self._batch_bytes = file, split, source, batch_bytes
        self._footer = FooterReader(file, split).read(range(2**63)[split.start : split.stop])
        self._metadata = pq.read_metadata(file)
        self.groups = range(self._metadata.num_row_groups)[split.start : split.stop]
        names = pq.ParquetFile(file, metadata=self._metadata).schema_arrow.names
        self._names = columns_to_read(source, names, split)
        self._max_rows = columnar.MAX_BATCH_ROWS

    def count_rows(self, index: int) -> int:
        """Return the number of rows in a row group."""
        return int(self._metadata.row_group(index).num_rows)

    def read_group(self, index: int, first_row: int) -> Iterator[pa.Table]:
        """Yield the rows of a row group, in smaller batches if larger ones take too much memory."""
        row, end = first_row, first_row + self.count_rows(index)
        while True:
            batches = self._batches(index, skip=row - first_row)
            try:
                for batch in columnar.gather(batches, self._batch_bytes):
                    yield from columnar.convert(batch, self._split, self._source, row)
                    row += len(batch)
            except TooLargeError as error:
                if self._max_rows > 1:
                    self._max_rows = max(1, self._max_rows // 2)
                    continue
                what = (
                    f"row group {index} takes more than {MAX_DECODED_BYTES >> 20} MB of memory to"
                    f" read; most of it is for column {error.column!r}"
                )
                yield from columnar.reject_rows(range(row, end), what, self._split)
            return

    def _batches(self, index: int, skip: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group after the first ones."""
        names = {*self._names}
        chunks = [chunk for chunk in self._footer.groups[index] if chunk.column.name in names]
        # A column chunk that is read whole costs fewer requests.
        small = sum(chunk.length for chunk in chunks) <= _SMALL_GROUP_BYTES
        group = self._metadata.row_group(index)
        rows = min(
            columnar.choose_batch_rows(
                group.total_byte_size / max(group.num_rows, 1), self._batch_bytes
            ),
            self._max_rows,
        )
        # A text in a list stays in its dictionary, since any number of texts may be in one row.
        dictionaries = [
            chunk.column.path
            for chunk in chunks
            if chunk.column.value_bytes is None and chunk.column.is_list
        ]
        pages = PageChecks(self._file, chunks, rows, dictionaries)
        parquet = pq.ParquetFile(
            pa.PythonFile(pages, mode="r"),
            metadata=self._metadata,
            read_dictionary=dictionaries,
            pre_buffer=False,
            buffer_size=0 if small else _BUFFER_BYTES,
        )
        for batch in parquet.iter_batches(
            rows, row_groups=[index], columns=self._names, use_threads=False
        ):
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))
