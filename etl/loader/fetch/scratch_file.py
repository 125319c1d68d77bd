"""Temporary files for parts that were fetched from an object store, and for the tokens that each lane holds.

A rank that reads a thousand lanes has to fetch large parts of each, or its requests cost more than the
tokens. In a file, these do not count as memory of the process, and the operating system writes them out only
when it needs the memory. The files have no names, so nothing is left behind when the process is killed.
"""

import mmap
import os
import tempfile
import threading
from typing import IO

import numpy as np

from etl.errors import StorageError

_MAX_PAGE_BYTES = 1 << 20  # the default of most writers; ours have 64 kB


class ScratchFile:
    """A file of slots of one size, safe to share among threads."""

    def __init__(self, slot_bytes: int) -> None:
        """Create the file in the folder for temporary files; raises StorageError if there is none."""
        self._slot_bytes = slot_bytes
        self._file = _temporary_file()
        self._lock = threading.Lock()  # no thread writes to a file that another one closes
        self._free: list[int] = []
        self._count = 0

    def put(self, data: bytes) -> int:
        """Store at most the bytes of a slot, and return its number; raises StorageError."""
        with self._lock:
            number = self._free.pop() if self._free else self._count
            self._count = max(self._count, number + 1)
            _write(self._file, data, number * self._slot_bytes)
        return number

    def read(self, number: int, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) of a slot."""
        return os.pread(self._file.fileno(), stop - start, number * self._slot_bytes + start)

    def free(self, number: int) -> None:
        """Let a slot be used again."""
        self._free.append(number)

    def close(self) -> None:
        """Delete the file."""
        with self._lock:
            self._file.close()


class PageFile:
    """A mapped file of the tokens of each lane: a page, or at most ``slot_bytes``."""

    def __init__(self, lanes: int, slot_bytes: int = _MAX_PAGE_BYTES) -> None:
        """Create the file; raises StorageError."""
        self._slot_bytes = slot_bytes
        self._file = _temporary_file()
        try:
            self._file.truncate(lanes * slot_bytes)  # it takes space only where it is written
            memory = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            self._file.close()
            raise _scratch_error(error) from error
        self._tokens = np.frombuffer(memory, np.int32)

    def put(self, lane: int, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens (n,) int32 of a lane, in the file until its next ones replace them.

        More than ``slot_bytes`` are returned as they are: some writers produce such pages. Raises
        StorageError.
        """
        if not 0 < tokens.nbytes <= self._slot_bytes:
            return tokens
        offset = lane * self._slot_bytes
        _write(
            self._file, tokens.view(np.uint8).data, offset
        )  # through the map, a full disk would kill the process
        return self._tokens[offset // 4 : offset // 4 + len(tokens)]

    def close(self) -> None:
        """Delete the file once its pages are no longer used: this object may be part of a cycle."""
        self._file.close()
        self._tokens = np.zeros(0, np.int32)  # the map has its own descriptor


def _temporary_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(prefix="tokenlake-", buffering=0)
    except OSError as error:
        raise _scratch_error(error) from error


def _write(file: IO[bytes], data: bytes | memoryview, offset: int) -> None:
    rest = memoryview(data)
    try:
        while rest:
            written = os.pwrite(file.fileno(), rest, offset)
            rest, offset = rest[written:], offset + written
    except OSError as error:
        raise _scratch_error(error) from error


def _scratch_error(error: OSError) -> StorageError:
    return StorageError(
        f"fetched data cannot be stored in a temporary file ({error})",
        where=tempfile.tempdir or "",
        hint="set TMPDIR to a folder on a local disk, or lower ahead_bytes in Remote",
    )
