"""Open files of a token table, local or fetched, for reading row groups."""

import io
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from etl.loader.fetch.parquet_pages import PageSource
from etl.loader.fetch.table_index import TableIndex

MAX_FOOTERS = 32
"""The number of most recently used footers that a reader keeps; about 3 kB per row group."""

_BUFFER_BYTES = 1 << 17


class OpenRowGroup(NamedTuple):
    """A row group with its open file."""

    source: PageSource
    footer: pq.FileMetaData
    number: int  # of the row group in the file

    def parquet(self) -> pq.ParquetFile:
        """Return a Parquet reader of the file, for columns that ``parquet_pages`` cannot read."""
        file = self.source
        if not isinstance(file, pa.NativeFile):
            file = pa.PythonFile(file, mode="r")
        return pq.ParquetFile(
            file, metadata=self.footer, pre_buffer=False, buffer_size=_BUFFER_BYTES
        )


class Files(Protocol):
    """An opener of row groups by their number in the table."""

    def open(self, group: int) -> AbstractContextManager[OpenRowGroup]:
        """Open a row group."""

    def prepare(self, group: int) -> None:
        """Prepare to open a row group soon."""


class Lanes(Protocol):
    """The source of files for the lanes of an epoch."""

    def lane(self, number: int) -> Files:
        """Return the opener of the row groups of a lane."""

    def close(self) -> None:
        """Cancel pending reads."""


class LocalFiles:
    """An opener of the row groups of a local table."""

    def __init__(self, index: TableIndex) -> None:
        self._index = index
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def lane(self, number: int) -> Self:  # noqa: ARG002 - all lanes share the footers
        """Return this object, which all lanes share."""
        return self

    def prepare(self, group: int) -> None:
        """Do nothing: the operating system reads ahead."""

    def close(self) -> None:
        """Do nothing: no file is open between row groups."""

    @contextmanager
    def open(self, group: int) -> Iterator[OpenRowGroup]:
        """Open a row group; raises StorageError if its file is missing."""
        path, number = self._index.locate_group(group)
        with self._index.open(group) as source:
            footer = self._footers.pop(path, None) or pq.read_metadata(source)
            self._footers[path] = footer
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
            yield OpenRowGroup(source, footer, number)


class FetchedRange:
    """A byte range of a file, held in memory and read at the offsets of the file.

    ``start`` is the offset of the range, ``size`` the size of the file.
    """

    closed = False

    def __init__(self, data: pa.Buffer, start: int, size: int) -> None:
        self._data = data
        self._start = start
        self._size = size
        self._offset = 0

    def tell(self) -> int:
        """Return the offset in the file of the next read."""
        return self._offset

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset in the file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = base + position
        return self._offset

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer at the end of the range."""
        return bytes(self.read_buffer(size).to_pybytes())

    def read_buffer(self, size: int, /) -> pa.Buffer:
        """Return the next bytes without a copy, fewer at the end of the range."""
        start = self._offset - self._start
        if not 0 <= start <= len(self._data):
            raise OSError(f"byte {self._offset} is outside the fetched range")
        data = self._data.slice(start, max(min(size, len(self._data) - start), 0))
        self._offset += len(data)
        return data

    def close(self) -> None:
        """Do nothing: nothing is open."""
