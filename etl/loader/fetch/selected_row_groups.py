"""Decode only the rows of row groups that are read: those not struck, or selected by a view."""

from collections.abc import Generator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from etl.loader.fetch.row_group_files import Files
from etl.loader.fetch.selected_rows import Prefixes, StruckRows, TableRows, stored_offset
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import MarksOf, OpenRowGroup, Piece, RowGroups
from etl.loader.fetch.transformed_row_groups import GeneratedPieces, TransformedRowGroups

_PAGE_TOKENS = 1 << 14  # a gap of a page or more is skipped: a page has 64 kB

_NONE = np.zeros(0, np.int64)


def open_row_groups(index: TableIndex, files: Files, marks: MarksOf | None = None) -> RowGroups:
    """Return the decoder of the row groups of an index: of its rows that are read, or transformed."""
    if index.transformed is not None:
        stored = open_row_groups(index.untransformed(), files, marks)
        return TransformedRowGroups(index, files, stored, index.transformed)
    rows = index.rows
    if rows is None:
        return RowGroups(index, files, marks)
    selected = _SelectedRowGroups(index, rows, files, marks)
    if isinstance(rows, StruckRows) or rows.prefixes is None:
        return selected
    return _PrefixedRowGroups(index, files, selected, rows, rows.prefixes)


class _SelectedRowGroups(RowGroups):
    """A decoder that yields the tokens of the selected rows, as if there were no others.

    Pages without such rows are not decompressed. Row groups without struck rows are read as in other tables.
    """

    def __init__(
        self, index: TableIndex, rows: StruckRows | TableRows, files: Files, marks: MarksOf | None
    ) -> None:
        super().__init__(replace(index, group_tokens=index.stored_tokens, rows=None), files, marks)
        self._rows = rows

    def open(self, number: int, *, skip: int = 0, boundaries: bool = False) -> OpenRowGroup:
        """Open a row group, as that of whole row groups does."""
        if isinstance(self._rows, StruckRows) and self._rows.is_whole(number):
            return super().open(number, skip=skip, boundaries=boundaries)
        return GeneratedPieces(self.pieces(number, skip=skip, boundaries=boundaries))

    def pieces(self, number: int, *, skip: int = 0, boundaries: bool = False) -> Generator[Piece]:
        """Yield the selected tokens of a row group in order; those before ``skip`` may be omitted.

        Raises as the pieces of whole row groups do.
        """
        starts, stops = self._rows.spans(number)
        sizes = stops - starts
        before = np.cumsum(sizes) - sizes  # the selected tokens before each span
        span, token = stored_offset((starts, stops), skip)  # the next one to read
        document_starts = self.document_starts(number)[:-1] if boundaries else _NONE
        can_skip = not self._index.chunks[number]["has_empty"]
        pieces = super().pieces(number, skip=token)
        while token < stops[-1]:
            piece = next(pieces)  # a row group that ends too early raises
            stop = piece.start + len(piece.tokens)
            if stop <= token:
                continue
            last = int(np.searchsorted(starts, stop))  # the first span that begins after the piece
            froms = np.maximum(starts[span:last], token) - piece.start
            ends = np.minimum(stops[span:last], stop) - piece.start
            bounds = zip(froms.tolist(), ends.tolist(), strict=True)
            parts = [piece.tokens[first:end] for first, end in bounds]
            done = int(before[span]) + token - int(starts[span])
            tokens = parts[0] if len(parts) == 1 else np.concatenate(parts)
            del piece, parts  # the next piece can reuse their memory
            first, end = np.searchsorted(document_starts, (done, done + len(tokens)))
            yield Piece(done, tokens, document_starts[first:end] - done)
            del tokens
            span = int(np.searchsorted(stops, stop, side="right"))
            token = max(int(starts[span]), stop) if span < len(stops) else stop
            if can_skip and token - stop >= _PAGE_TOKENS:
                pieces.close()
                pieces = super().pieces(number, skip=token)
        pieces.close()

    def document_starts(self, number: int) -> np.ndarray:
        """Return the starts of the selected documents and the end of the last one, (rows + 1,) int64."""
        if isinstance(self._rows, StruckRows):
            lengths = np.diff(super().document_starts(number))
        else:
            lengths = self._rows.lengths_of(number)
        lengths = lengths[self._rows.selected(number)]
        return np.cumsum(np.concatenate([np.zeros(1, np.int64), lengths]), dtype=np.int64)


class _PrefixedRowGroups(RowGroups):
    """A decoder that yields the prefix of each document before its tokens, as negative numbers."""

    def __init__(
        self,
        index: TableIndex,
        files: Files,
        selected: RowGroups,
        rows: TableRows,
        prefixes: Prefixes,
    ) -> None:
        super().__init__(index, files)
        self._selected = selected
        self._rows, self._prefixes = rows, prefixes

    def open(self, number: int, *, skip: int = 0, boundaries: bool = False) -> OpenRowGroup:
        """Open a row group, as that of whole row groups does."""
        return GeneratedPieces(self.pieces(number, skip=skip, boundaries=boundaries))

    def pieces(self, number: int, *, skip: int = 0, boundaries: bool = False) -> Generator[Piece]:
        """Yield the tokens of a row group with their prefixes; those before ``skip`` may be omitted.

        Raises as the pieces of whole row groups do.
        """
        documents, ends = self._rows.documents_of(number)
        prefixes = self._prefixes.lengths(documents)
        starts = np.concatenate([[0], ends[:-1]])
        texts = starts - np.cumsum(prefixes) + prefixes  # the starts without prefixes
        first = int(np.searchsorted(ends, skip, side="right"))
        offset = max(skip - int(starts[first]) - int(prefixes[first]), 0)
        for piece in self._selected.pieces(number, skip=int(texts[first]) + offset):
            stop = piece.start + len(piece.tokens)
            begin, end = np.searchsorted(texts, (piece.start, stop)).tolist()
            if begin < end and texts[begin] == piece.start:
                done = int(starts[begin])
            else:  # the piece begins inside the document before
                done = int(starts[begin - 1] + prefixes[begin - 1] + piece.start - texts[begin - 1])
            marked = self._prefixes.of(documents[begin:end])
            tokens = _insert(piece.tokens, texts[begin:end] - piece.start, *marked)
            del piece, marked  # the next piece can reuse their memory
            yield Piece(done, tokens, starts[begin:end] - done if boundaries else _NONE)
            del tokens

    def document_starts(self, number: int) -> np.ndarray:
        """Return the starts of the documents with their prefixes, and the end of the last one."""
        return np.concatenate([[0], self._rows.documents_of(number)[1]])


def _insert(
    tokens: np.ndarray, places: np.ndarray, added: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Return tokens with parts of ``added``, which have these ends, inserted at some places.

    >>> _insert(np.array([1, 2, 3]), np.array([0, 2]), np.array([-7, -8, -9]), np.array([2, 3])).tolist()
    [-7, -8, 1, 2, -9, 3]
    """
    bounds, before = [*places.tolist(), len(tokens)], 0
    parts = [tokens[: bounds[0]]]
    for (start, stop), end in zip(pairwise(bounds), ends.tolist(), strict=True):
        parts += (added[before:end], tokens[start:stop])
        before = end
    return np.concatenate(parts)
