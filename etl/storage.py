"""A URL and options -> a filesystem, files and the options of delta-rs.

This is the one place that knows how a URL is reached and the only holder of credentials. They come from
the environment, as every tool of the field reads them (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``,
``AWS_REGION``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME`` ...).
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
_SIGNED = re.compile(  # signed URLs of S3, Google and Azure, and keys given as if they were settings
    r"[?&;](?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|sig|signature"
    r"|awsaccesskeyid|[a-z_]*(?:secret|token|password|key))=.*",
    re.IGNORECASE | re.DOTALL,
)
# What tells each store's client to write an object only where there is none.
_REFUSE: Mapping[str, Mapping[str, Any]] = {
    **{protocol: {"mode": "create"} for protocol in ("s3", "s3a", "gs", "gcs")},
    **{protocol: {"overwrite": False} for protocol in ("az", "abfs", "abfss")},
}


@dataclass(frozen=True)
class FileInfo:
    """One file: its URI, its size in bytes, what changes when its content does, and when it came."""

    uri: str
    size: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)  # UTC, by the store's clock


def normalize(url: str | os.PathLike[str]) -> str:
    """The one spelling of a URL: absolute, ``file://`` for local paths, no slash at the end.

    >>> normalize("s3://lake/web/")
    's3://lake/web'

    Raises StorageError if it holds a user's name, a key or a signature.
    """
    text = os.fspath(url)
    refuse_credentials(text)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    return "file://" + (os.path.abspath(os.path.expanduser(text)).rstrip("/") or "/")


def refuse_credentials(url: str) -> None:
    """Raise StorageError if a URL holds credentials: it would be written into the lineage.

    >>> refuse_credentials("https://store/a.parquet?sig=c2VjcmV0")
    Traceback (most recent call last):
    etl.errors.StorageError: https://store/a.parquet[...]: a URL may not hold credentials
      hint: put them into the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    """
    if is_local(url) or not (_USER.search(url) or _SIGNED.search(url)):
        return
    shown = _SIGNED.sub("[...]", _USER.sub("[...]@", url))
    raise StorageError(
        "a URL may not hold credentials",
        where=shown,
        hint="put them into the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def join(url: str, *parts: str) -> str:
    """A URL below another one.

    >>> join("s3://lake/web", "tokens", "part-0.parquet")
    's3://lake/web/tokens/part-0.parquet'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def is_local(url: str) -> bool:
    """Whether the URL is a path of this machine."""
    return url.startswith("file://") or "://" not in url


def local_path(url: str) -> Path:
    """The path of a local URL."""
    return Path(url.removeprefix("file://"))


def filesystem(url: str) -> fsspec.AbstractFileSystem:
    """The fsspec filesystem of a URL, with the endpoint and region of the environment."""
    return _filesystem(url, once=False)


def _filesystem(url: str, *, once: bool) -> fsspec.AbstractFileSystem:
    """A filesystem that tries again by itself as its client does, or, if asked for, tries once."""
    protocol = url.split("://", 1)[0] if "://" in url else "file"
    options: dict[str, Any] = {}
    if protocol in ("s3", "s3a"):
        client = {"region_name": region} if (region := os.environ.get("AWS_REGION")) else {}
        options = {"endpoint_url": os.environ.get("AWS_ENDPOINT_URL"), "client_kwargs": client}
        if once:
            options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    # A listing may be out of date, and the memory of it is not made for threads.
    if protocol in _REFUSE:
        options["use_listings_cache"] = False
    try:
        found = fsspec.filesystem(protocol, **options)
    except (ImportError, ValueError) as error:
        raise StorageError(
            f"no filesystem for {protocol}:// ({error})",
            where=url,
            hint="local paths and s3:// work as installed; gs:// needs gcsfs, az:// needs adlfs",
        ) from error
    if once and hasattr(found, "retries"):
        found.retries = 1  # an instance of its own, by its options
    return found


def delta_options(url: str) -> dict[str, str]:
    """Storage options for delta-rs; it reads credentials from the same environment by itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if url.startswith(("s3://", "s3a://")) and endpoint.startswith("http://"):
        return {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": endpoint}
    return {}


def is_glob(url: str) -> bool:
    """Whether the URL has wildcards; a file of that very name comes first, see ``find``."""
    return any(char in url for char in _WILDCARDS)


def find(pattern: str) -> list[FileInfo]:
    """The files that a URL, a prefix (folder) or a glob names, sorted by URI.

    Below the prefix, or the fixed part of a glob, names that begin with ``_`` or ``.`` are left out,
    as every reader of such folders does; links to files are files, links to folders are not followed.
    Raises StorageError if the place cannot be listed, or for a name that is no UTF-8; an empty list means
    that nothing matches.
    """
    url = normalize(pattern)
    fs = filesystem(url)
    root = fs._strip_protocol(url)
    try:
        if is_glob(url) and not fs.exists(url):
            root = root[: min(root.find(char) for char in _WILDCARDS if char in root)]
            root = root.rpartition("/")[0]
            found = fs.glob(url, detail=True).values()
        elif fs.isdir(url):
            found = fs.find(url, detail=True).values()
        else:
            found = [fs.info(url)] if fs.exists(url) else []
        found = [fs.info(entry["name"]) if entry.get("islink") else entry for entry in found]
    except Exception as error:  # botocore, OSError and others: each filesystem has its own
        raise StorageError(f"cannot be listed ({said(error)})", where=url) from error
    files = []
    for entry in found:
        path = fs._strip_protocol(entry["name"])
        hidden = any(part[:1] in ("_", ".") for part in path[len(root) :].split("/") if part)
        if entry["type"] == "file" and not hidden:
            files.append(_file_info(url, path, entry))
    return sorted(files, key=lambda file: file.uri)


def info(uri: str) -> FileInfo | None:
    """One file as it is now, or None if it is not there; raises StorageError if nobody can say."""
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
    if uri.encode(errors="ignore").decode() != uri:  # bytes of a file system that are no text
        hint = "rename it: what is recorded of its rows is text"
        raise StorageError("the name of this file is no UTF-8", where=uri, hint=hint)
    return FileInfo(uri, int(entry["size"]), _fingerprint(entry), _modified(entry))


def _modified(entry: dict[str, Any]) -> datetime | None:
    for name in ("mtime", "LastModified", "updated", "last_modified"):
        found = entry.get(name)
        if isinstance(found, str):
            found = datetime.fromisoformat(found)
        if isinstance(found, datetime):
            return found.astimezone(UTC)
        if found is not None:
            return datetime.fromtimestamp(float(found), UTC)
    return None


def _fingerprint(info: dict[str, Any]) -> str:
    for name in ("ETag", "etag", "md5Hash", "content_settings_md5"):
        if info.get(name):
            return str(info[name]).strip('"')
    if info.get("mtime") is not None:  # local: nanoseconds, so that a quick rewrite is seen
        return f"{info['size']}-{int(float(info['mtime']) * 1e9)}"
    return f"{info['size']}-{info.get('LastModified') or info.get('updated') or ''}"


@contextmanager
def open_input(uri: str) -> Iterator[pa.NativeFile]:
    """A seekable Arrow file for reading; local files without Python in between.

    Raises StorageError if the file is not there or not readable.
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
    """The names of the files that stand in a folder right now, and their sizes in bytes.

    Raises FileNotFoundError if there is no such folder, StorageError if it cannot be listed.
    """
    fs = filesystem(folder)
    try:
        found = fs.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(folder) from error
    except Exception as error:
        raise StorageError(f"cannot be listed ({said(error)})", where=folder) from error
    files = (entry for entry in found if entry["type"] == "file")
    return {entry["name"].rsplit("/", 1)[-1]: int(entry["size"]) for entry in files}


def read_range(uri: str, start: int, stop: int, *, timeout_s: float) -> bytes:
    """The bytes [start, stop) of a file by one request, without a second try; fewer where the file ends.

    ``timeout_s`` limits the whole request, its body too, at stores that fsspec reaches asynchronously (S3,
    Google, Azure, HTTP). Raises what the store's client raises: FileNotFoundError, PermissionError, OSError
    and others. Threads may call it at once, and processes after a fork, since fsspec begins anew there.
    """
    fs = _filesystem(uri, once=True)
    limit = {"timeout": timeout_s} if fs.async_impl else {}
    return bytes(fs.cat_file(uri, start=start, end=stop, **limit))


@contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """A new file for writing; its folder is made where the store has folders.

    Raises WriteError if the place is not writable.
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
    """A new file for writing that nobody sees before it is whole, in the place of one that may be there.

    Raises WriteError if the place is not writable.
    """
    path = local_path(uri) if is_local(uri) else Path(tempfile.gettempdir(), "whole")
    part = _beside(path)
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
    """What writing to a file raises in the context is a WriteError; our errors, and Arrow's doubts, stay."""
    try:
        yield
    except (TokenlakeError, pa.ArrowException):
        raise
    except Exception as error:
        raise _unwritable(uri, error) from error


def read(uri: str) -> bytes | None:
    """The content of a small file, or None if it is not there; raises StorageError if nobody can say."""
    fs = filesystem(uri)
    try:
        return bytes(fs.cat_file(uri))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise StorageError(f"cannot be read ({said(error)})", where=uri) from error


def write(uri: str, content: bytes) -> None:
    """Write a small file, in the place of one that may be there; a reader sees all of it or nothing.

    Raises WriteError if the place is not writable.
    """
    try:
        if is_local(uri):
            _place(uri, content, os.replace)
        else:  # stores make an object whole or not at all
            filesystem(uri).pipe_file(uri, content)
    except Exception as error:
        raise _unwritable(uri, error) from error


def create(uri: str, content: bytes) -> bool:
    """Write a small file unless one is there; of many who try at once exactly one gets True.

    The contents that they write must differ. Raises WriteError if the place is not writable, StorageError
    if the store has no way to refuse a second writer.
    """
    protocol = uri.split("://", 1)[0]
    if not is_local(uri) and protocol not in _REFUSE:
        hint = "a lake can be on local disk, S3, Google Cloud Storage, or Azure Blob Storage"
        raise StorageError("the store cannot refuse a second writer", where=uri, hint=hint)
    try:
        if is_local(uri):
            _place(uri, content, os.link)
        else:
            filesystem(uri).pipe_file(uri, content, **_REFUSE[protocol])
    except Exception as error:
        found = read(uri)  # a store's refusal has many names, and an answer may be lost
        if found is None:
            raise _unwritable(uri, error) from error
        return found == content
    return True


def remove(uri: str) -> None:
    """Delete a file; one that is not there is no mistake. Raises StorageError if it cannot be done."""
    try:
        filesystem(uri).rm_file(uri)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise StorageError(f"cannot be deleted ({said(error)})", where=uri) from error


def size(uri: str) -> int | None:
    """The size of a file in bytes, or None if it is not there."""
    found = info(uri)
    return None if found is None else found.size


def _place(uri: str, content: bytes, move: Callable[[Path, Path], None]) -> None:
    """Write a local file beside its place, and move it there whole."""
    path = local_path(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    try:
        part.write_bytes(content)
        move(part, path)
    finally:
        part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")


def _unwritable(uri: str, error: BaseException) -> WriteError:
    return WriteError(
        f"cannot be written ({said(error)})",
        where=uri,
        hint="check the permissions, and the room that is left",
    )
