"""Read the bytes of requested intervals of windows, as rows of numbers that a shuffle can move.

An interval of a decided document comes from the table ``keys``, without its place in the document. It is
found by key and chunk in the anchors that ``texts`` holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from etl import schemas
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile, file_of, row_of
from etl.dedup.short_documents import empty_numbers
from etl.dedup.stored_file_list import StoredFileList
from etl.kernels.bytes.fixed_rows import copy_to_rows
from etl.kernels.bytes.utf8 import Texts, frozen
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.equal_chunks import Intervals
from etl.kernels.hashing.repeated_windows import hash_windows

_WORDS: Final = 16  # of 8 bytes in a row; fewer take more rows, more leave more bytes unused
_ROW: Final = 8 * _WORDS
_TEXT: Final = [f"w{k}" for k in range(_WORDS)]

INTERVALS: Final = empty_numbers("hash", "chunk", "document", "ordinal", "windows")
"""Intervals of windows: ``hash`` is the key, ``ordinal`` the first byte, or negative in decided documents."""

REQUESTS: Final = empty_numbers(
    "hash", "chunk", "document", "ordinal", "windows", "hashed", "bucket"
)
"""Intervals whose bytes are needed; ``hashed`` is 1 if the hashes of their windows are needed instead."""

SNIPPETS: Final = empty_numbers("hash", "document", "start", "windows", "ordinal", "part", *_TEXT)
"""Rows of intervals' bytes; ``part`` numbers the rows of an interval, ``start`` is its first byte."""


class _Snippets(NamedTuple):
    """Requests of one file, and the bytes of their intervals in rows of ``_ROW`` bytes."""

    requests: pl.DataFrame  # with ``start``, the first byte in the document
    rows: NDArray[np.uint8]  # (n, _ROW)
    num_rows: NDArray[np.int64]  # (m,) of each request


@dataclass(frozen=True)
class SnippetReader:
    """Partition tasks that read the bytes of requested intervals, one file at a time."""

    files: StoredFileList
    reader: DocumentReader
    min_bytes: int

    def texts(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Return the bytes of the intervals, with the columns of ``SNIPPETS``."""
        return pd.concat([SNIPPETS, *map(_as_frame, self._read(requests, 0))], ignore_index=True)

    def windows(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Return intervals of one window each, whose keys and chunks are hashes of the window."""
        frames = (self._hashed(snippets) for snippets in self._read(requests, 1))
        return pd.concat([INTERVALS, *frames], ignore_index=True)

    def _hashed(self, snippets: _Snippets) -> pd.DataFrame:
        requests = snippets.requests
        counts = requests["windows"].to_numpy()
        ends = np.concatenate([[0], np.cumsum(snippets.num_rows)]) * _ROW
        texts = Texts(frozen(ends), frozen(snippets.rows.reshape(-1)), None)
        keys, chunks = hash_windows(texts, counts.astype(np.int32), self.min_bytes)
        within = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        ordinals = np.repeat(requests["ordinal"].to_numpy(), counts)
        columns = {
            "hash": keys,
            "chunk": chunks,
            "document": np.repeat(requests["document"].to_numpy(), counts),
            "ordinal": np.where(ordinals >= 0, ordinals + within, ordinals),
        }
        return pd.DataFrame(columns).assign(windows=np.int64(1))

    def _read(self, requests: pd.DataFrame, hashed: int) -> Iterator[_Snippets]:
        wanted = requests[requests["hashed"] == hashed]
        numbers = file_of(wanted["document"].to_numpy())
        files = self.files.take(np.unique(numbers))
        for file, (_, part) in zip(files, wanted.groupby(numbers), strict=True):
            names = ["hash", "chunk", "document", "ordinal", "windows"]
            yield self._read_file(file, pl.DataFrame({n: part[n].to_numpy() for n in names}))

    def _read_file(self, file: NumberedFile, requests: pl.DataFrame) -> _Snippets:
        requests = requests.with_columns(row=row_of(requests["document"].to_numpy()))
        undecided = requests.filter(pl.col("ordinal") >= 0).with_columns(start="ordinal")
        decided = requests.filter(pl.col("ordinal") < 0)
        if len(decided):
            found = self._intervals(file, decided["row"].unique().sort().to_numpy())
            on = ["row", "hash", "chunk"]
            located = decided.drop("windows").join(found, on=on, how="inner", maintain_order="left")
            assert len(located) == len(decided), f"anchors are missing from {file.files}"
            requests = pl.concat([undecided, located.select(undecided.columns)])
        else:
            requests = undecided
        rows = requests["row"].to_numpy()
        unique, indices = np.unique(rows, return_inverse=True)
        texts = buffers(self.reader.read_rows(file, unique, "text"))
        starts = texts.offsets[:-1][indices] + requests["start"].to_numpy()
        sizes = requests["windows"].to_numpy() - 1 + self.min_bytes
        assert (starts + sizes <= texts.offsets[1:][indices]).all(), (
            "an interval ends after its text"
        )
        return _Snippets(requests, copy_to_rows(texts.data, starts, sizes, _ROW), -(-sizes // _ROW))

    def _intervals(self, file: NumberedFile, rows: NDArray[np.int64]) -> pl.DataFrame:
        """Return the first interval of each key and chunk of some rows (ascending)."""
        columns = [self.reader.read_rows(file, rows, name) for name in schemas.ANCHORS.names]
        table = pa.table([pa.array(rows), *columns], ["row", *schemas.ANCHORS.names])
        return intervals_of(table).unique(
            ["row", "hash", "chunk"], keep="first", maintain_order=True
        )


def intervals_of(table: pa.Table) -> pl.DataFrame:
    """Return the intervals of documents, given ``row`` and the columns of ``schemas.ANCHORS``.

    The columns are ``row``, ``hash``, ``chunk``, ``windows`` and ``start``, the first byte; all int64.
    """
    frame = pl.DataFrame(table.select(["row", *schemas.ANCHORS.names]))
    # A text without windows has empty lists, which ``explode`` turns into nulls.
    frame = frame.explode(schemas.ANCHORS.names).drop_nulls("anchor_keys")
    windows = pl.col("anchor_windows").cast(pl.Int64)
    return frame.select(
        "row",
        hash="anchor_keys",
        chunk="anchor_chunks",
        windows=windows,
        start=windows.cum_sum().over("row") - windows,
    )


def _as_frame(snippets: _Snippets) -> pd.DataFrame:
    words = snippets.rows.view(np.int64)
    counts, requests = snippets.num_rows, snippets.requests
    columns = {
        "hash": requests["hash"],
        "document": requests["document"],
        "start": requests["start"],
        "windows": requests["windows"],
        "ordinal": requests["ordinal"],
    }
    repeated = {name: np.repeat(column.to_numpy(), counts) for name, column in columns.items()}
    part = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    text = {name: words[:, k] for k, name in enumerate(_TEXT)}
    return pd.DataFrame({**repeated, "part": part, **text})


class SnippetTexts(NamedTuple):
    """The intervals of a partition by key, then by occurrence; their bytes, padded with zeros."""

    keys: NDArray[np.int64]  # (n,)
    intervals: Intervals
    ordinals: NDArray[np.int64]  # (n,) negative in decided documents
    texts: Texts


def snippet_texts(snippets: pd.DataFrame) -> SnippetTexts:
    """Return the intervals and bytes of a frame with the columns of ``SNIPPETS``."""
    frame = pl.DataFrame({name: snippets[name].to_numpy() for name in SNIPPETS.columns})
    frame = frame.sort("hash", "document", "start", "part")
    rows = np.ascontiguousarray(frame.select(_TEXT).to_numpy())
    heads = np.flatnonzero(frame["part"].to_numpy() == 0)
    ends = np.append(heads, len(frame)) * _ROW
    first = frame[heads]
    intervals = Intervals(
        first["document"].to_numpy().copy(),
        first["start"].to_numpy().astype(np.int32),
        first["windows"].to_numpy().astype(np.int32),
    )
    texts = Texts(frozen(ends), frozen(rows.view(np.uint8).reshape(-1)), None)
    return SnippetTexts(first["hash"].to_numpy(), intervals, first["ordinal"].to_numpy(), texts)
