"""Reader for Parquet: files are cut by row group and read page by page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import SourceError, StorageError, error_line
from etl.sources.columns import columns_to_read
from etl.sources.formats import columnar
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.formats.parquet_footer import FooterReader, GroupSize
from etl.sources.formats.parquet_pages import PageChecks, TooLargeError
from etl.sources.parts import KnownPart, cut_at
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".parquet",)
COMPRESSIBLE: bool = False

_BUFFER_BYTES = 1 << 20
_MAX_TEXT_RATIO = 8  # of text to its size in a file; chosen here, prose has 3 to 5
_SMALL_GROUP_BYTES = 32 << 20
_MAX_ROWS = (
    64  # decoded at a time: chosen here, as fast as more, and limits what dictionaries decode to
)


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a file into pieces of about ``split_bytes`` of text, each of whole row groups.

    The size of the text is that of its column before compression, from the footer. Footers of files smaller
    than an eighth of ``split_bytes`` are read only for a share of the text. Where a footer cannot be read,
    reading the file reports the error.
    """
    is_small = whole.size * _MAX_TEXT_RATIO <= source.split_bytes
    if not known and is_small and source.share is None:
        return [whole]
    groups = _read_sizes(whole, source)
    if any(part.start >= len(groups) for part in known if part.start):  # the footer cannot be read
        groups = []
    text = _sums(group.column_bytes for group in groups)
    total = _sums(group.total_bytes for group in groups)
    rows = _sums(group.rows for group in groups)
    # Equal pieces, as far as row groups allow; without the text column one, whose error is reported once.
    count = -(-text[-1] // source.split_bytes)
    steps = [each * count // max(text[-1], 1) for each in text]
    points = (index for index in range(1, len(groups)) if steps[index] > steps[index - 1])
    pieces = cut_at(points, known)
    if not groups or len(pieces) == 1:
        return [
            replace(
                whole,
                start=start,
                stop=stop,
                first_row=None if start else 0,
                text_bytes=text[-1] or None,
            )
            for start, stop in pieces
        ]
    return [
        replace(
            whole,
            start=start,
            stop=stop,
            first_row=rows[start],
            bytes=whole.size * (total[end] - total[start]) // max(total[-1], 1),
            text_bytes=text[end] - text[start],
            offset=groups[start].offset,
        )
        for start, stop in pieces
        for end in [len(groups) if stop is None else stop]
    ]


def _read_sizes(whole: Split, source: Source) -> list[GroupSize]:
    """Return the sizes of the row groups, as the footer states them; none if it cannot be read."""
    try:
        with storage.open_input(whole.uri) as file:
            return FooterReader(file, whole).read((), measured=source.columns.text).sizes
    except (SourceError, StorageError, pa.ArrowException, OSError, UnicodeDecodeError):
        return []


def _sums(sizes: Iterable[int]) -> list[int]:
    """Return the sums of the sizes before each row group, and of all; a damaged size counts as 0.

    >>> _sums([3, -1, 4])
    [0, 3, 3, 7]
    """
    return list(accumulate((max(0, size) for size in sizes), initial=0))


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
        self._footer = FooterReader(file, split).read(
            range(2**63)[split.start : split.stop],
            skip_to=None if split.offset is None else (split.start, split.offset),
        )
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
            except (pa.ArrowException, OSError) as error:
                if self._source.damaged == "quarantine" or not columnar.is_damage(error):
                    raise
                what = f"row group {index} is damaged ({error_line(error)})"
                yield from columnar.reject_rows(range(row, end), what, self._split, "damaged")
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
