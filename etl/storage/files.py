"""Open, read, write, create and remove files.

A file that was written is durable, so that what refers to it can be written next: on local disk, its content
and its entry in its folder are synced before the function or context that writes it ends.

Errors of the store's client become StorageError, or WriteError when writing; only ``read_range`` passes
them on, since its caller decides which request to repeat.
"""

import io
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

import pyarrow as pa

from etl.errors import StorageError, TokenlakeError, WriteError, error_line
from etl.storage.filesystem import CREATE_ONLY_OPTIONS, access_hint, filesystem
from etl.storage.local_listing import refuse_special_file
from etl.storage.range_checks import check_length
from etl.storage.store_time_limit import LimitedFile, call
from etl.storage.sync import make_folder, start_sync, sync_file, sync_folder
from etl.storage.urls import get_protocol, is_local, join, local_path, normalize

_READ_AHEAD_BYTES = 8 << 20  # one ranged GET of an object store
_CONFLICT_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)
_STORES = (
    "use local disk, Amazon S3 or a server with conditional writes, Google Cloud Storage or Azure"
)


@contextmanager
def open_input(uri: str) -> Iterator[pa.NativeFile]:
    """Open a seekable Arrow file for reading; local files are read without Python.

    Raises StorageError if the file does not exist or is not readable.
    """
    try:
        if is_local(uri):
            refuse_special_file(str(local_path(uri)))
            file = pa.OSFile(str(local_path(uri)), "rb")
        else:
            remote = call(filesystem(uri), "open", uri, "rb", cache_type="none")
            reader = io.BufferedReader(LimitedFile(uri, remote), _READ_AHEAD_BYTES)
            file = pa.PythonFile(reader, mode="r")
    except StorageError:
        raise
    except Exception as error:
        what = f"cannot be read ({error_line(error)})"
        raise StorageError(what, where=uri, hint=access_hint(uri)) from error
    with file:
        yield file


def read_range(uri: str, start: int, stop: int, *, timeout_s: float) -> bytes:
    """Return the bytes [start, stop) of a file by one request without retries; fewer at its end.

    ``timeout_s`` limits the whole request, including its body, on stores that fsspec accesses
    asynchronously (S3, Google, Azure, HTTP). Raises the errors of the store's client: FileNotFoundError,
    PermissionError, OSError and others. Threads may call it concurrently, as may forked processes,
    since fsspec starts a new event loop after a fork. Raises StorageError if the store returned another
    range.
    """
    fs = filesystem(uri, retry=False)
    limit = {"timeout": timeout_s} if fs.async_impl else {}
    data = bytes(fs.cat_file(uri, start=start, end=stop, **limit))
    if len(data) > stop - start:
        check_length(uri, len(data), stop - start)
    return data


@contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a new file for writing; create its folder if the store has folders.

    Raises WriteError if the file cannot be written.
    """
    if is_local(uri):
        path = local_path(uri)
        with _open_local(uri, path) as file:
            yield file
        with convert_write_errors(uri):
            sync_folder(path.parent)
        return
    with convert_write_errors(uri):
        remote = call(filesystem(uri), "open", uri, "wb")
        file = pa.PythonFile(io.BufferedWriter(LimitedFile(uri, remote), 1 << 20), mode="w")
    try:
        yield file
    finally:
        with convert_write_errors(uri):
            file.close()


def start_writing(output: pa.NativeFile, start: int) -> int:
    """Start to write to the disk what was appended to an open output since a position; return the end.

    The end of the output's context then waits less for the disk.
    """
    stop = int(output.tell())
    if isinstance(output, pa.OSFile):
        start_sync(output.fileno(), start, stop)
    return stop


@contextmanager
def open_atomic_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for writing that appears only when it is complete, replacing any existing one.

    Raises WriteError if the file cannot be written.
    """
    path = local_path(uri) if is_local(uri) else Path(tempfile.gettempdir(), "complete")
    temporary = _temporary_path(path)
    try:
        if is_local(uri):
            with _open_local(uri, temporary) as file:
                yield file
            with convert_write_errors(uri):
                temporary.replace(path)
                sync_folder(path.parent)
        else:
            with convert_write_errors(uri):
                file = pa.OSFile(str(temporary), "wb")
            with file:
                yield file
            with convert_write_errors(uri):
                size = temporary.stat().st_size
                call(filesystem(uri), "put_file", str(temporary), uri, url=uri, num_bytes=size)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _open_local(uri: str, path: Path) -> Iterator[pa.OSFile]:
    """Open a local file for writing, and sync its content at the end of the context."""
    with convert_write_errors(uri):
        make_folder(path.parent)
        file = pa.OSFile(str(path), "wb")
    with file:
        yield file
        with convert_write_errors(uri):
            sync_file(file.fileno())


@contextmanager
def convert_write_errors(uri: str) -> Iterator[None]:
    """Convert errors in the context to WriteError, except TokenlakeError and Arrow's exceptions."""
    try:
        yield
    except (TokenlakeError, pa.ArrowException):
        raise
    except Exception as error:
        raise _write_error(uri, error) from error


def read_bytes(uri: str, start: int | None = None, stop: int | None = None) -> bytes | None:
    """Return the content of a small file, or of a range of any, by one request; None if it does not exist.

    Raises StorageError if the file cannot be read, or does not have the range.
    """
    fs = filesystem(uri)
    try:
        data = bytes(call(fs, "cat_file", uri, start=start, end=stop))
        if start is not None and stop is not None:
            check_length(uri, len(data), stop - start)
        return data
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"cannot be read ({error_line(error)})", where=uri) from error


def write_bytes(uri: str, content: bytes) -> None:
    """Write a small file, replacing any existing one; a reader sees all of its content or none.

    Raises WriteError if the file cannot be written.
    """
    with convert_write_errors(uri):
        if is_local(uri):
            _write_local(uri, content, os.replace)
        else:  # stores create objects atomically
            call(filesystem(uri), "pipe_file", uri, content, num_bytes=len(content))


def create_if_absent(uri: str, content: bytes) -> bool:
    """Write a small file unless it exists; of several concurrent writers, exactly one gets True.

    The writers' contents must differ. Raises WriteError if the file cannot be
    written, StorageError if the store cannot refuse a second writer.
    """
    protocol = get_protocol(uri)
    if not is_local(uri) and protocol not in CREATE_ONLY_OPTIONS:
        raise StorageError("the store cannot refuse a second writer", where=uri, hint=_STORES)
    for pause_s in (*_CONFLICT_PAUSES_S, None):
        try:
            if is_local(uri):
                _write_local(uri, content, os.link)
            else:
                options = CREATE_ONLY_OPTIONS[protocol]
                call(filesystem(uri), "pipe_file", uri, content, num_bytes=len(content), **options)
            return True
        except Exception as error:
            if is_local(uri) and isinstance(error, TokenlakeError):
                raise  # the file is there, but it is not known to be durable
            # Each store refuses with its own error, and a response may be lost: see what is stored.
            try:
                existing = read_bytes(uri)
            except StorageError:
                raise _write_error(uri, error) from error
            if existing is not None:
                return existing == content
            if _http_status(error) == HTTPStatus.NOT_IMPLEMENTED:
                what = f"conditional writes are not supported by this store ({error_line(error)})"
                raise StorageError(what, where=uri, hint=_STORES) from error
            if _http_status(error) != HTTPStatus.CONFLICT or pause_s is None:
                raise _write_error(uri, error) from error
            time.sleep(
                pause_s
            )  # S3 replies with a conflict while another request is being executed
    raise AssertionError("the last attempt returns or raises")


def check_conditional_writes(folder: str) -> None:
    """Raise StorageError if the store lets a second writer overwrite the file of the first.

    Two runs could then overwrite each other's commits. Creates a file in the folder twice, and deletes it; a
    folder that passed is not checked again. Raises WriteError if the folder is not writable.
    """
    folder = normalize(folder)
    if not is_local(folder):
        _try_once(folder)


@lru_cache(maxsize=64)
def _try_once(folder: str) -> None:
    try_conditional_writes(folder)


def try_conditional_writes(folder: str) -> None:
    """Check as ``check_conditional_writes`` does, also on local disk and in a folder that passed before."""
    uri = join(normalize(folder), f".probe-{uuid.uuid4().hex}")
    try:
        if create_if_absent(uri, b"first") and create_if_absent(uri, b"second"):
            raise StorageError(
                "the store ignores If-None-Match, so two runs could overwrite each other's commits",
                where=folder,
                hint=_STORES,
            )
    finally:
        with suppress(StorageError):  # the error of the check matters more
            remove(uri)


def remove(uri: str) -> None:
    """Delete a file if it exists; raise StorageError if it cannot be deleted."""
    try:
        call(filesystem(uri), "rm_file", uri)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise StorageError(f"cannot be deleted ({error_line(error)})", where=uri) from error


def _write_local(uri: str, content: bytes, move: Callable[[Path, Path], None]) -> None:
    """Write a temporary file next to the target, then move it there."""
    path = local_path(uri)
    make_folder(path.parent)
    temporary = _temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            sync_file(file.fileno())
        move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    with convert_write_errors(uri):
        sync_folder(path.parent)


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")


def _http_status(error: BaseException) -> int | None:
    """Return the status of an HTTP response that an error of any store's client describes."""
    for source in (error, error.__cause__):  # s3fs converts the errors of botocore
        response = getattr(source, "response", None)  # of botocore: a dictionary
        if isinstance(response, dict):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        status = getattr(source, "status_code", getattr(source, "code", None))  # Azure, Google
        if isinstance(status, int):
            return status
    return None


def _write_error(uri: str, error: BaseException) -> WriteError:
    return WriteError(
        f"cannot be written ({error_line(error)})",
        where=uri,
        hint="check the permissions and the free disk space",
    )
