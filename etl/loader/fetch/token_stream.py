"""Decode the tokens of row groups in pieces of about a megabyte, in the order of an epoch."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from etl.loader.fetch.parquet_pages import is_plain, read_pages
from etl.loader.fetch.row_group_files import Files, OpenRowGroup
from etl.loader.fetch.table_index import TableIndex, decoding_error
from etl.loader.order.epoch import EpochStream

_PIECE_TOKENS = 1 << 15
# What decoders raise on bytes that do not match the footer or a page header.
_DAMAGE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError)


class Piece(NamedTuple):
    """Consecutive tokens of a row group."""

    start: int  # offset of the first token in the row group
    tokens: np.ndarray  # (n,) int32
    document_starts: np.ndarray  # (documents,) int64, ascending, in ``tokens``; if requested


_EMPTY = Piece(0, np.zeros(0, np.int32), np.zeros(0, np.int64))


class RowGroups:
    """A decoder of the row groups of a table."""

    def __init__(self, index: TableIndex, files: Files) -> None:
        self._index = index
        self._files = files

    def pieces(self, number: int, *, skip: int = 0, boundaries: bool = False) -> Generator[Piece]:
        """Yield the tokens of a row group of the table in order; those before ``skip`` may be omitted.

        Raises StorageError if the file cannot be opened, LoaderError if the row group cannot be decoded.
        """
        num_tokens, done = int(self._index.group_tokens[number]), 0
        with self._naming_row_group(number), self._files.open(number) as opened:
            starts = read_document_starts(opened) if boundaries else _EMPTY.document_starts
            for start, tokens in _read_values(opened, num_tokens, skip):
                done = start + len(tokens)
                self._check_ids(tokens)
                piece_starts = starts
                if boundaries:
                    first, last = np.searchsorted(starts, (start, done))
                    piece_starts = starts[first:last] - start
                yield Piece(start, tokens, piece_starts)
                del tokens  # the next piece can reuse its memory
            if done != num_tokens:
                raise OSError(f"it has {done} tokens, but its footer records {num_tokens}")

    def document_starts(self, number: int) -> np.ndarray:
        """Return the document starts of a row group and the end of its last one, (rows + 1,) int64.

        Raises as ``pieces`` does.
        """
        with self._naming_row_group(number), self._files.open(number) as opened:
            return read_document_starts(opened)

    def _check_ids(self, tokens: np.ndarray) -> None:
        limit = self._index.vocab_size
        if limit is not None and len(tokens) and tokens.view(np.uint32).max() >= limit:
            wrong = tokens[tokens.view(np.uint32) >= limit][0]
            raise OSError(f"token id {wrong} is out of range for vocab_size={limit}")

    def prepare(self, number: int) -> None:
        """Prepare to read a row group, and the rest of its lane after it."""
        self._files.prepare(number)

    @contextmanager
    def _naming_row_group(self, number: int) -> Iterator[None]:
        """Turn decoding errors into errors that name the file and the row group."""
        try:
            yield
        except _DAMAGE as error:
            path, group = self._index.locate_group(number)
            raise decoding_error(self._index.uri(path), group, error) from error


def read_document_starts(opened: OpenRowGroup) -> np.ndarray:
    """Return the document starts of a row group and the end of its last one, (rows + 1,) int64."""
    table = opened.parquet().read_row_group(opened.number, ["num_tokens"], use_threads=False)
    column: Any = table.column(0)
    lengths = [_int32(c.buffers()[1], c.offset, len(c)) for c in column.chunks]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]), dtype=np.int64)


def _read_values(
    opened: OpenRowGroup, num_tokens: int, skip: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the tokens of a row group in pieces, each with the offset of its first token."""
    source, footer, group = opened
    metadata: Any = footer.row_group(group)
    chunks = (metadata.column(i) for i in range(metadata.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema.startswith("tokens."))
    if is_plain(source, chunk):
        has_empty = chunk.num_values != num_tokens
        yield from read_pages(source, chunk, skip=0 if has_empty else skip)
        return
    start, size = 0, max(metadata.num_rows * _PIECE_TOKENS // num_tokens, 1)
    for batch in opened.parquet().iter_batches(size, [group], ["tokens"], use_threads=False):
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
    """A reader of an epoch's stream, fastest from front to back; holds one row group open."""

    def __init__(self, row_groups: RowGroups, stream: EpochStream, *, boundaries: bool) -> None:
        self._row_groups = row_groups
        self._stream = stream
        self.boundaries = boundaries
        self._group_index = 0  # of the open row group, in the order of the stream
        self._group_range = range(0)  # its tokens in the stream
        self._pieces: Generator[Piece] | None = None
        self._piece = _EMPTY
        self._is_start: np.ndarray | None = None  # which tokens of the piece begin a document

    def group_range(self, token: int) -> range:
        """Return the range of the stream's tokens that share a row group with a token."""
        if token not in self._group_range:
            self.close()
            self._group_index = self._stream.group_index(token)
            start = self._stream.start(self._group_index)
            group = self._stream.groups[self._group_index]
            self._group_range = range(start, start + int(self._stream.group_tokens[group]))
        return self._group_range

    def read(self, token: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the stream's tokens from ``token`` to the end of its piece, and which begin a document.

        The tokens are (n,) int32 with n >= 1, the flags (n,) bool or None without ``boundaries``. Both are
        views of the decoded piece.
        """
        offset = token - self.group_range(token).start
        if self._pieces is None or offset < self._piece.start:
            self._reopen(offset)
        while offset >= self._piece.start + len(self._piece.tokens):
            self._next_piece()
        skip = offset - self._piece.start
        return self._piece.tokens[skip:], None if self._is_start is None else self._is_start[skip:]

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

    def _reopen(self, offset: int) -> None:
        self._release()
        group = int(self._stream.groups[self._group_index])
        self._pieces = self._row_groups.pieces(group, skip=offset, boundaries=self.boundaries)

    def _next_piece(self) -> None:
        self._piece = _EMPTY  # free its memory before the next one needs some
        piece = None if self._pieces is None else next(self._pieces, None)
        # A row group that ends too early raises; requesting more than it has is a bug.
        assert piece is not None, "a row group ended before its last token"
        self._piece = piece
        if self.boundaries:
            self._is_start = np.zeros(len(piece.tokens), bool)
            self._is_start[piece.document_starts] = True

    def _release(self) -> None:
        if self._pieces is not None:
            self._pieces.close()
        self._pieces, self._piece, self._is_start = None, _EMPTY, None

    def prepare(self, token: int) -> None:
        """Prepare to read the stream from a token."""
        self._row_groups.prepare(int(self._stream.groups[self._stream.group_index(token)]))

    def close(self) -> None:
        """Close the open file."""
        self._release()
        self._group_range = range(0)
