"""Limit how long an operation on an object store may take, and report operations that wait.

The clients of the stores repeat requests, each with its own timeouts: an endpoint that accepts connections
but never answers would be tried for seven minutes. So an operation runs in a thread, for which the caller
waits ``TOKENLAKE_STORE_TIMEOUT`` seconds at most, plus a second for each MiB that it transfers. The thread
costs 0.1 ms.
"""

import io
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from etl.storage.filesystem import TIMEOUT_VARIABLE, endpoint_of, store_timeout
from etl.storage.range_checks import check_length
from etl.storage.urls import is_local

_BYTES_PER_SECOND = 1 << 20  # a store below this rate counts as down
_FIRST_REPORT_SECONDS = 5.0  # the next ones follow after twice the time each
_REPORT_SECONDS = 4.0  # between the reports of all threads

_T = TypeVar("_T")


@dataclass
class _Hook:
    report: Callable[[str, float], None] | None = None
    reported: float = -math.inf
    lock: threading.Lock = field(default_factory=threading.Lock)

    def waiting(self, url: str, seconds: float) -> None:
        """Report a wait unless one has just been reported: many threads may wait for a store."""
        with self.lock:
            now = time.monotonic()
            if self.report is not None and now - self.reported >= _REPORT_SECONDS:
                self.reported = now
                self.report(endpoint_of(url), seconds)


_hook = _Hook()  # threads start operations too, so that a context variable would not do


@contextmanager
def reporting_waits(report: Callable[[str, float], None]) -> Iterator[None]:
    """Call ``report(endpoint, seconds)`` for operations that have waited 5, 10, 20 ... seconds.

    It applies to all threads of the process until the context ends, and is called from these threads, for
    all of them at most once in 4 seconds.
    """
    before, _hook.report = _hook.report, report
    try:
        yield
    finally:
        _hook.report = before


def call(
    fs: Any,
    method: str,
    *args: Any,
    url: str = "",
    num_bytes: int = 0,
    timeouts: int = 1,
    **options: Any,
) -> Any:
    """Call a method of a filesystem; ``url`` is the first argument unless given, a local one has no limit.

    The limit is ``timeouts`` times the timeout, plus a second for each MiB of ``num_bytes``. Raises the
    client's errors, and TimeoutError as ``with_time_limit`` does; fsspec then cancels the requests.
    """
    url = url or args[0]
    if is_local(url):
        return getattr(fs, method)(*args, **options)
    limit = timeouts * store_timeout() + num_bytes / _BYTES_PER_SECOND
    # fsspec cancels the requests itself, a second after the limit here, which has the better error.
    if iscoroutinefunction(getattr(fs, f"_{method}", None)):
        options["timeout"] = limit + 1
    return with_time_limit(url, lambda: getattr(fs, method)(*args, **options), limit)


def with_time_limit(url: str, operation: Callable[[], _T], limit: float) -> _T:
    """Return the result of an operation on the store of a URL, or raise its error.

    Raises TimeoutError, with the endpoint, after ``limit`` seconds; the operation may take effect later.
    """
    future: Future[_T] = Future()
    # A thread of a pool would be joined when the interpreter exits.
    threading.Thread(target=_run, args=(future, operation), daemon=True).start()
    started = time.monotonic()
    # Wait until the next report or the limit, whichever is first; reports come after 5, 10, 20 ...
    # seconds.
    report_at = _FIRST_REPORT_SECONDS
    while not _is_done(future, started + min(report_at, limit)):
        if report_at >= limit:
            raise _expired(url, limit)
        _hook.waiting(url, report_at)
        report_at *= 2
    try:
        return future.result()
    except TimeoutError as error:  # fsspec's limit, if this thread was not woken in time
        if time.monotonic() < started + limit:
            raise
        raise _expired(url, limit) from error


def _expired(url: str, limit: float) -> TimeoutError:
    endpoint = endpoint_of(url)
    return TimeoutError(
        f"{endpoint} did not answer within {limit:g} s, the limit of {TIMEOUT_VARIABLE}"
    )


class LimitedFile(io.RawIOBase):
    """A remote file whose reads and writes have a time limit."""

    def __init__(self, url: str, file: Any) -> None:
        super().__init__()
        self._url = url
        self._file = file
        self._unsent = 0  # bytes

    def readable(self) -> bool:
        """Return whether the file is open for reading."""
        return bool(self._file.readable())

    def writable(self) -> bool:
        """Return whether the file is open for writing."""
        return bool(self._file.writable())

    def seekable(self) -> bool:
        """Return whether the file can be read at any position."""
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, and return it."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer, and return their number."""
        size, start = getattr(self._file, "size", None), self._file.tell()
        data = self._run(partial(self._file.read, len(buffer)), len(buffer))
        if size is not None:  # of a file that is not a stream
            check_length(self._url, len(data), min(len(buffer), max(size - start, 0)))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        """Write bytes, and return their number."""
        content = bytes(data)
        self._unsent += len(content)
        self._send(partial(self._file.write, content))
        if self._unsent >= getattr(self._file, "blocksize", 0):  # the client has sent a block
            self._unsent = 0
        return len(content)

    def close(self) -> None:
        """Write the bytes that remain, and close the file."""
        if not self.closed:
            super().close()
            self._send(self._file.close)

    def _send(self, operation: Callable[[], Any]) -> None:
        try:
            self._run(operation, self._unsent)
        except BaseException:
            with suppress(AttributeError):  # else its finalizer would send the bytes again
                self._file.closed = True
            raise

    def _run(self, operation: Callable[[], _T], num_bytes: int) -> _T:
        return with_time_limit(
            self._url, operation, store_timeout() + num_bytes / _BYTES_PER_SECOND
        )


def _run(future: "Future[Any]", operation: Callable[[], Any]) -> None:
    try:
        future.set_result(operation())
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)


def _is_done(future: "Future[Any]", until: float) -> bool:
    """Wait for a future until a point in time; return whether it is done."""
    try:
        future.exception(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return future.done()
    return True
