"""Export a version of a token table as an indexed dataset of Megatron, with the addresses beside it.

The format is defined by ``megatron/core/datasets/indexed_dataset.py`` of Megatron-LM (version 1,
little-endian):

``PREFIX.bin``  the tokens of all sequences without gaps, uint16 if the vocabulary has fewer than 65,500 ids,
                else int32
``PREFIX.idx``  9 bytes ``MMIDIDX`` and two zeros; uint64 1, the version; uint8, the code of the type; uint64
                N, the number of sequences; uint64 D + 1, for D documents; int32 (N,), the tokens of each
                sequence; int64 (N,), the byte at which it begins in the .bin file; int64 (D + 1,), the first
                sequence of each document, and N

Each document is one sequence. ``PREFIX.addresses.parquet`` has a row for each, in the same order: its id, its
address and its number of tokens. Documents without tokens are left out.

The index is written last, and completely: without it, Megatron finds no dataset. Memory: a row group.
"""

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.errors import LoaderError
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.read_index import read_index, read_tokenizers
from etl.loader.fetch.table_index import TableIndex
from etl.loader.version_lease import VersionLease
from etl.parquet.parquet_file import open_parquet, parquet_writer

_HEADER: Final = b"MMIDIDX\x00\x00"
_VERSION: Final = 1
_CODES: Final = {"uint16": 8, "int32": 4}
_MAX_UINT16_VOCAB: Final = 65_500
"""Megatron's ``DType.optimal_dtype``: larger vocabularies are stored as int32."""

_ADDRESSES: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
    ]
)
_COLUMNS: Final = [*_ADDRESSES.names, "tokens"]
_BATCH_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class MegatronExport:
    """An exported version of a token table."""

    table: str
    version: int
    prefix: str
    dtype: str
    documents: int
    empty: int  # documents without tokens, which are left out
    tokens: int


def export_megatron(lake: str, prefix: str, *, version: int | str | None = None) -> MegatronExport:
    """Write a version of the token table of a lake, or of the table at a URL, to PREFIX.bin and PREFIX.idx.

    The documents are in the order of the table. Raises LoaderError if the version does not exist, if the
    prefix has an index already, or if a token id does not fit the tokenizer in the lineage.
    """
    index = read_index(lake, version=version, remote=Remote())
    prefix = storage.normalize(prefix)
    if storage.file_info(f"{prefix}.idx") is not None:
        raise LoaderError(
            "there is an index already",
            where=f"{prefix}.idx",
            hint="delete it, or name another prefix",
        )
    vocab_size = max((record.vocab_size for record in read_tokenizers(index)), default=None)
    dtype = np.dtype(np.uint16 if vocab_size and vocab_size < _MAX_UINT16_VOCAB else np.int32)
    lease = VersionLease(index.url, index.version)
    try:
        documents, empty = _write_tokens(index, prefix, dtype)
    finally:
        lease.end()
    _write_index(prefix, documents, dtype)
    return MegatronExport(
        table=index.url,
        version=index.version,
        prefix=prefix,
        dtype=dtype.name,
        documents=documents,
        empty=empty,
        tokens=index.num_tokens,
    )


def _write_tokens(index: TableIndex, prefix: str, dtype: npt.DTypeLike) -> tuple[int, int]:
    """Write the tokens and the addresses; return the number of documents with and without tokens."""
    documents, empty = 0, 0
    with ExitStack() as stack:
        tokens = stack.enter_context(storage.open_output(f"{prefix}.bin"))
        file = stack.enter_context(storage.open_output(f"{prefix}.addresses.parquet"))
        addresses = stack.enter_context(parquet_writer(file, _ADDRESSES))
        for number in range(len(index.group_tokens)):
            rows = index.select(number, index.read_row_group(number, _COLUMNS))
            values = rows["tokens"].combine_chunks().flatten().to_numpy()
            if dtype == np.uint16 and len(values) and values.max() >= _MAX_UINT16_VOCAB:
                raise LoaderError(
                    f"token id {values.max()} does not fit the tokenizer in the lineage",
                    where=index.uri(index.locate_group(number)[0]),
                    hint="run `etl verify LAKE`",
                )
            tokens.write(values.astype(dtype).tobytes())
            has_tokens = pc.greater(rows["num_tokens"], 0)
            kept = rows.select(_ADDRESSES.names).filter(has_tokens)
            addresses.write_table(kept.cast(_ADDRESSES))
            documents += kept.num_rows
            empty += rows.num_rows - kept.num_rows
    return documents, empty


def _write_index(prefix: str, documents: int, dtype: npt.DTypeLike) -> None:
    """Write the index from the numbers of tokens in the file of addresses."""
    name = np.dtype(dtype).name
    with storage.open_atomic_output(f"{prefix}.idx") as file:
        file.write(_HEADER + struct.pack("<QBQQ", _VERSION, _CODES[name], documents, documents + 1))
        for counts in _read_counts(prefix):
            file.write(counts.astype("<i4").tobytes())
        start = 0
        for counts in _read_counts(prefix):
            ends = start + np.cumsum(counts * np.dtype(dtype).itemsize, dtype=np.int64)
            starts = np.concatenate([[start], ends[:-1]])
            file.write(starts.astype("<i8").tobytes())
            start = int(ends[-1])
        for first in range(0, documents + 1, _BATCH_ROWS):
            last = min(first + _BATCH_ROWS, documents + 1)
            file.write(np.arange(first, last).astype("<i8").tobytes())


def _read_counts(prefix: str) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the numbers of tokens of the documents, none of which is 0."""
    with storage.open_input(f"{prefix}.addresses.parquet") as source:
        file = open_parquet(source, pre_buffer=False, buffer_size=1 << 20)
        for batch in file.iter_batches(_BATCH_ROWS, columns=["num_tokens"], use_threads=False):
            column: Any = batch.column(0)
            if len(column):
                yield column.to_numpy().astype(np.int64)
