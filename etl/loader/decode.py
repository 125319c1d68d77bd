"""Row groups -> tokens: a row group is decoded in pieces, so that a reader holds about a megabyte of it."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from etl.loader.files import Files, Opened
from etl.loader.index import Index, damaged
from etl.loader.pages import is_plain, read_pages
from etl.loader.plan import Stream

_PIECE_TOKENS = 1 << 15
# What decoders raise on bytes that are not what a footer or a page header says.
_DAMAGE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError)


class Piece(NamedTuple):
    """Some tokens of a row group that follow each other."""

    start: int  # the first one's place in the row group
    tokens: np.ndarray  # (n,) int32
    begins: (
        np.ndarray
    )  # (documents,) int64, rising: where in tokens a document begins, if asked for


_NOTHING = Piece(0, np.zeros(0, np.int32), np.zeros(0, np.int64))


class RowGroups:
    """Decodes row groups of a table."""

    def __init__(self, index: Index, files: Files) -> None:
        self._index = index
        self._files = files

    def pieces(self, number: int, *, skip: int = 0, boundaries: bool = False) -> Generator[Piece]:
        """The tokens of a row group of the table, front to back; what lies before ``skip`` may miss.

        Raises StorageError if its file cannot be opened, LoaderError if it cannot be decoded.
        """
        num_tokens, done = int(self._index.group_tokens[number]), 0
        with self._naming(number), self._files.open(number) as opened:
            begins = _begins(opened) if boundaries else _NOTHING.begins
            for start, tokens in _values(opened, num_tokens, skip):
                done = start + len(tokens)
                self._check_ids(tokens)
                within = begins
                if boundaries:
                    first, last = np.searchsorted(begins, (start, done))
                    within = begins[first:last] - start
                yield Piece(start, tokens, within)
                del tokens  # so that the next one can have its memory
            if done != num_tokens:
                raise OSError(f"{done} tokens where its footer says {num_tokens}")

    def begins(self, number: int) -> np.ndarray:
        """Where the documents of a row group begin, and where its last one ends; (rows + 1,) int64.

        Raises as ``pieces`` does.
        """
        with self._naming(number), self._files.open(number) as opened:
            return _begins(opened)

    def _check_ids(self, tokens: np.ndarray) -> None:
        limit = self._index.vocab_size
        if limit is not None and len(tokens) and tokens.view(np.uint32).max() >= limit:
            wrong = tokens[tokens.view(np.uint32) >= limit][0]
            raise OSError(f"token {wrong}, vocab_size={limit} is expected")

    def expect(self, number: int) -> None:
        """Be told that a row group will be wanted soon, and the rest of its lane after it."""
        self._files.expect(number)

    @contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Name the file and the row group where they cannot be decoded."""
        try:
            yield
        except _DAMAGE as error:
            path, group = self._index.group(number)
            raise damaged(self._index.uri(path), group, error) from error


def _begins(opened: Opened) -> np.ndarray:
    """Where the documents of a row group begin, and where the last one ends; (documents + 1,) int64."""
    table = opened.parquet().read_row_group(opened.number, ["num_tokens"], use_threads=False)
    column: Any = table.column(0)
    lengths = [_int32(c.buffers()[1], c.offset, len(c)) for c in column.chunks]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]), dtype=np.int64)


def _values(opened: Opened, num_tokens: int, skip: int) -> Iterator[tuple[int, np.ndarray]]:
    """The tokens of a row group in pieces, each with the place of its first one."""
    source, footer, group = opened
    metadata: Any = footer.row_group(group)
    chunks = (metadata.column(i) for i in range(metadata.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema.startswith("tokens."))
    if is_plain(source, chunk):
        has_empty = chunk.num_values != num_tokens
        yield from read_pages(source, chunk, skip=0 if has_empty else skip)
        return
    place, size = 0, max(metadata.num_rows * _PIECE_TOKENS // num_tokens, 1)
    for batch in opened.parquet().iter_batches(size, [group], ["tokens"], use_threads=False):
        column: Any = batch.column(0)
        values = column.flatten()
        yield place, _int32(values.buffers()[1], values.offset, len(values))
        place += len(values)


def _int32(buffer: Any, start: int, size: int) -> np.ndarray:
    # np.frombuffer, because Arrow's own conversion to numpy imports pandas: 0.3 s and 40 MB.
    if buffer is None or size == 0:
        return np.zeros(0, np.int32)
    return np.frombuffer(buffer, np.int32, count=size, offset=4 * start)


class Tape:
    """Reads an epoch's stream, best from front to back, as it stands in pages; holds one row group open."""

    def __init__(self, row_groups: RowGroups, stream: Stream, *, boundaries: bool) -> None:
        self._row_groups = row_groups
        self._stream = stream
        self.boundaries = boundaries
        self._place = 0
        self._span = range(0)  # of the stream, the tokens of the row group at this place
        self._pieces: Generator[Piece] | None = None
        self._piece = _NOTHING
        self._firsts: np.ndarray | None = None  # of the piece

    def span(self, token: int) -> range:
        """The tokens of the stream that stand in one row group with a token of it."""
        if token not in self._span:
            self.close()
            self._place = self._stream.place(token)
            start = self._stream.start(self._place)
            group = self._stream.groups[self._place]
            self._span = range(start, start + int(self._stream.group_tokens[group]))
        return self._span

    def read(self, token: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The stream's tokens from one on, to the end of its page, (n,) int32, n >= 1, and which of them
        begin a document, (n,) bool, if boundaries are asked for. Both are views of what was decoded.
        """
        offset = token - self.span(token).start
        if self._pieces is None or offset < self._piece.start:
            self._reopen(offset)
        while offset >= self._piece.start + len(self._piece.tokens):
            self._next()
        skip = offset - self._piece.start
        return self._piece.tokens[skip:], None if self._firsts is None else self._firsts[skip:]

    def copy(self, start: int, tokens: np.ndarray, firsts: np.ndarray | None = None) -> None:
        """Copy the stream's tokens from ``start`` on into ``tokens`` (n,) int32, and which of them begin a
        document into ``firsts`` (n,) bool, if that is given.
        """
        done = 0
        while done < len(tokens):
            found, begins = self.read(start + done)
            size = min(len(found), len(tokens) - done)
            tokens[done : done + size] = found[:size]
            if firsts is not None and begins is not None:
                firsts[done : done + size] = begins[:size]
            done += size

    def _reopen(self, offset: int) -> None:
        self._drop()
        group = int(self._stream.groups[self._place])
        self._pieces = self._row_groups.pieces(group, skip=offset, boundaries=self.boundaries)

    def _next(self) -> None:
        self._piece = _NOTHING  # before the next one needs memory, too
        piece = None if self._pieces is None else next(self._pieces, None)
        # A row group that ends too early raises; to ask for more than it has is our own mistake.
        assert piece is not None, "a row group ended before its last token"
        self._piece = piece
        if self.boundaries:
            self._firsts = np.zeros(len(piece.tokens), bool)
            self._firsts[piece.begins] = True

    def _drop(self) -> None:
        if self._pieces is not None:
            self._pieces.close()
        self._pieces, self._piece, self._firsts = None, _NOTHING, None

    def expect(self, token: int) -> None:
        """Be told that the stream will be read from a token on."""
        self._row_groups.expect(int(self._stream.groups[self._stream.place(token)]))

    def close(self) -> None:
        """Close the file that is open."""
        self._drop()
        self._span = range(0)
