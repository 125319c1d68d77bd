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
from etl.sources.formats.parquet_footer import ColumnChunk, FooterReader, GroupSize
from etl.sources.formats.parquet_pages import PageChecks, TooLargeError
from etl.sources.parts import KnownPart, cut_at
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".parquet",)
COMPRESSIBLE: bool = False

_BUFFER_BYTES = 1 << 20
_MAX_TEXT_RATIO = 8  # of text to its size in a file; chosen here, prose has 3 to 5
_SMALL_GROUP_BYTES = 32 << 20
_RUN_BYTES = 4 << 20
_RUN_CHUNKS = 4096
"""The size of row groups that are read together, at most; chosen here, larger runs are not faster."""


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a file into pieces of about ``split_bytes`` of text, each of whole row groups.

    The size of the text is the size of its column before compression, from the footer. Footers of files
    smaller than an eighth of ``split_bytes`` are read only for a share of the text. Where a footer cannot
    be read, reading the file reports the error.
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
    # Four row groups of 10 bytes, in two pieces: the sums 0 10 20 30 40 are in the pieces 0 0 1 1 2, so
    # the second piece begins with row group 2.
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

    Memory holds one batch, and either a few small row groups or a few pages of a larger one. The rows of a
    row group that takes too much memory have a reason. Raises ArrowInvalid, with the row group and the
    column, if a page is damaged.
    """
    with storage.open_input(split.uri) as file:
        yield from _FileReader(file, split, source, batch_bytes).read()


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
    """Reads the row groups of a split, small ones together with their neighbours."""

    def __init__(self, file: pa.NativeFile, split: Split, source: Source, batch_bytes: int) -> None:
        self._file, self._split, self._source, self._batch_bytes = file, split, source, batch_bytes
        footer = FooterReader(file, split).read(
            range(2**63)[split.start : split.stop],
            skip_to=None if split.offset is None else (split.start, split.offset),
        )
        self._metadata = pq.read_metadata(file)
        self._groups = range(self._metadata.num_row_groups)[split.start : split.stop]
        self._rows, self._bytes = {}, {}
        for index in self._groups:
            group = self._metadata.row_group(index)
            self._rows[index], self._bytes[index] = group.num_rows, group.total_byte_size
        names = pq.ParquetFile(file, metadata=self._metadata).schema_arrow.names
        self._names = columns_to_read(source, names, split)
        chosen = {*self._names}
        self._chunks = {
            index: [chunk for chunk in chunks if chunk.column.name in chosen]
            for index, chunks in footer.groups.items()
        }
        self._max_rows = columnar.MAX_BATCH_ROWS
        self._run_bytes = min(_RUN_BYTES, batch_bytes)

    def read(self) -> Iterator[pa.Table]:
        """Yield the rows of all row groups."""
        row = self._split.known_first_row
        for run in self._runs():
            yield from self._read_run(run, row)
            row += sum(self._rows[index] for index in run)

    def _runs(self) -> Iterator[range]:
        """Yield neighbouring row groups that are read together: one large one, or several small ones."""
        start, size, chunks = self._groups.start, 0, 0
        for index in self._groups:
            added = len(self._chunks[index])
            stored = sum(chunk.length for chunk in self._chunks[index])
            group_bytes = max(self._bytes[index], stored)
            is_full = size + group_bytes > self._run_bytes or chunks + added > _RUN_CHUNKS
            if is_full and index > start:
                yield range(start, index)
                start, size, chunks = index, 0, 0
            size, chunks = size + group_bytes, chunks + added
        if self._groups:
            yield range(start, self._groups.stop)

    def _read_run(self, run: range, first_row: int) -> Iterator[pa.Table]:
        """Yield the rows of a run; where that fails, one row group after the other, to locate the error."""
        row = first_row
        if len(run) > 1:
            try:
                for table in self._tables(run, row):
                    yield table
                    row += len(table)
            except (TooLargeError, pa.ArrowException, OSError):
                self._run_bytes //= 2
            else:
                return
        for index in run:
            end = first_row + self._rows[index]
            if row <= first_row:
                yield from self._read_group(index, first_row)
            elif row < end:
                yield from self._read_group(index, first_row, skip=row - first_row)
            first_row = end

    def _read_group(self, index: int, first_row: int, skip: int = 0) -> Iterator[pa.Table]:
        """Yield the rows of a row group after the first ones, in batches that do not take too much memory."""
        row, end = first_row + skip, first_row + self._rows[index]
        while True:
            try:
                for table in self._tables(range(index, index + 1), row, skip=row - first_row):
                    yield table
                    row += len(table)
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
                    raise pa.ArrowInvalid(f"row group {index}: {error_line(error)}") from error
                what = f"row group {index} is damaged ({error_line(error)})"
                yield from columnar.reject_rows(range(row, end), what, self._split, "damaged")
            return

    def _tables(self, groups: range, row: int, skip: int = 0) -> Iterator[pa.Table]:
        """Yield the rows of row groups after the first ones, numbered from ``row``."""
        batches = self._batches(groups, skip)
        for batch in columnar.gather(batches, self._batch_bytes):
            yield from columnar.convert(batch, self._split, self._source, row)
            row += len(batch)

    def _batches(self, groups: range, skip: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups after the first ones.

        Raises ArrowInvalid if the row groups have another number of rows than the footer claims.
        """
        chunks = [chunk for index in groups for chunk in self._checked_chunks(index)]
        expected = sum(self._rows[index] for index in groups)
        # A column chunk that is read whole costs fewer requests.
        small = sum(chunk.length for chunk in chunks) <= _SMALL_GROUP_BYTES
        row_bytes = sum(self._bytes[index] for index in groups) / max(expected, 1)
        batch_rows = columnar.choose_batch_rows(row_bytes, self._batch_bytes)
        rows = min(batch_rows, self._max_rows)
        # A text in a list stays in its dictionary, since any number of texts may be in one row. Arrow cannot
        # do that for several row groups at once, whose dictionaries differ.
        dictionaries = [
            chunk.column.path
            for chunk in chunks
            if chunk.column.value_bytes is None and chunk.column.is_list and len(groups) == 1
        ]
        pages = PageChecks(self._file, chunks, rows, dictionaries, is_small=small)
        parquet = pq.ParquetFile(
            pa.PythonFile(pages, mode="r"),
            metadata=self._metadata,
            read_dictionary=dictionaries,
            pre_buffer=False,
            buffer_size=0 if small else _BUFFER_BYTES,
        )
        read = 0
        for batch in parquet.iter_batches(
            rows, row_groups=[*groups], columns=self._names, use_threads=False
        ):
            read += len(batch)
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))
        if read != expected:
            raise pa.ArrowInvalid(f"{read} rows were read, but the footer claims {expected}")

    def _checked_chunks(self, index: int) -> list[ColumnChunk]:
        """Return the column chunks to read of a row group."""
        rows = self._rows[index]
        for chunk in self._chunks[index]:
            if chunk.values != rows and not chunk.column.is_list:
                raise pa.ArrowInvalid(
                    f"column {chunk.column.path!r} has {chunk.values} values, but the row group {rows} rows"
                )
        return self._chunks[index]
