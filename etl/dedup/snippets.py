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
from etl.kernels.hashing.window_anchors import ALL_CORES

_WORDS: Final = 16  # of 8 bytes in a row; fewer take more rows, more leave more bytes unused
_ROW: Final = 8 * _WORDS

INTERVALS: Final = empty_numbers("hash", "chunk", "document", "ordinal", "windows", "cores").astype(
    {"ordinal": "int32", "windows": "int32", "cores": "int32"}
)
"""Intervals of windows: ``hash`` is the key, ``ordinal`` the first byte, or negative in decided documents."""

REQUESTS: Final = INTERVALS.drop(columns="cores").assign(
    hashed=pd.Series(dtype="int64"), bucket=pd.Series(dtype="int64")
)
"""Intervals whose bytes are needed; ``hashed`` is 1 if the hashes of their windows are needed instead."""

SNIPPETS: Final = empty_numbers("hash", "document", "place", *(f"w{k}" for k in range(_WORDS)))
"""Rows of intervals' bytes, in words; ``place`` is a number of ``_places``."""


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
        columns = [np.empty((len(SNIPPETS.columns), 0), np.int64)]
        columns += map(_columns, self._read(requests, 0))
        # A frame of one array, which is not copied again.
        return pd.DataFrame(np.concatenate(columns, axis=1).T, columns=SNIPPETS.columns, copy=False)

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
            "ordinal": np.where(ordinals >= 0, ordinals + within, ordinals).astype(np.int32),
        }
        frame = pd.DataFrame(columns).assign(windows=np.int32(1), cores=np.int32(ALL_CORES))
        return frame[INTERVALS.columns]

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
        sizes = requests["windows"].to_numpy().astype(np.int64) - 1 + self.min_bytes
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

    The columns are ``row``, ``hash``, ``chunk``, ``windows``, ``cores`` and ``start``, the first byte.
    """
    frame = pl.DataFrame(table.select(["row", *schemas.ANCHORS.names]))
    # A text without windows has empty lists, which ``explode`` turns into nulls.
    frame = frame.explode(schemas.ANCHORS.names).drop_nulls("anchor_keys")
    windows = pl.col("anchor_windows")
    return frame.select(
        "row",
        hash="anchor_keys",
        chunk="anchor_chunks",
        windows=windows,
        cores="anchor_cores",
        start=windows.cum_sum().over("row") - windows,
    )


def _columns(snippets: _Snippets) -> NDArray[np.int64]:
    """Return the columns of ``SNIPPETS``, of all intervals."""
    requests, counts = snippets.requests, snippets.num_rows
    assert counts.max(initial=0) <= 1 << 8
    part = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.empty((len(SNIPPETS.columns), len(part)), np.int64)
    columns[0] = np.repeat(requests["hash"].to_numpy(), counts)
    columns[1] = np.repeat(requests["document"].to_numpy(), counts)
    columns[2] = np.repeat(_places(requests), counts) + part
    columns[3:] = snippets.rows.view(np.int64).T
    return columns


def _places(requests: pl.DataFrame) -> NDArray[np.int64]:
    """Return a number for each interval: first byte (32 bits), windows (16), state (8); 8 bits are left.

    The state is the ordinal of a decided document, without its sign, and otherwise 0. The 8 bits number the
    rows of the interval, so that the numbers of a document's rows are in their order.
    """
    start, windows = (requests[name].to_numpy().astype(np.int64) for name in ("start", "windows"))
    state = np.maximum(-requests["ordinal"].to_numpy().astype(np.int64), 0)
    assert (windows < 1 << 16).all()
    return start << 32 | windows << 16 | state << 8


class SnippetTexts(NamedTuple):
    """The intervals of a partition by key, then by occurrence; their bytes, padded with zeros."""

    keys: NDArray[np.int64]  # (n,)
    intervals: Intervals
    states: NDArray[np.int64]  # (n,) 0, or the ordinal of a decided document without its sign
    texts: Texts


def snippet_texts(snippets: pd.DataFrame) -> SnippetTexts:
    """Return the intervals and bytes of a frame with the columns of ``SNIPPETS``."""
    frame = pl.DataFrame({name: snippets[name].to_numpy() for name in SNIPPETS.columns})
    frame = frame.sort("hash", "document", "place")
    rows = np.ascontiguousarray(frame.select(SNIPPETS.columns[3:].to_list()).to_numpy(order="c"))
    places = frame["place"].to_numpy()
    heads = np.flatnonzero(places & 0xFF == 0)
    ends, places = np.append(heads, len(frame)) * _ROW, places[heads]
    intervals = Intervals(
        frame["document"].to_numpy()[heads],
        (places >> 32).astype(np.int32),
        (places >> 16 & 0xFFFF).astype(np.int32),
    )
    texts = Texts(frozen(ends), frozen(rows.view(np.uint8).reshape(-1)), None)
    return SnippetTexts(frame["hash"].to_numpy()[heads], intervals, places >> 8 & 0xFF, texts)
