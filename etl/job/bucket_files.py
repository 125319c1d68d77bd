"""Bucket files: rows of ``tokens`` grouped by bucket, between the two passes of a shuffle.

A file has one or more runs of rows. A run has a fragment for each bucket, an Arrow stream, and a table with
the first byte, the end and the CRC-32 of each fragment. So a bucket is read with two requests for each run.
"""

import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from etl import storage
from etl.errors import StorageError, TokenlakeError, error_line
from etl.lake.random_keys import random_keys
from etl.lake.shuffled_table import buckets_of
from etl.parquet.row_digests import add_digests, digest_rows, hash_column
from etl.schemas import TOKENIZED, TOKENS
from etl.storage import checked_json

COLUMNS: Final = tuple(name for name in TOKENIZED.names if name != "token_end")
"""The columns of ``tokens`` that a shuffle reads; the others are determined when a file is written."""

_KEY = pa.field("key", pa.uint64(), nullable=False)
_SCHEMA = pa.schema([*(TOKENS.field(name) for name in COLUMNS), _KEY])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, kw_only=True)
class BucketFile:
    """A finished bucket file: its name, the position of the table of each run, its rows and tokens.

    ``digest`` is that of its rows, as in the log of ``tokens``.
    """

    name: str
    tables: tuple[int, ...]
    rows: int
    tokens: int
    digest: int


class BucketWriter:
    """A writer of the rows of one split by bucket, which holds about ``run_bytes`` of tokens three times."""

    def __init__(self, output: pa.NativeFile, *, buckets: int, seed: int, run_bytes: int) -> None:
        self._output = output
        self._buckets = buckets
        self._seed = seed
        self._run_bytes = run_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.tables: list[int] = []
        self.rows = 0
        self.digest = 0

    def append(self, rows: pa.Table) -> None:
        """Append rows with the columns of ``COLUMNS``."""
        if not rows.num_rows:
            return
        self._pending.append(rows)
        self._pending_bytes += rows["tokens"].nbytes
        self.rows += rows.num_rows
        hashed = rows.append_column(TOKENS.field("tokens_hash"), hash_column(rows["tokens"]))
        self.digest = add_digests([self.digest, digest_rows(hashed, without=("tokens",))])
        if self._pending_bytes >= self._run_bytes:
            self.finish_run()

    def finish_run(self) -> None:
        """Write the rows that were appended since the last run, if any."""
        if not self._pending:
            return
        # One chunk: to take rows of several chunks copies them all.
        rows = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        keys = random_keys(rows, self._seed)
        buckets = buckets_of(keys, self._buckets)
        order = pa.array(np.argsort(buckets, kind="stable"))
        ends = np.cumsum(np.bincount(buckets, minlength=self._buckets))
        rows = rows.append_column(_KEY, pa.array(keys)).cast(_SCHEMA)
        table, start = np.zeros((self._buckets, 3), "<i8"), 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                table[bucket] = self._write(rows.take(order.slice(start, end - start)))
            start = end
        self.tables.append(int(self._output.tell()))
        self._output.write(table.tobytes())

    def _write(self, rows: pa.Table) -> tuple[int, int, int]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as stream:
            stream.write_table(rows)
        data, start = sink.getvalue(), int(self._output.tell())
        self._output.write(data)
        return start, start + len(data), zlib.crc32(data)


def write_list(folder: str, files: Sequence[BucketFile]) -> str:
    """Write the list of all bucket files of a folder, which is too long for each task; return its URI."""
    uri = storage.join(folder, f"files-{uuid.uuid4().hex}.json")
    checked_json.write(uri, [asdict(file) for file in files])
    return uri


@lru_cache(maxsize=2)
def read_list(uri: str) -> tuple[BucketFile, ...]:
    """Return the files of a list; a worker reads it once."""
    fields = checked_json.read(uri, hint="run again")
    if fields is None:
        raise StorageError("does not exist", where=uri, hint="run again")
    return tuple(parse_file(each) for each in fields)


def parse_file(fields: Mapping[str, Any]) -> BucketFile:
    """Return a bucket file that was stored as JSON."""
    return BucketFile(**{**fields, "tables": tuple(fields["tables"])})


def read_bucket(folder: str, file: BucketFile, bucket: int) -> Iterator[pa.Table]:
    """Yield the rows of one bucket in a bucket file, with their random keys as ``key``.

    Raises StorageError if the file is missing or damaged.
    """
    uri = storage.join(folder, file.name)
    for position in file.tables:
        entry = _read(uri, position + 24 * bucket, position + 24 * (bucket + 1))
        start, stop, checksum = np.frombuffer(entry, "<i8").tolist()
        if stop > start:
            data = _read(uri, start, stop)
            if zlib.crc32(data) != checksum:
                raise StorageError("the checksum of a bucket differs", where=uri, hint="run again")
            yield pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def _read(uri: str, start: int, stop: int) -> bytes:
    """Return a range of bytes. Dask repeats the task if that fails."""
    try:
        data = storage.read_range(uri, start, stop, timeout_s=storage.store_timeout())
    except TokenlakeError:
        raise
    except Exception as error:  # each client raises its own types
        raise StorageError(f"cannot be read ({error_line(error)})", where=uri) from error
    if len(data) != stop - start:
        raise StorageError("is too short", where=uri)
    return data
