"""Read bytes of the row groups of a local token table, with few open files."""

import os
from collections import OrderedDict
from typing import Protocol, Self

import numpy as np

from etl import storage
from etl.errors import StorageError
from etl.loader.fetch.range_requests import MISSING_HINT, Ranges
from etl.loader.fetch.table_index import TableIndex

_MAX_FILES = 64  # open at once: many systems allow 1,024 files per process


class Files(Protocol):
    """A reader of row groups by their number in the table."""

    def read(self, group: int, start: int, size: int, more: int = 0) -> bytes | memoryview:
        """Return bytes of a column of a row group from an offset in the file, fewer only at its end.

        Up to ``more`` bytes after them are returned too if they are at hand.
        """

    def prepare(self, group: int) -> None:
        """Prepare to read a row group soon."""

    def keep(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens of a page, (n,) int32, wherever they are kept until the next page."""


class Lanes(Protocol):
    """The source of files for the lanes of an epoch."""

    def lane(self, number: int) -> Files:
        """Return the reader of the row groups of a lane."""

    def close(self) -> None:
        """Cancel pending reads, and close files."""


class LocalFiles:
    """A reader of the row groups of a local table."""

    def __init__(self, index: TableIndex) -> None:
        self._index = index
        self._open: OrderedDict[str, int] = OrderedDict()  # path -> file descriptor
        self._descriptors: dict[int, int] = {}  # of the files of row groups, while all stay open

    def lane(self, number: int) -> Self:  # noqa: ARG002 - all lanes share the files
        """Return this object, which all lanes share."""
        return self

    def prepare(self, group: int) -> None:
        """Do nothing: the operating system reads ahead."""

    def keep(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens."""
        return tokens

    def read(self, group: int, start: int, size: int, more: int = 0) -> bytes:
        """Return bytes of the file of a row group; raises StorageError if the file is missing."""
        file = self._descriptors.get(group)
        if file is None:
            file = self._descriptors[group] = self._open_file(group)
        return os.pread(file, size + more, start)

    def _open_file(self, group: int) -> int:
        path, _ = self._index.locate_group(group)
        file = self._open.pop(path, None)
        if file is None:
            uri = self._index.uri(path)
            try:
                file = os.open(storage.local_path(uri), os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise StorageError(
                    f"cannot be read ({error.strerror})", where=uri, hint=MISSING_HINT
                ) from error
        self._open[path] = file
        if len(self._open) > _MAX_FILES:
            os.close(self._open.popitem(last=False)[1])
            self._descriptors.clear()
        return file

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])
        self._descriptors.clear()

    def __del__(self) -> None:
        self.close()


class RangeFiles:
    """A reader of the row groups of a remote table that requests each read, for a few small reads."""

    def __init__(self, index: TableIndex) -> None:
        assert index.remote is not None
        self._index = index
        self._ranges = Ranges(index.remote)

    def prepare(self, group: int) -> None:
        """Do nothing."""

    def keep(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens."""
        return tokens

    def read(self, group: int, start: int, size: int, more: int = 0) -> bytes:
        """Return bytes of the file of a row group; raises StorageError."""
        path, _ = self._index.locate_group(group)
        total = int(self._index.file_bytes[self._index.file(group)])
        stop = min(start + size + more, total)
        return self._ranges.read(self._index.uri(path), start, stop, size=total)


def open_files(index: TableIndex) -> Files:
    """Return a reader for a few small reads."""
    return LocalFiles(index) if index.remote is None else RangeFiles(index)
