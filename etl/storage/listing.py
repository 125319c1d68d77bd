"""List files by URL, folder or glob, with their sizes and fingerprints."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from etl.errors import StorageError, error_line
from etl.storage.filesystem import access_hint, filesystem
from etl.storage.time_limit import call
from etl.storage.urls import (
    WILDCARDS,
    get_protocol,
    is_glob,
    is_local,
    join,
    local_path,
    normalize,
    refuse_unaddressable,
    split_authority,
)

_PAGE = 1000  # the most that S3 returns at once
_LISTING_TIMEOUTS = 10  # of a folder with all files below it: a million files take 1,000 requests


@dataclass(frozen=True)
class FileInfo:
    """A file: its URI, size in bytes, a fingerprint, and its last write.

    The fingerprint changes with the content, and may change without it. On local disk it has the times of the
    last write and of the last change of the file's entry, which no program can set, and the inode.
    """

    uri: str
    size: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)  # UTC, by the store's clock

    def is_as_listed(self, fingerprint: str) -> bool:
        """Return whether the file is the one that was listed, perhaps on another machine.

        Inodes are not compared: file systems on top of object stores have their own on each machine.
        """
        if is_local(self.uri):
            return self.fingerprint.rpartition("-")[0] == fingerprint.rpartition("-")[0]
        return self.fingerprint == fingerprint


def find_files(pattern: str) -> list[FileInfo]:
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
        entry = _info(fs, url)
        if entry is None and is_glob(url):
            root = root[: min(root.find(char) for char in WILDCARDS if char in root)]
            root = root.rpartition("/")[0]
            entries = call(fs, "glob", url, detail=True, timeouts=_LISTING_TIMEOUTS).values()
        elif entry is None:
            entries = []
        elif entry["type"] == "directory":
            entries = call(fs, "find", url, detail=True, timeouts=_LISTING_TIMEOUTS).values()
        else:
            entries = [entry]
        entries = [fs.info(entry["name"]) if entry.get("islink") else entry for entry in entries]
    except Exception as error:  # each filesystem raises its own types: botocore, OSError and others
        what = f"cannot be listed ({error_line(error)})"
        raise StorageError(what, where=url, hint=access_hint(url)) from error
    return sorted(_visible_files(url, root, entries), key=lambda file: file.uri)


def walk_files(folder: str) -> Iterator[FileInfo]:
    """Yield the files of ``find_files`` below a folder, in any order.

    Those of a local folder or of S3 are not held; a file of another store takes a kilobyte of memory.
    Raises as ``find_files`` does.
    """
    url = normalize(folder)
    fs = filesystem(url)
    root = fs._strip_protocol(url)
    if is_local(url):
        entries = _local_entries(fs, root)
    elif get_protocol(url) in ("s3", "s3a"):
        entries = _s3_entries(fs, url)
    else:
        yield from find_files(url)
        return
    try:
        yield from _visible_files(url, root, entries)
    except StorageError:
        raise
    except Exception as error:
        what = f"cannot be listed ({error_line(error)})"
        raise StorageError(what, where=url, hint=access_hint(url)) from error


def file_info(uri: str) -> FileInfo | None:
    """Return a file as it is now, or None if it does not exist or is a folder.

    Raises StorageError if the store cannot be reached.
    """
    fs = filesystem(uri)
    try:
        entry = _info(fs, uri)
    except Exception as error:
        what = f"cannot be reached ({error_line(error)})"
        raise StorageError(what, where=uri, hint=access_hint(uri)) from error
    if entry is None or entry["type"] != "file":
        return None
    try:
        return _file_info(uri, fs._strip_protocol(uri), entry)
    except FileNotFoundError:
        return None


def real_uris(uris: Iterable[str]) -> Iterator[str]:
    """Yield the URIs of files without links and other names of a scheme: one name for each file.

    Costs no request.
    """
    real_folder = lru_cache(maxsize=1 << 16)(os.path.realpath)
    for uri in uris:
        if is_local(uri):
            folder, name = os.path.split(local_path(uri))
            path = os.path.join(real_folder(folder), name)
            yield f"file://{os.path.realpath(path) if os.path.islink(path) else path}"
        else:
            protocols = filesystem(uri).protocol
            first = protocols if isinstance(protocols, str) else protocols[0]
            yield f"{first}://{uri.partition('://')[2]}"


def is_folder(url: str) -> bool:
    """Return whether a folder exists; errors as in ``file_info``."""
    try:
        entry = _info(filesystem(url), url)
    except Exception as error:
        what = f"cannot be reached ({error_line(error)})"
        raise StorageError(what, where=url, hint=access_hint(url)) from error
    return entry is not None and entry["type"] == "directory"


def file_sizes(folder: str) -> dict[str, int]:
    """Return the names and the sizes in bytes of the files directly in a folder.

    Raises FileNotFoundError if the folder does not exist, StorageError if it cannot be listed.
    """
    fs = filesystem(folder)
    try:
        if is_local(folder):
            return _local_sizes(fs._strip_protocol(folder))
        entries = call(fs, "ls", folder, detail=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(folder) from error
    except Exception as error:
        what = f"cannot be listed ({error_line(error)})"
        raise StorageError(what, where=folder, hint=access_hint(folder)) from error
    files = (entry for entry in entries if entry["type"] == "file")
    return {entry["name"].rsplit("/", 1)[-1]: int(entry["size"]) for entry in files}


def _local_sizes(folder: str) -> dict[str, int]:
    """Return the sizes of the files in a local folder; a client needs four times as long."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed during the listing
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return sizes


def file_size(uri: str) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist; errors as in ``file_info``."""
    file = file_info(uri)
    return None if file is None else file.size


def _visible_files(url: str, root: str, entries: Iterable[dict[str, Any]]) -> Iterator[FileInfo]:
    """Yield the files among entries below a root, except hidden ones."""
    fs = filesystem(url)
    for entry in entries:
        path = fs._strip_protocol(entry["name"])
        hidden = any(part[:1] in ("_", ".") for part in path[len(root) :].split("/") if part)
        if entry["type"] == "file" and not hidden:
            with suppress(FileNotFoundError):  # removed during the listing
                yield _file_info(url, path, entry)


def _local_entries(fs: Any, folder: str) -> Iterator[dict[str, Any]]:
    """Yield the entries below a folder, except those that are removed during the listing."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for found in entries:
            with suppress(FileNotFoundError):
                entry = fs.info(found)
                if entry["type"] == "directory" and not entry.get("islink"):
                    yield from _local_entries(fs, entry["name"])
                else:
                    yield fs.info(entry["name"]) if entry.get("islink") else entry


def _s3_entries(fs: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield the objects below a prefix, page by page."""
    bucket, path, _ = fs.split_path(f"{url}/x")
    wanted = {"Bucket": bucket, "Prefix": path.removesuffix("x"), "MaxKeys": _PAGE}
    while True:
        page = call(fs, "call_s3", "list_objects_v2", url=url, **wanted)
        for entry in page.get("Contents") or ():
            kind = "directory" if entry["Key"].endswith("/") else "file"
            yield {
                **entry,
                "name": f"{bucket}/{entry['Key']}",
                "size": entry["Size"],
                "type": kind,
            }
        if not page.get("IsTruncated"):
            return
        wanted["ContinuationToken"] = page["NextContinuationToken"]


def _info(fs: Any, url: str) -> dict[str, Any] | None:
    """Return the entry of a file or folder, or None if it does not exist."""
    try:
        return dict(call(fs, "info", url))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _file_info(url: str, path: str, entry: dict[str, Any]) -> FileInfo:
    """Return the file of an entry at a path of the client's, found below a URL."""
    authority = split_authority(url)[0]
    uri = f"{get_protocol(url)}://{path}"
    if is_local(url):
        entry = _local_entry(path)
    if "@" in authority:  # the client's path starts with the container, without the account
        uri = join(authority, path.partition("/")[2])
    refuse_unaddressable(uri)
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


def _local_entry(path: str) -> dict[str, Any]:
    """Return the entry of a local file, or of the file that a link leads to."""
    stat = os.stat(path)
    times = f"{stat.st_mtime_ns}-{stat.st_ctime_ns}-{stat.st_ino}"
    return {"size": stat.st_size, "mtime": stat.st_mtime, "etag": f"{stat.st_size}-{times}"}


def _fingerprint(entry: dict[str, Any]) -> str:
    for name in ("ETag", "etag", "md5Hash", "content_settings_md5"):
        if entry.get(name):
            return str(entry[name]).strip('"')
    return f"{entry['size']}-{entry.get('LastModified') or entry.get('updated') or ''}"
