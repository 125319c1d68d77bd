"""The content of an input file: a sample that can prove two files different, and a digest of rows as read.

A lake knows a file by its content, so that a file that was renamed, copied or touched keeps its rows. Equal
samples prove nothing: two files have the same content only if their rows, read now, have the same digests.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from etl import storage
from etl.errors import StorageError

SAMPLE_DIGITS: Final = 10
"""The hexadecimal digits of a sample: a file is taken for one of a million others once in a million times."""

_BLOCK_BYTES = (
    64 << 10
)  # of each sampled block; chosen here: one request, and most footers of Parquet
_BLOCKS = 4  # the head, two blocks between, the tail
_HASHES = 1 << 63  # values that the log of a table can hold


class Content(NamedTuple):
    """What a unit of work has read of an input file: the file's sample, and the digest of the unit's rows."""

    sample: str
    rows: int


def sample_file(uri: str, size: int) -> str:
    """Return a digest of a file's size and of some of its bytes: of all, up to 256 KB.

    It reads the head, the tail and two blocks between them, by a request each. Raises StorageError if the
    file cannot be read.
    """
    digest = xxhash.xxh3_128(size.to_bytes(8, "little"))
    for start, stop in _blocks(size):
        block = storage.read_bytes(uri, start, stop)
        if block is None:
            raise StorageError("the file no longer exists", where=uri)
        digest.update(block)
    return digest.hexdigest()[:SAMPLE_DIGITS]


def _blocks(size: int) -> list[tuple[int, int]]:
    """Return the ranges of a file that are sampled.

    >>> _blocks(0), _blocks(100), _blocks(1 << 20)[1:3]
    ([], [(0, 100)], [(327680, 393216), (655360, 720896)])
    """
    if not size:
        return []
    if size <= _BLOCKS * _BLOCK_BYTES:
        return [(0, size)]
    last = size - _BLOCK_BYTES
    starts = [last * number // (_BLOCKS - 1) for number in range(_BLOCKS)]
    return [(start, start + _BLOCK_BYTES) for start in starts]


class RowsDigest:
    """A digest of the rows of a split in order, computed while they are read.

    It covers all columns of ``schemas.RAW`` but the name of the file. It does not depend on how the rows are
    cut into batches, nor on the number of the first one.

    >>> whole, parts = RowsDigest(), RowsDigest()
    >>> table = pa.table({"row": [0, 1], "text": ["a", None]})
    >>> whole.update(table)
    >>> parts.update(table[:1])
    >>> parts.update(table[1:])
    >>> whole.value() == parts.value()
    True
    """

    def __init__(self) -> None:
        self._first_row: int | None = None
        self._columns: dict[str, tuple[Any, Any]] = {}  # hashes of the lengths and of the bytes

    def update(self, batch: pa.Table) -> None:
        """Add the rows of a batch."""
        if self._first_row is None and batch.num_rows:
            self._first_row = batch["row"][0].as_py()
        for name in batch.column_names:
            if name == "source":
                continue
            lengths, content = self._columns.setdefault(name, (xxhash.xxh3_64(), xxhash.xxh3_64()))
            for array in batch[name].chunks:
                if pa.types.is_integer(array.type):
                    content.update(array.to_numpy(zero_copy_only=False) - self._first_row)
                else:
                    _add_strings(array, lengths, content)

    def value(self) -> int:
        """Return the digest: 63 bits, as many as the log of a table can hold."""
        digest = xxhash.xxh3_64()
        for name, hashes in sorted(self._columns.items()):
            digest.update(name.encode() + b"\0" + b"".join(each.digest() for each in hashes))
        return int(digest.intdigest() % _HASHES)


def _add_strings(array: pa.Array, lengths: Any, content: Any) -> None:
    """Add strings to hashes of their lengths and of their bytes; a null has the length -1."""
    if array.null_count == len(array):
        lengths.update(np.full(len(array), -1, np.int32))
        return
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if is_null is not None:
        array = array.fill_null("")  # a null may have bytes, too
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    sizes = np.diff(ends)
    if is_null is not None:
        sizes[is_null] = -1
    lengths.update(sizes)
    if data is not None:
        content.update(memoryview(data)[ends[0] : ends[-1]])
