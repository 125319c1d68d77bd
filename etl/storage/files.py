"""Open, read, write, create and remove files.

A file that was written is durable, so that what refers to it can be written next: on local disk, its content
and its entry in its folder are synced before the function or context that writes it ends.

Errors of the store's client become StorageError, or WriteError when writing; only ``read_range`` passes
them on, since its caller decides which request to repeat.
"""

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from etl.errors import StorageError, TokenlakeError, WriteError, error_line
from etl.storage.filesystem import CREATE_ONLY_OPTIONS, filesystem
from etl.storage.sync import make_folder, start_sync, sync_file, sync_folder
from etl.storage.urls import get_protocol, is_local, local_path

_READ_AHEAD_BYTES = 8 << 20  # one ranged GET of an object store


@contextmanager
def open_input(uri: str) -> Iterator[pa.NativeFile]:
    """Open a seekable Arrow file for reading; local files are read without Python.

    Raises StorageError if the file does not exist or is not readable.
    """
    try:
        if is_local(uri):
            file = pa.OSFile(str(local_path(uri)), "rb")
        else:
            remote = filesystem(uri).open(uri, "rb", block_size=_READ_AHEAD_BYTES)
            file = pa.PythonFile(remote, mode="r")
    except Exception as error:
        raise StorageError(f"cannot be read ({error_line(error)})", where=uri) from error
    with file:
        yield file


def read_range(uri: str, start: int, stop: int, *, timeout_s: float) -> bytes:
    """Return the bytes [start, stop) of a file by one request without retries; fewer at its end.

    ``timeout_s`` limits the whole request, including its body, on stores that fsspec accesses
    asynchronously (S3, Google, Azure, HTTP). Raises the errors of the store's client: FileNotFoundError,
    PermissionError, OSError and others. Threads may call it concurrently, as may forked processes,
    since fsspec starts a new event loop after a fork.
    """
    fs = filesystem(uri, retry=False)
    limit = {"timeout": timeout_s} if fs.async_impl else {}
    return bytes(fs.cat_file(uri, start=start, end=stop, **limit))


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
        file = pa.PythonFile(filesystem(uri).open(uri, "wb"), mode="w")
    with file:
        yield file


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
                filesystem(uri).put_file(str(temporary), uri)
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


def read_bytes(uri: str) -> bytes | None:
    """Return the content of a small file, or None if it does not exist.

    Raises StorageError if the file cannot be read.
    """
    fs = filesystem(uri)
    try:
        return bytes(fs.cat_file(uri))
    except FileNotFoundError:
        return None
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
            filesystem(uri).pipe_file(uri, content)


def create_if_absent(uri: str, content: bytes) -> bool:
    """Write a small file unless it exists; of several concurrent writers, exactly one gets True.

    Each writer's content must differ from that of the others. Raises WriteError if the file cannot be
    written, StorageError if the store cannot refuse a second writer.
    """
    protocol = get_protocol(uri)
    if not is_local(uri) and protocol not in CREATE_ONLY_OPTIONS:
        hint = "use local disk, S3, Google Cloud Storage or Azure Blob Storage"
        raise StorageError("the store cannot refuse a second writer", where=uri, hint=hint)
    try:
        if is_local(uri):
            _write_local(uri, content, os.link)
        else:
            filesystem(uri).pipe_file(uri, content, **CREATE_ONLY_OPTIONS[protocol])
    except TokenlakeError:  # the entry is there, but it is not known to be durable
        raise
    except Exception as error:
        # Each store refuses with its own error, and a response may be lost: see what is stored.
        existing = read_bytes(uri)
        if existing is None:
            raise _write_error(uri, error) from error
        return existing == content
    return True


def remove(uri: str) -> None:
    """Delete a file if it exists; raise StorageError if it cannot be deleted."""
    try:
        filesystem(uri).rm_file(uri)
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


def _write_error(uri: str, error: BaseException) -> WriteError:
    return WriteError(
        f"cannot be written ({error_line(error)})",
        where=uri,
        hint="check the permissions and the free disk space",
    )
