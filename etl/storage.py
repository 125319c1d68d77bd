"""Access to files by URL: listing, reading, writing, and the storage options of delta-rs.

This is the only module that maps URLs to stores, and the only one that handles credentials. They come from
the usual environment variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME`` ...).
"""

import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa

from etl.errors import StorageError, TokenlakeError, WriteError, said

_READ_AHEAD_BYTES = 8 << 20  # one ranged GET of an object store
_WILDCARDS = "*?["
_USER = re.compile(r"(?<=://)[^/@]*@")
_SIGNED = re.compile(  # signed URLs of S3, Google and Azure, and keys passed as query parameters
    r"[?&;](?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|sig|signature"
    r"|awsaccesskeyid|[a-z_]*(?:secret|token|password|key))=.*",
    re.IGNORECASE | re.DOTALL,
)
# The options with which each store's client creates an object, but never overwrites one.
_CREATE_ONLY: Mapping[str, Mapping[str, Any]] = {
    **{protocol: {"mode": "create"} for protocol in ("s3", "s3a", "gs", "gcs")},
    **{protocol: {"overwrite": False} for protocol in ("az", "abfs", "abfss")},
}


@dataclass(frozen=True)
class FileInfo:
    """A file: its URI, size in bytes, a fingerprint that changes with its content, and its last change."""

    uri: str
    size: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)  # UTC, by the store's clock


def normalize(url: str | os.PathLike[str]) -> str:
    """Return the canonical URL: absolute, with ``file://`` for local paths, without a slash at the end.

    >>> normalize("s3://lake/web/")
    's3://lake/web'

    Raises StorageError if it contains a user name, a key or a signature.
    """
    text = os.fspath(url)
    refuse_credentials(text)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    return "file://" + (os.path.abspath(os.path.expanduser(text)).rstrip("/") or "/")


def refuse_credentials(url: str) -> None:
    """Raise StorageError if a URL contains credentials: URLs are written into the lineage.

    >>> refuse_credentials("https://store/a.parquet?sig=c2VjcmV0")
    Traceback (most recent call last):
    etl.errors.StorageError: https://store/a.parquet[...]: a URL must not contain credentials
      hint: set environment variables instead, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    """
    if is_local(url) or not (_USER.search(url) or _SIGNED.search(url)):
        return
    shown = _SIGNED.sub("[...]", _USER.sub("[...]@", url))
    raise StorageError(
        "a URL must not contain credentials",
        where=shown,
        hint="set environment variables instead, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def join(url: str, *parts: str) -> str:
    """Return the URL of a path below another URL.

    >>> join("s3://lake/web", "tokens", "part-0.parquet")
    's3://lake/web/tokens/part-0.parquet'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def is_local(url: str) -> bool:
    """Return whether the URL is a path on this machine."""
    return url.startswith("file://") or "://" not in url


def local_path(url: str) -> Path:
    """Return the path of a local URL."""
    return Path(url.removeprefix("file://"))


def filesystem(url: str) -> fsspec.AbstractFileSystem:
    """Return the fsspec filesystem of a URL, with the endpoint and region from the environment."""
    return _filesystem(url, once=False)


def _filesystem(url: str, *, once: bool) -> fsspec.AbstractFileSystem:
    """Return a filesystem with the retries of its client, or, with ``once``, without retries."""
    protocol = url.split("://", 1)[0] if "://" in url else "file"
    options: dict[str, Any] = {}
    if protocol in ("s3", "s3a"):
        client = {"region_name": region} if (region := os.environ.get("AWS_REGION")) else {}
        options = {"endpoint_url": os.environ.get("AWS_ENDPOINT_URL"), "client_kwargs": client}
        if once:
            options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    # A cached listing may be out of date, and the cache is not thread-safe.
    if protocol in _CREATE_ONLY:
        options["use_listings_cache"] = False
    try:
        fs = fsspec.filesystem(protocol, **options)
    except (ImportError, ValueError) as error:
        raise StorageError(
            f"no filesystem for {protocol}:// ({error})",
            where=url,
            hint="local paths and s3:// work as installed; gs:// needs gcsfs, az:// needs adlfs",
        ) from error
    if once and hasattr(fs, "retries"):
        fs.retries = 1  # its options differ, so fsspec does not share this instance with others
    return fs


def delta_options(url: str) -> dict[str, str]:
    """Return storage options for delta-rs, which reads the credentials from the environment itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if url.startswith(("s3://", "s3a://")) and endpoint.startswith("http://"):
        return {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": endpoint}
    return {}


def is_glob(url: str) -> bool:
    """Return whether the URL has wildcards; a file of exactly that name takes precedence in ``find``."""
    return any(char in url for char in _WILDCARDS)


def find(pattern: str) -> list[FileInfo]:
    """Return the files that a URL, a prefix (folder) or a glob matches, sorted by URI.

    Names that start with ``_`` or ``.`` below the prefix, or below the fixed part of a glob, are ignored,
    as by other readers of such folders. Links to files are files; links to folders are not followed. The
    list is empty if nothing matches. Raises StorageError if the URL cannot be listed, or if a name is not
    UTF-8.
    """
    url = normalize(pattern)
    fs = filesystem(url)
    root = fs._strip_protocol(url)
    try:
        if is_glob(url) and not fs.exists(url):
            root = root[: min(root.find(char) for char in _WILDCARDS if char in root)]
            root = root.rpartition("/")[0]
            entries = fs.glob(url, detail=True).values()
        elif fs.isdir(url):
            entries = fs.find(url, detail=True).values()
        else:
            entries = [fs.info(url)] if fs.exists(url) else []
        entries = [fs.info(entry["name"]) if entry.get("islink") else entry for entry in entries]
    except Exception as error:  # each filesystem raises its own types: botocore, OSError and others
        raise StorageError(f"cannot be listed ({said(error)})", where=url) from error
    files = []
    for entry in entries:
        path = fs._strip_protocol(entry["name"])
        hidden = any(part[:1] in ("_", ".") for part in path[len(root) :].split("/") if part)
        if entry["type"] == "file" and not hidden:
            files.append(_file_info(url, path, entry))
    return sorted(files, key=lambda file: file.uri)


def info(uri: str) -> FileInfo | None:
    """Return a file as it is now, or None if it does not exist.

    Raises StorageError if the store cannot be reached.
    """
    fs = filesystem(uri)
    try:
        entry = fs.info(uri)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise StorageError(f"cannot be reached ({said(error)})", where=uri) from error
    return _file_info(uri, fs._strip_protocol(uri), entry) if entry["type"] == "file" else None


def _file_info(url: str, path: str, entry: dict[str, Any]) -> FileInfo:
    scheme = url.split("://", 1)[0] if "://" in url else "file"
    uri = f"{scheme}://{path}"
    if uri.encode(errors="ignore").decode() != uri:  # a file name with bytes that are not text
        hint = "rename the file: its name is stored as text in the tables"
        raise StorageError("the name of this file is not UTF-8", where=uri, hint=hint)
    return FileInfo(uri, int(entry["size"]), _fingerprint(entry), _modified(entry))


def _modified(entry: dict[str, Any]) -> datetime | None:
    for name in ("mtime", "LastModified", "updated", "last_modified"):
        time = entry.get(name)
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        if isinstance(time, datetime):
            return time.astimezone(UTC)
        if time is not None:
            return datetime.fromtimestamp(float(time), UTC)
    return None


def _fingerprint(info: dict[str, Any]) -> str:
    for name in ("ETag", "etag", "md5Hash", "content_settings_md5"):
        if info.get(name):
            return str(info[name]).strip('"')
    if info.get("mtime") is not None:  # local: in nanoseconds, to detect a quick rewrite
        return f"{info['size']}-{int(float(info['mtime']) * 1e9)}"
    return f"{info['size']}-{info.get('LastModified') or info.get('updated') or ''}"


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
        raise StorageError(f"cannot be read ({said(error)})", where=uri) from error
    with file:
        yield file


def sizes(folder: str) -> dict[str, int]:
    """Return the names and the sizes in bytes of the files directly in a folder.

    Raises FileNotFoundError if the folder does not exist, StorageError if it cannot be listed.
    """
    fs = filesystem(folder)
    try:
        entries = fs.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(folder) from error
    except Exception as error:
        raise StorageError(f"cannot be listed ({said(error)})", where=folder) from error
    files = (entry for entry in entries if entry["type"] == "file")
    return {entry["name"].rsplit("/", 1)[-1]: int(entry["size"]) for entry in files}


def read_range(uri: str, start: int, stop: int, *, timeout_s: float) -> bytes:
    """Return the bytes [start, stop) of a file by one request without retries; fewer at its end.

    ``timeout_s`` limits the whole request, including its body, on stores that fsspec accesses
    asynchronously (S3, Google, Azure, HTTP). Raises the errors of the store's client: FileNotFoundError,
    PermissionError, OSError and others. Threads may call it concurrently, as may forked processes,
    since fsspec starts a new event loop after a fork.
    """
    fs = _filesystem(uri, once=True)
    limit = {"timeout": timeout_s} if fs.async_impl else {}
    return bytes(fs.cat_file(uri, start=start, end=stop, **limit))


@contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a new file for writing; create its folder if the store has folders.

    Raises WriteError if the file cannot be written.
    """
    with writing(uri):
        if is_local(uri):
            path = local_path(uri)
            path.parent.mkdir(parents=True, exist_ok=True)
            file = pa.OSFile(str(path), "wb")
        else:
            file = pa.PythonFile(filesystem(uri).open(uri, "wb"), mode="w")
    with file:
        yield file


@contextmanager
def open_whole(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for writing that appears only when complete, and replaces any existing one.

    Raises WriteError if the file cannot be written.
    """
    path = local_path(uri) if is_local(uri) else Path(tempfile.gettempdir(), "complete")
    part = _temporary_path(path)
    try:
        with writing(uri):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = pa.OSFile(str(part), "wb")
        with file:
            yield file
        with writing(uri):
            if is_local(uri):
                part.replace(path)
            else:
                filesystem(uri).put_file(str(part), uri)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def writing(uri: str) -> Iterator[None]:
    """Convert errors in the context to WriteError, except TokenlakeError and Arrow's exceptions."""
    try:
        yield
    except (TokenlakeError, pa.ArrowException):
        raise
    except Exception as error:
        raise _write_error(uri, error) from error


def read(uri: str) -> bytes | None:
    """Return the content of a small file, or None if it does not exist.

    Raises StorageError if the file cannot be read.
    """
    fs = filesystem(uri)
    try:
        return bytes(fs.cat_file(uri))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise StorageError(f"cannot be read ({said(error)})", where=uri) from error


def write(uri: str, content: bytes) -> None:
    """Write a small file, replacing any existing one; a reader sees all of its content or none.

    Raises WriteError if the file cannot be written.
    """
    try:
        if is_local(uri):
            _write_local(uri, content, os.replace)
        else:  # stores create objects atomically
            filesystem(uri).pipe_file(uri, content)
    except Exception as error:
        raise _write_error(uri, error) from error


def create(uri: str, content: bytes) -> bool:
    """Write a small file unless it exists; of several concurrent writers, exactly one gets True.

    Each writer's content must differ from that of the others. Raises WriteError if the file cannot be
    written, StorageError if the store cannot reject a second writer.
    """
    protocol = uri.split("://", 1)[0]
    if not is_local(uri) and protocol not in _CREATE_ONLY:
        hint = "use local disk, S3, Google Cloud Storage or Azure Blob Storage"
        raise StorageError("the store cannot reject a second writer", where=uri, hint=hint)
    try:
        if is_local(uri):
            _write_local(uri, content, os.link)
        else:
            filesystem(uri).pipe_file(uri, content, **_CREATE_ONLY[protocol])
    except Exception as error:
        existing = read(uri)  # each store rejects with its own error, and a response may be lost
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
        raise StorageError(f"cannot be deleted ({said(error)})", where=uri) from error


def size(uri: str) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist."""
    file = info(uri)
    return None if file is None else file.size


def _write_local(uri: str, content: bytes, move: Callable[[Path, Path], None]) -> None:
    """Write a temporary file next to the target, then move it there."""
    path = local_path(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _temporary_path(path)
    try:
        part.write_bytes(content)
        move(part, path)
    finally:
        part.unlink(missing_ok=True)


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")


def _write_error(uri: str, error: BaseException) -> WriteError:
    return WriteError(
        f"cannot be written ({said(error)})",
        where=uri,
        hint="check the permissions and the free disk space",
    )
