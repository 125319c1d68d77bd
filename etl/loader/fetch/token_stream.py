"""Decode the tokens of row groups page by page, in the order of an epoch."""

from collections import OrderedDict
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from etl.loader.fetch.row_group_files import Files
from etl.loader.fetch.table_index import TableIndex, decoding_error
from etl.loader.order.epoch import EpochStream
from etl.parquet.parquet_file import open_parquet
from etl.parquet.plain_pages import Marks, Pages, PlainChunk

_PIECE_TOKENS = 1 << 14
_MARKED_ROW_GROUPS = 1024  # about a kilobyte each
# What decoders raise on bytes that do not match the footer or a page header.
_DAMAGE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError)


class Piece(NamedTuple):
    """Consecutive tokens of a row group."""

    start: int  # offset of the first token in the row group
    tokens: np.ndarray  # (n,) int32
    document_starts: np.ndarray  # (documents,) int64, ascending, in ``tokens``; if requested


_NO_STARTS = np.zeros(0, np.int64)
_EMPTY = Piece(0, np.zeros(0, np.int32), _NO_STARTS)


class OpenRowGroup(Protocol):
    """A row group whose tokens are read from front to back."""

    def next(self) -> Piece | None:
        """Return the next piece; None at the end."""


class MarksOf:
    """The marks of the row groups in which lanes began last, shared by all: several begin in the same one."""

    def __init__(self, index: TableIndex) -> None:
        self._index = index
        self._marks: OrderedDict[int, Marks] = OrderedDict()

    def of(self, number: int) -> Marks:
        """Return the marks of a row group of the table."""
        marks = self._marks.pop(number, None)
        if marks is None:
            marks = Marks(self._index.page_marks(number))
        self._marks[number] = marks
        if len(self._marks) > _MARKED_ROW_GROUPS:
            self._marks.popitem(last=False)
        return marks


class RowGroups:
    """A decoder of the row groups of a table."""

    def __init__(self, index: TableIndex, files: Files, marks: MarksOf | None = None) -> None:
        self._index = index
        self._files = files
        self._marks = MarksOf(index) if marks is None else marks

    def open(self, number: int, *, skip: int = 0, boundaries: bool = False) -> OpenRowGroup:
        """Open a row group of the table; tokens before ``skip`` may be omitted.

        Reading raises StorageError if the file is missing, LoaderError if it cannot be decoded.
        """
        return _Pieces(self._index, self._files, number, skip, self._marks, boundaries=boundaries)

    def pieces(self, number: int, *, skip: int = 0, boundaries: bool = False) -> Generator[Piece]:
        """Yield the tokens of a row group of the table; raises as ``open``."""
        opened = RowGroups.open(self, number, skip=skip, boundaries=boundaries)
        while (piece := opened.next()) is not None:
            yield piece

    def document_starts(self, number: int) -> np.ndarray:
        """Return the document starts of a row group and the end of its last one, (rows + 1,) int64.

        Raises as ``open``.
        """
        with _NamingRowGroup(self._index, number):
            return _read_document_starts(self._index, self._files, number)

    def prepare(self, number: int) -> None:
        """Prepare to read a row group, and the rest of its lane after it."""
        self._files.prepare(number)

    def keep(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens of a piece, (n,) int32, wherever they are kept until the next piece."""
        return self._files.keep(tokens)


class _Pieces:
    """The pieces of a row group: its pages if they are plain, else what pyarrow decodes."""

    def __init__(
        self,
        index: TableIndex,
        files: Files,
        number: int,
        skip: int,
        marks: MarksOf,
        *,
        boundaries: bool,
    ) -> None:
        self._index = index
        self._number = number
        self._skip = 0 if index.chunks[number]["has_empty"] else skip
        self._num_tokens = int(index.group_tokens[number])
        self._done = 0
        with _NamingRowGroup(index, number):
            chunk = index.chunk(number, "tokens")
            self._pages = None
            if chunk is not None:
                shared = marks.of(number) if self._skip else Marks()
                self._pages = _open_pages(files, number, chunk, marks=shared, skip=self._skip)
            self._batches = _decode(index, number) if self._pages is None else None
            self._starts = None
            if boundaries:
                starts = _read_document_starts(index, files, number)
                self._starts = starts.astype(np.int32)  # of all lanes these add up

    def next(self) -> Piece | None:
        """Return the next piece; None at the end."""
        with _NamingRowGroup(self._index, self._number):
            found = self._next_values()
            if found is None:
                if self._done != self._num_tokens:
                    records = f"but its footer records {self._num_tokens}"
                    raise OSError(f"it has {self._done} tokens, {records}")
                return None
            start, tokens = found
            self._done = start + len(tokens)
            self._check_ids(tokens)
            starts = _NO_STARTS
            if self._starts is not None:
                first, last = np.searchsorted(self._starts, (start, self._done))
                starts = self._starts[first:last].astype(np.int64) - start
            return Piece(start, tokens, starts)

    def _next_values(self) -> tuple[int, np.ndarray] | None:
        if self._pages is not None:
            return self._pages.next(self._skip)
        assert self._batches is not None
        return next(self._batches, None)

    def _check_ids(self, tokens: np.ndarray) -> None:
        limit = self._index.vocab_size
        if limit is not None and len(tokens) and tokens.view(np.uint32).max() >= limit:
            wrong = tokens[tokens.view(np.uint32) >= limit][0]
            raise OSError(f"token id {wrong} is out of range for vocab_size={limit}")


class _NamingRowGroup:
    """Turns decoding errors into errors that name the file and the row group.

    A generator with ``contextmanager`` would take a microsecond for each page.
    """

    def __init__(self, index: TableIndex, number: int) -> None:
        self._index = index
        self._number = number

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, _DAMAGE):
            path, group = self._index.locate_group(self._number)
            raise decoding_error(self._index.uri(path), group, error) from error


def _open_pages(
    files: Files, number: int, chunk: PlainChunk, *, marks: Marks | None = None, skip: int = 0
) -> Pages | None:
    """Return the pages of a chunk of a row group from a value on, or None if they are of another kind.

    With marks, it is a chunk of lists.
    """
    pages = Pages(partial(files.read, number), chunk, of_lists=marks is not None, marks=marks)
    pages.seek(skip)
    return pages if pages.is_known() else None


def _read_document_starts(index: TableIndex, files: Files, number: int) -> np.ndarray:
    """Return the document starts of a row group and the end of its last one, (rows + 1,) int64."""
    lengths = [np.zeros(1, np.int64)]
    chunk = index.chunk(number, "num_tokens")
    pages = None if chunk is None else _open_pages(files, number, chunk)
    if pages is not None:
        lengths += [values for _, values in pages]
    else:
        column: Any = index.read_row_group(number, ["num_tokens"]).column(0)
        lengths += [_int32(c.buffers()[1], c.offset, len(c)) for c in column.chunks]
    return np.cumsum(np.concatenate(lengths), dtype=np.int64)


def _decode(index: TableIndex, number: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the tokens of a row group with pyarrow, each part with the offset of its first token."""
    with index.open(number) as file:
        parquet = open_parquet(file, pre_buffer=index.remote is not None)
        _, group = index.locate_group(number)
        rows = parquet.metadata.row_group(group).num_rows
        start, size = 0, max(rows * _PIECE_TOKENS // int(index.group_tokens[number]), 1)
        for batch in parquet.iter_batches(size, [group], ["tokens"], use_threads=False):
            column: Any = batch.column(0)
            values = column.flatten()
            yield start, _int32(values.buffers()[1], values.offset, len(values))
            start += len(values)


def _int32(buffer: Any, start: int, size: int) -> np.ndarray:
    # np.frombuffer, because Arrow's own conversion to numpy imports pandas: 0.3 s and 40 MB.
    if buffer is None or size == 0:
        return np.zeros(0, np.int32)
    return np.frombuffer(buffer, np.int32, count=size, offset=4 * start)


class TokenStream:
    """A reader of an epoch's stream, fastest from front to back; holds one piece in memory."""

    def __init__(self, row_groups: RowGroups, stream: EpochStream, *, boundaries: bool) -> None:
        self._row_groups = row_groups
        self._stream = stream
        self.boundaries = boundaries
        self._group_index = -1  # of the open row group, in the order of the stream
        self._group_range = range(0)  # its tokens in the stream
        self._group: OpenRowGroup | None = None
        self._start = self._end = 0  # the tokens of the stream in memory
        self._tokens = _EMPTY.tokens
        self._is_start: np.ndarray | None = None  # which of them begin a document

    def group_range(self, token: int) -> range:
        """Return the range of the stream's tokens that share a row group with a token."""
        if token not in self._group_range:
            self.close()
            index = self._group_index + 1
            is_next = token == self._group_range.stop and 0 < index < len(self._stream.groups)
            if not is_next or not self._stream.group_tokens[self._stream.groups[index]]:
                index = self._stream.group_index(token)
            start = self._stream.start(index)
            group = self._stream.groups[index]
            self._group_index = index
            self._group_range = range(start, start + int(self._stream.group_tokens[group]))
        return self._group_range

    def read(self, token: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the stream's tokens from ``token`` to the end of its piece, and which begin a document.

        The tokens are (n,) int32 with n >= 1, the flags (n,) bool or None without ``boundaries``. Both are
        views of the decoded piece.
        """
        if not self._start <= token < self._end:
            self._seek(token)
        skip = token - self._start
        return self._tokens[skip:], None if self._is_start is None else self._is_start[skip:]

    def copy(self, start: int, tokens: np.ndarray, is_start: np.ndarray | None = None) -> None:
        """Copy the stream's tokens from ``start`` into ``tokens`` (n,) int32.

        If given, ``is_start`` (n,) bool receives which of them begin a document.
        """
        done = 0
        while done < len(tokens):
            read, read_is_start = self.read(start + done)
            size = min(len(read), len(tokens) - done)
            tokens[done : done + size] = read[:size]
            if is_start is not None and read_is_start is not None:
                is_start[done : done + size] = read_is_start[:size]
            done += size
            del read, read_is_start  # the next piece can use the memory

    def _seek(self, token: int) -> None:
        """Read the piece that has a token."""
        group_range = self.group_range(token)
        offset = token - group_range.start
        if self._group is None or token < self._start:
            self._group = self._row_groups.open(
                int(self._stream.groups[self._group_index]), skip=offset, boundaries=self.boundaries
            )
        while True:
            self._tokens, self._is_start = _EMPTY.tokens, None  # the next piece can use the memory
            piece = self._group.next()
            # A row group that ends too early raises; requesting more than it has is a bug.
            assert piece is not None, "a row group ended before its last token"
            self._tokens = self._row_groups.keep(piece.tokens)
            self._start = group_range.start + piece.start
            self._end = self._start + len(piece.tokens)
            if self.boundaries:
                self._is_start = np.zeros(len(piece.tokens), bool)
                self._is_start[piece.document_starts] = True
            if token < self._end:
                return

    def prepare(self, token: int) -> None:
        """Prepare to read the stream from a token."""
        self._row_groups.prepare(int(self._stream.groups[self._stream.group_index(token)]))

    def close(self) -> None:
        """Free the piece."""
        self._group, self._tokens, self._is_start = None, _EMPTY.tokens, None
        self._start = self._end = 0
