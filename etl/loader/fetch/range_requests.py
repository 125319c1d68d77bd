"""Read byte ranges from an object store, with retries, timeouts and an optional disk cache.

A failed request is retried after a pause that doubles each time, with jitter, so that many ranks do not retry
at the same moment (Brooker, "Exponential backoff and jitter", AWS Architecture Blog 2015). Every request has
a time limit, which turns a stalled connection into an ordinary error.

Requests go through fsspec, which restarts in a forked DataLoader worker. For 256 MB in requests of 2 MB it
takes 0.55 s of CPU time, botocore 0.45 and Arrow's own client 0.37; in requests of 8 MB 0.3, 0.15 and 0.2.
"""

import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from etl import storage
from etl.errors import LoaderError, StorageError
from etl.loader.fetch.disk_cache import Cache
from etl.parquet import parquet_file
from etl.parquet.parquet_file import FileMetaData

_FIRST_PAUSE_S = 0.25  # a store that replies "slow down" needs fractions of a second
_LONGEST_PAUSE_S = 8.0
_MAX_REQUEST_BYTES = 32 << 20  # longer ranges take several requests: a failure costs less
VERIFY = "run `etl verify` on the lake"
"""The hint for a file that does not match its table."""

MISSING_HINT = f"{VERIFY}; `etl release` keeps the files of a version from `etl vacuum`"
"""The hint for a missing file."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """The settings for reading from an object store; they affect neither the samples nor their order.

    Fetched bytes wait in a temporary file, in the folder that TMPDIR names. ``ahead_bytes`` limits those
    fetched before they are needed; in addition, the file has the bytes of one request for each lane that a
    rank reads. Neighbouring row groups are fetched together, up to about ``request_bytes``, but so that the
    limit is enough for all lanes: with 1,024 lanes, 256 kB, and with 4,096 or more 64 kB. Neighbours are the
    row groups of a run (``Shuffle.run_tokens``), by default 9 to 16 MB in a table of a billion tokens or
    more. Up to 32 MB are in memory while they are fetched.

    ``cache`` is a local folder for fetched ranges, shared by all ranks and workers. It holds up to
    ``cache_bytes``; the least recently used ranges are deleted first. DataLoader workers fetch the same row
    groups several times unless they share a cache; ``prefetch`` by a thread avoids this too.

    A request times out after ``timeout_s`` (30 s for 16 MB: a store below 0.5 MB/s is down). It is made up to
    ``attempts`` times, by default with at most 16 s of pauses in total.

    Raises LoaderError if a number is not positive.
    """

    ahead_bytes: int = 256 << 20
    request_bytes: int = 8 << 20
    cache: str | None = None
    cache_bytes: int = 32 << 30
    timeout_s: float = 30.0
    attempts: int = 7

    def __post_init__(self) -> None:
        for name in ("request_bytes", "cache_bytes", "timeout_s", "attempts"):
            if getattr(self, name) <= 0:
                raise LoaderError(f"{name} of Remote must be positive, not {getattr(self, name)}")


class Ranges:
    """A reader of byte ranges, from the cache or by requests; safe to share among threads."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._cache = None if remote.cache is None else Cache(remote.cache, remote.cache_bytes)
        self._stopped = threading.Event()

    def read(self, uri: str, start: int, stop: int, *, size: int) -> bytes:
        """Return the bytes [start, stop) of a file of ``size`` bytes.

        Raises StorageError with the file, the range and the last error if all attempts fail.
        """
        key = f"{uri}\n{size}\n{start}-{stop}"
        data = None if self._cache is None else self._cache.get(key, stop - start)
        if data is None:
            bounds = [*range(start, stop, _MAX_REQUEST_BYTES), stop]
            parts = [self._fetch(uri, *part) for part in pairwise(bounds)]
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            if self._cache is not None:
                self._cache.put(key, data)
        return data

    def stop(self) -> None:
        """Make reads in other threads fail instead of retrying."""
        self._stopped.set()

    def _fetch(self, uri: str, start: int, stop: int) -> bytes:
        what = f"bytes {start:,} to {stop:,}"
        attempts = self._remote.attempts
        for attempt in range(1, attempts + 1):
            try:
                data = storage.read_range(uri, start, stop, timeout_s=self._remote.timeout_s)
            except (FileNotFoundError, PermissionError) as error:
                reason = f"{what} cannot be read ({_one_line(error)})"
                raise StorageError(reason, where=uri, hint=MISSING_HINT) from error
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 - each store has its own; they are reported
                last: Exception = error
            else:
                if len(data) == stop - start:
                    return data
                last = EOFError(f"the store returned {len(data):,} bytes")
            pause = min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            # Jitter between half and full; it affects no sample.
            pause *= random.uniform(0.5, 1)  # noqa: S311
            if attempt < attempts and self._stopped.wait(pause):
                raise StorageError(f"the read of {what} was cancelled", where=uri) from last
        raise StorageError(
            f"{what} cannot be read after {attempts} attempts; the last error: {_one_line(last)}",
            where=uri,
            hint=f"{VERIFY}, check the store, or raise attempts or timeout_s in Remote",
        ) from last


@contextmanager
def open_file(uri: str, size: int, ranges: Ranges | None) -> Iterator[pa.NativeFile]:
    """Open a file of ``size`` bytes for small reads, locally or by ranges of a remote file.

    Raises StorageError if the file is missing or not readable, also during reads.
    """
    if ranges is None:
        with _suggesting_verify(), storage.open_input(uri) as file:
            yield file
    else:
        with pa.PythonFile(_RangeFile(uri, size, ranges), mode="r") as file:
            yield file


def read_footer(uri: str, size: int, ranges: Ranges | None) -> FileMetaData:
    """Return the footer of a Parquet file; raises as ``open_file``, and LoaderError if it is damaged."""
    with open_file(uri, size, ranges) as file:
        try:
            return parquet_file.read_footer(file)
        except (pa.ArrowException, OSError) as error:
            raise LoaderError(
                f"the footer cannot be read ({error})", where=uri, hint=VERIFY
            ) from error


@contextmanager
def _suggesting_verify() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise StorageError(error.what, where=error.where, hint=MISSING_HINT) from error


class _RangeFile(io.RawIOBase):
    """A remote file that requests a range for each read."""

    def __init__(self, uri: str, size: int, ranges: Ranges) -> None:
        self._uri = uri
        self._size = size
        self._ranges = ranges
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = base + offset
        return self._offset

    def read(self, size: int = -1, /) -> bytes:
        stop = self._size if size < 0 else min(self._offset + size, self._size)
        start, self._offset = self._offset, max(stop, self._offset)
        return b"" if start >= stop else self._ranges.read(self._uri, start, stop, size=self._size)


def _one_line(error: BaseException) -> str:
    name, text = type(error).__name__, " ".join(str(error).split())
    return f"{name}: {text}" if text else name
