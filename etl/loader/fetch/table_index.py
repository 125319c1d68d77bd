"""The index of a token table: its files, row groups and token counts, without tokens.

The row groups of a shuffled table with several parts are in the order of their random keys. Consecutive row
groups are then mostly of different files, and the index lists a file once for each of its sections, which are
row groups that remain consecutive.

The index is a few arrays of 8 bytes per row group: ten million row groups take 80 MB, and DataLoader workers
inherit or unpickle them at negligible cost.
"""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from etl import storage
from etl.errors import LoaderError
from etl.loader.fetch.range_requests import VERIFY, Ranges, Remote, open_file
from etl.loader.fetch.selected_rows import StruckRows, TableRows, stored_offset
from etl.loader.fetch.token_transform import TransformedDocuments
from etl.parquet.page_marks import parse_marks
from etl.parquet.parquet_file import open_parquet
from etl.parquet.plain_pages import PlainChunk


@dataclass(frozen=True)
class TableIndex:
    """The F files of a table version, sorted by path, or sections of them, and their G row groups."""

    url: str
    version: int
    paths: np.ndarray  # (F,) UTF-8 bytes, relative to the table
    file_tokens: np.ndarray  # (F,) int64, of the whole file
    file_bytes: np.ndarray  # (F,) int64, of the whole file
    first_group: np.ndarray  # (F + 1,) int64: file f has groups first_group[f]:first_group[f + 1]
    group_tokens: np.ndarray  # (G,) int32
    group_documents: np.ndarray  # (G,) int32, without empty documents
    chunks: np.ndarray  # (G,) CHUNKS
    remote: Remote | None = None  # how remote files are read; None: the files are local
    vocab_size: int | None = None  # all token ids must be lower, if it is known
    # (F,) int32: the number in its file of the first row group of a section; None: files have one section
    sections: np.ndarray | None = None
    # (F,) objects: the marks of some pages, as in the footer; None: none are kept
    marks: np.ndarray | None = None
    rows: StruckRows | TableRows | None = None  # which rows are read, and how often; None: all once
    transformed: TransformedDocuments | None = None  # which documents grow before they are packed

    @property
    def stored_tokens(self) -> np.ndarray:
        """The tokens of each row group with the rows that are not read, (G,) int32."""
        stored = None if self.rows is None else self.rows.stored_tokens
        return self.untransformed().group_tokens if stored is None else stored

    def transform(self, transformed: TransformedDocuments) -> "TableIndex":
        """Return the index of the same rows, of which some documents are transformed."""
        tokens = self.group_tokens + transformed.added_tokens()
        return replace(self, group_tokens=tokens, transformed=transformed)

    def untransformed(self) -> "TableIndex":
        """Return the index of the same rows as they are stored."""
        if self.transformed is None:
            return self
        tokens = self.group_tokens - self.transformed.added_tokens()
        return replace(self, group_tokens=tokens, transformed=None)

    def in_epoch(self, epoch: int) -> "TableIndex":
        """Return the index of the same documents, which are transformed as in an epoch."""
        if self.transformed is None:
            return self
        return replace(self, transformed=replace(self.transformed, epoch=epoch))

    @property
    def rows_digest(self) -> str:
        """What identifies the rows that are read, given the files; empty for all."""
        return "" if self.rows is None else self.rows.digest

    @property
    def num_tokens(self) -> int:
        """The number of tokens that are read in an epoch."""
        return int(self.group_tokens.sum(dtype=np.int64))

    def locate_group(self, number: int) -> tuple[str, int]:
        """Return the path of the file that holds a row group, and the row group's number in that file."""
        file = self.file(number)
        skipped = 0 if self.sections is None else int(self.sections[file])
        return self.path(file), number - int(self.first_group[file]) + skipped

    def path(self, file: int) -> str:
        """Return the path of a file."""
        return bytes(self.paths[file]).decode()

    def file(self, group: int) -> int:
        """Return the number of the file that holds a row group of the table."""
        return int(np.searchsorted(self.first_group, group, side="right")) - 1

    @property
    def has_stored_places(self) -> bool:
        """Whether ``stored_place`` is known: not in a view, and not if documents are transformed."""
        return self.transformed is None and not isinstance(self.rows, TableRows)

    def stored_place(self, group: int, token: int) -> int:
        """Return the place of a token that is read among all tokens of its row group."""
        rows = self.rows
        return token if rows is None else stored_offset(rows.spans(group), token)[1]

    def chunk(self, group: int, column: str) -> PlainChunk | None:
        """Return the place of ``tokens`` or ``num_tokens``; None if only pyarrow can read the column."""
        start, size, full_size, codec = self.chunks[group][column].item()
        return None if codec < 0 else PlainChunk(start, size, full_size, codec)

    def page_marks(self, group: int) -> np.ndarray | None:
        """Return the first token and the offset of some pages of a row group, (2, n) int64, if known."""
        if self.marks is None:
            return None
        file = self.file(group)
        marks = parse_marks(self.marks[file])
        _, number = self.locate_group(group)
        if number >= len(marks) or not marks[number].size:
            return None
        return None if self.chunks[group]["has_empty"] else marks[number]

    def open(self, group: int) -> AbstractContextManager[pa.NativeFile]:
        """Open the file of a row group for small reads; raises StorageError if it is not readable."""
        file = self.file(group)
        uri = self.uri(self.path(file))
        ranges = None if self.remote is None else Ranges(self.remote)
        return open_file(uri, int(self.file_bytes[file]), ranges)

    def read_row_group(
        self, number: int, columns: Sequence[str], *, read_dictionary: Sequence[str] = ()
    ) -> pa.Table:
        """Return some columns of all rows of a row group of the table.

        Columns of strings in ``read_dictionary`` are dictionaries. Raises as ``open``, and LoaderError if the
        row group cannot be decoded.
        """
        path, group = self.locate_group(number)
        with self.open(number) as source:
            try:
                file = open_parquet(source, pre_buffer=False, read_dictionary=read_dictionary)
                return file.read_row_group(group, list(columns), use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise decoding_error(self.uri(path), group, error) from error

    def uri(self, path: str) -> str:
        """Return the URI of a file of the table."""
        return storage.join(self.url, path)

    def take(self, groups: np.ndarray) -> "TableIndex":
        """Return the index of some row groups in a given order, (n,) int64; one may come several times."""
        files = np.searchsorted(self.first_group, groups, side="right") - 1
        in_file = groups - self.first_group[files]
        if self.sections is not None:
            in_file = in_file + self.sections[files]
        # A section begins where the row group is not the next one of the same file.
        is_next = (np.diff(files) == 0) & (np.diff(in_file) == 1)
        first = np.flatnonzero(np.concatenate([[True], ~is_next])[: len(groups)])
        return replace(
            self,
            paths=self.paths[files[first]],
            file_tokens=self.file_tokens[files[first]],
            file_bytes=self.file_bytes[files[first]],
            first_group=np.append(first, len(groups)).astype(np.int64),
            group_tokens=self.group_tokens[groups],
            group_documents=self.group_documents[groups],
            chunks=self.chunks[groups],
            marks=None if self.marks is None else self.marks[files[first]],
            sections=in_file[first].astype(np.int32),
            rows=self.rows.take(groups) if isinstance(self.rows, StruckRows) else None,
        )

    def select(self, group: int, rows: pa.Table) -> pa.Table:
        """Return those rows of a row group that are read; ``rows`` are all of them."""
        return rows if self.rows is None else rows.filter(pa.array(self.rows.selected(group)))

    def prefix_lengths(self, group: int, lengths: np.ndarray) -> np.ndarray:
        """Return the tokens of the prefix of each row of a row group that is read, (n,) int64.

        ``lengths`` are the tokens of the rows without prefixes; rows without tokens have no prefix either.
        """
        prefixes = np.zeros(len(lengths), np.int64)
        if isinstance(self.rows, TableRows) and self.rows.prefixes is not None:
            documents, _ = self.rows.documents_of(group)
            prefixes[lengths > 0] = self.rows.prefix_lengths(documents)
        return prefixes

    def lengths_as_read(self, group: int, lengths: np.ndarray) -> np.ndarray:
        """Return the tokens of each row of a row group with its prefix, transformed, (n,) int64.

        ``lengths`` are the tokens of the rows that are read, as they are stored.
        """
        read: np.ndarray = lengths + self.prefix_lengths(group, lengths)
        if self.transformed is not None:
            read += self.transformed.added_to(group, lengths)
        return read

    def digest(self) -> str:
        """Return a hash of what identifies the rows that are read: the files, and which rows of them.

        Files of a Delta table never change, so the hash does not need their row groups.
        """
        digest = hashlib.sha256(b"\n".join(self.paths.tolist()))
        digest.update(self.file_tokens.astype("<i8").tobytes())
        digest.update(self.rows_digest.encode())
        if self.transformed is not None:
            digest.update(self.transformed.digest().encode())
        return digest.hexdigest()


def decoding_error(uri: str, group: int, error: Exception) -> LoaderError:
    """Return the error for a row group that cannot be decoded."""
    return LoaderError(f"row group {group} cannot be decoded ({error})", where=uri, hint=VERIFY)
