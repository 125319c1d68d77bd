"""Files of a token table, as far as they must be open to read a row group."""

import io
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from etl.loader.index import Index
from etl.loader.pages import Source

MAX_FOOTERS = 32
"""Footers that a reader keeps, those of the files used last: about 3 kB for each row group."""

_BUFFER_BYTES = 1 << 17


class Opened(NamedTuple):
    """A row group whose file is open."""

    source: Source
    footer: pq.FileMetaData
    number: int  # of the row group in the file

    def parquet(self) -> pq.ParquetFile:
        """A Parquet reader of the file, for what is not read without one."""
        file = self.source
        if not isinstance(file, pa.NativeFile):
            file = pa.PythonFile(file, mode="r")
        return pq.ParquetFile(
            file, metadata=self.footer, pre_buffer=False, buffer_size=_BUFFER_BYTES
        )


class Files(Protocol):
    """Opens row groups of a table by their number there."""

    def open(self, group: int) -> AbstractContextManager[Opened]:
        """Open a row group."""

    def expect(self, group: int) -> None:
        """Be told that a row group will be wanted soon."""


class Lanes(Protocol):
    """Where the lanes of an epoch get their files."""

    def lane(self, number: int) -> Files:
        """What opens the row groups of a lane."""

    def close(self) -> None:
        """Give up what was to be read."""


class LocalFiles:
    """Opens the row groups of a table on this machine."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def lane(self, number: int) -> Self:  # noqa: ARG002 - all lanes keep the same footers
        """What opens the row groups of a lane."""
        return self

    def expect(self, group: int) -> None:
        """Be told which row group will be wanted soon: the system reads ahead by itself."""

    def close(self) -> None:
        """Nothing is open between row groups."""

    @contextmanager
    def open(self, group: int) -> Iterator[Opened]:
        """Open a row group; raises StorageError if its file is not there."""
        path, number = self._index.group(group)
        with self._index.open(group) as source:
            footer = self._footers.pop(path, None) or pq.read_metadata(source)
            self._footers[path] = footer
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
            yield Opened(source, footer, number)


class Span:
    """Bytes of a file from ``start`` on, read at the places where they stand in the file of ``size``."""

    closed = False

    def __init__(self, data: pa.Buffer, start: int, size: int) -> None:
        self._data = data
        self._start = start
        self._size = size
        self._at = 0

    def tell(self) -> int:
        """The place in the file that is read next."""
        return self._at

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place in the file."""
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = before + position
        return self._at

    def read(self, size: int, /) -> bytes:
        """The next bytes; fewer where what was fetched ends."""
        return bytes(self.read_buffer(size).to_pybytes())

    def read_buffer(self, size: int, /) -> pa.Buffer:
        """As ``read``, without a copy."""
        place = self._at - self._start
        if not 0 <= place <= len(self._data):
            raise OSError(f"byte {self._at} is outside of what was fetched")
        found = self._data.slice(place, max(min(size, len(self._data) - place), 0))
        self._at += len(found)
        return found

    def close(self) -> None:
        """Nothing is to be closed."""
