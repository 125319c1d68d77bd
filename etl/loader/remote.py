"""Reading a table in an object store: how much at once, how patiently, and what is kept on this machine.

A request that fails is made again after a pause that doubles each time, with jitter, so that many ranks do
not come back all at once (Brooker, "Exponential backoff and jitter", AWS Architecture Blog 2015). No request
outlives its time limit, so that a stalled connection is an error like any other.

Requests go through fsspec, which starts anew in a DataLoader worker that was forked. 256 MB in requests of
2 MB take it 0.55 s of CPU time, botocore 0.45 and Arrow's own client 0.37; of 8 MB 0.3, 0.15 and 0.2.
"""

import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import LoaderError, StorageError
from etl.loader.cache import Cache

_FIRST_PAUSE_S = 0.25  # a store that says "slow down" wants fractions of a second
_LONGEST_PAUSE_S = 8.0
_MAX_REQUEST_BYTES = 32 << 20  # what is greater takes several: a failure then costs less
VERIFY = "run `etl verify` on the lake"
"""What to do about a file that is not as its table says."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """How a table in an object store is read. Nothing here decides what is read, or in which order.

    ``ahead_bytes`` bounds what is fetched before it is needed; besides, each lane that a rank reads holds
    the bytes of one request. Neighbouring row groups are fetched together up to about ``request_bytes``:
    neighbours are what ``Shuffle.run_tokens`` keeps together, by default 9 to 16 MB in a table of a billion
    tokens or more. Smaller requests take less memory.

    ``cache`` is a folder of this machine that keeps what was fetched, shared by all ranks and workers;
    it holds up to ``cache_bytes``, and what was used longest ago goes first. DataLoader workers fetch the
    same row groups unless they share one, or batches are made ahead by a thread instead.

    A request may take ``timeout_s`` (30 s for 16 MB: a store below 0.5 MB/s is down) and is made up to
    ``attempts`` times, by default within 16 s of pauses.

    Raises LoaderError if a number is not positive.
    """

    ahead_bytes: int = 64 << 20
    request_bytes: int = 16 << 20
    cache: str | None = None
    cache_bytes: int = 32 << 30
    timeout_s: float = 30.0
    attempts: int = 7

    def __post_init__(self) -> None:
        for name in ("request_bytes", "cache_bytes", "timeout_s", "attempts"):
            if getattr(self, name) <= 0:
                raise LoaderError(
                    f"{name}={getattr(self, name)} of Remote", hint="give a number above 0"
                )


class Ranges:
    """Reads ranges of files, out of the cache or by requests; may be shared by threads."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._cache = None if remote.cache is None else Cache(remote.cache, remote.cache_bytes)
        self._stopped = threading.Event()

    def read(self, uri: str, start: int, stop: int, *, size: int) -> bytes:
        """The bytes [start, stop) of a file that has ``size``.

        Raises StorageError, naming the file, the range and the last error, if the store does not give them.
        """
        key = f"{uri}\n{size}\n{start}-{stop}"
        data = None if self._cache is None else self._cache.get(key, stop - start)
        if data is None:
            cuts = [*range(start, stop, _MAX_REQUEST_BYTES), stop]
            parts = [self._fetch(uri, *cut) for cut in pairwise(cuts)]
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            if self._cache is not None:
                self._cache.put(key, data)
        return data

    def stop(self) -> None:
        """Let what other threads are waiting for fail at its next attempt."""
        self._stopped.set()

    def _fetch(self, uri: str, start: int, stop: int) -> bytes:
        what = f"bytes {start:,} to {stop:,}"
        attempts = self._remote.attempts
        for attempt in range(1, attempts + 1):
            try:
                data = storage.read_range(uri, start, stop, timeout_s=self._remote.timeout_s)
            except (FileNotFoundError, PermissionError) as error:
                reason = f"{what} cannot be read ({_one_line(error)})"
                raise StorageError(reason, where=uri, hint=VERIFY) from error
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 - each store has its own, and they are told
                last: Exception = error
            else:
                if len(data) == stop - start:
                    return data
                last = EOFError(f"{len(data):,} bytes came")
            pause = min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            # Half of it by chance, which decides no value.
            pause *= random.uniform(0.5, 1)  # noqa: S311
            if attempt < attempts and self._stopped.wait(pause):
                raise StorageError(f"{what} are no longer wanted", where=uri) from last
        raise StorageError(
            f"{what} cannot be read, at {attempts} attempts; the last: {_one_line(last)}",
            where=uri,
            hint=f"{VERIFY}, or look after the store; Remote(attempts=, timeout_s=) has more patience",
        ) from last


@contextmanager
def open_file(uri: str, size: int, ranges: Ranges | None) -> Iterator[pa.NativeFile]:
    """A file for single small reads: a local one, or by ranges a remote one, which has ``size`` bytes.

    Raises StorageError if it is not there or not readable, also while it is read.
    """
    if ranges is None:
        with _naming_verify(), storage.open_input(uri) as file:
            yield file
    else:
        with pa.PythonFile(_RangeFile(uri, size, ranges), mode="r") as file:
            yield file


def read_footer(uri: str, size: int, ranges: Ranges | None) -> pq.FileMetaData:
    """The footer of a Parquet file; raises as ``open_file``, LoaderError if it is damaged."""
    with open_file(uri, size, ranges) as file:
        try:
            return pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            raise LoaderError(
                f"its footer cannot be read ({error})", where=uri, hint=VERIFY
            ) from error


@contextmanager
def _naming_verify() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise StorageError(error.what, where=error.where, hint=error.hint or VERIFY) from error


class _RangeFile(io.RawIOBase):
    """A remote file in which each read is a range."""

    def __init__(self, uri: str, size: int, ranges: Ranges) -> None:
        self._uri = uri
        self._size = size
        self._ranges = ranges
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        stop = self._size if size < 0 else min(self._at + size, self._size)
        start, self._at = self._at, max(stop, self._at)
        return b"" if start >= stop else self._ranges.read(self._uri, start, stop, size=self._size)


def _one_line(error: BaseException) -> str:
    name, text = type(error).__name__, " ".join(str(error).split())
    return f"{name}: {text}" if text else name
