"""List files by URL, folder or glob, with their sizes and fingerprints."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from etl.errors import StorageError, error_line
from etl.storage.filesystem import access_hint, filesystem, glob_pattern, location_of
from etl.storage.local_listing import (
    Report,
    glob_matcher,
    local_entries,
    not_regular,
    refuse_special_file,
)
from etl.storage.store_time_limit import call
from etl.storage.urls import (
    WILDCARDS,
    get_protocol,
    is_glob,
    is_local,
    join,
    normalize,
    refuse_unaddressable,
    split_authority,
)

LOG_FOLDER: Final = "/_delta_log/"
"""The part of a URL between the folder of a Delta table and a file of its log."""

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
        """Return whether the file is the listed file, perhaps on another machine.

        Inodes are not compared: file systems on top of object stores have their own on each machine.
        """
        if is_local(self.uri):
            return self.fingerprint.rpartition("-")[0] == fingerprint.rpartition("-")[0]
        return self.fingerprint == fingerprint


@dataclass(frozen=True)
class Listing:
    """What a URL matches: its files, and what the same requests show of the folders that they are in.

    ``root`` is the URL of the folder that was listed. ``tables`` are the folders of Delta tables below it,
    and ``links`` the paths of the files that are links.
    """

    root: str
    files: list[FileInfo]
    tables: frozenset[str]
    links: frozenset[str]

    def location(self, url: str) -> str:
        """Return the URL of a listed file or folder without links and other names of its protocol."""
        return location_of(url) if url in self.links else self._location + url[len(self.root) :]

    @cached_property
    def _location(self) -> str:
        return location_of(self.root)


def find_files(pattern: str, report: Report | None = None) -> list[FileInfo]:
    """Return the files that a URL, a prefix (folder) or a glob matches, sorted by URI.

    Names that start with ``_`` or ``.`` below the prefix, or below the fixed part of a glob, are ignored,
    as by other readers of such folders. Links to files are files; links to folders are not followed. The
    list is empty if nothing matches. Raises StorageError if the URL cannot be listed.

    ``report`` is called with the error of each file or folder that cannot be listed: names that are not
    UTF-8, pipes, devices, links that lead nowhere, folders that cannot be read. Without it, the first one is
    raised, and what is not a regular file is left out.
    """
    return list_pattern(pattern, report).files


def list_pattern(pattern: str, report: Report | None = None) -> Listing:
    """Return the files of ``find_files`` and the Delta tables among them; raises the same errors."""
    url = normalize(pattern)
    fs = filesystem(url)
    root = named = fs._strip_protocol(url)
    entries: Iterable[dict[str, Any]] = []
    tables: set[str] = set()
    try:
        entry = _info(fs, url)
        if is_local(url):
            refuse_special_file(root)
        # A name may contain wildcards itself: it is a glob only if no file has this name.
        if entry is None and is_glob(url):
            root = named = _fixed_part(root)
            if is_local(url):
                wants = glob_matcher(fs._strip_protocol(url), root)
                entries = local_entries(fs, root or "/", report or _fail, tables, wants)
            else:
                entries = _glob_entries(fs, url, root, tables)
        # A local folder is walked here, so that what cannot be read is reported.
        elif entry is not None and entry["type"] == "directory" and is_local(url):
            entries = local_entries(fs, root, report or _fail, tables)
        elif entry is not None and entry["type"] == "directory":
            found = call(fs, "find", url, detail=True, timeouts=_LISTING_TIMEOUTS)
            entries = found.values()
            tables |= _tables_among(fs, root, entries)
        elif entry is not None:
            # The folder of a single file is the root; its own name is never hidden, since it was given.
            root, entries = root.rpartition("/")[0], [entry]
        entries = list(entries)
        files = [*_visible_files(url, named, entries, report)]
    except StorageError:
        raise
    except Exception as error:  # each filesystem raises its own types: botocore, OSError and others
        what = f"cannot be listed ({error_line(error)})"
        raise StorageError(what, where=url, hint=access_hint(url)) from error
    links = (fs._strip_protocol(entry["name"]) for entry in entries if entry.get("islink"))
    return Listing(
        _uri(url, root or "/"),
        sorted(files, key=lambda file: file.uri),
        frozenset(_uri(url, table) for table in tables),
        frozenset(_uri(url, link) for link in links),
    )


def _fixed_part(path: str) -> str:
    """Return the folder of a glob before its first wildcard."""
    return path[: min(path.find(char) for char in WILDCARDS if char in path)].rpartition("/")[0]


def _tables_among(fs: Any, root: str, entries: Iterable[dict[str, Any]]) -> set[str]:
    """Return the folders of Delta tables below a root, by the entries below it."""
    logs = (fs._strip_protocol(entry["name"])[len(root) :] for entry in entries)
    return {f"{root}{log}/".partition(LOG_FOLDER)[0] for log in logs if LOG_FOLDER in f"{log}/"}


def _glob_entries(fs: Any, url: str, root: str, tables: set[str]) -> list[dict[str, Any]]:
    """Return the entries that match a glob; add the Delta tables below its fixed part, as deep as it reaches.

    fsspec lists the same, but returns only the matches.
    """
    if get_protocol(url) in ("http", "https"):  # pages with links, in no folders
        found = call(fs, "glob", url, detail=True, timeouts=_LISTING_TIMEOUTS)
        return list(found.values())
    path = fs._strip_protocol(url)
    rest = path[len(root) :].lstrip("/")
    # ``data/*/x.json`` needs no deeper levels; ``**`` matches any number of folders.
    options: dict[str, Any] = {"maxdepth": None if "**" in path else rest.count("/") + 1}
    # The store then lists only names that begin like the pattern: ``2024-`` of ``2024-*/x.json``.
    if get_protocol(url) in ("gs", "gcs"):
        options["prefix"] = rest[: min(rest.find(char) for char in WILDCARDS if char in rest)]
        options["prefix"] = options["prefix"].partition("/")[0]
    found = call(
        fs,
        "find",
        root or "/",
        url=url,
        withdirs=True,
        detail=True,
        timeouts=_LISTING_TIMEOUTS,
        **options,
    )
    tables |= _tables_among(fs, root, found.values())
    matches = glob_pattern(path).match
    return [entry for name, entry in found.items() if matches(name)]


def walk_files(folder: str) -> Iterator[FileInfo]:
    """Yield the files of ``find_files`` below a folder, in any order.

    Files of a local folder or of S3 are not held; a file of another store takes a kilobyte of memory.
    Raises as ``find_files`` does.
    """
    url = normalize(folder)
    fs = filesystem(url)
    root = fs._strip_protocol(url)
    if is_local(url):
        entries = local_entries(fs, root, _fail, set())
    elif get_protocol(url) in ("s3", "s3a"):
        entries = _s3_entries(fs, url)
    else:
        yield from find_files(url)
        return
    try:
        yield from _visible_files(url, root, entries, None)
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
    if is_local(uri) and entry is not None:
        refuse_special_file(fs._strip_protocol(uri))
    if entry is None or entry["type"] != "file":
        return None
    try:
        return _file_info(uri, fs._strip_protocol(uri), entry)
    except FileNotFoundError:
        return None


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


def _fail(error: StorageError) -> None:
    raise error


def _visible_files(
    url: str, root: str, entries: Iterable[dict[str, Any]], report: Report | None
) -> Iterator[FileInfo]:
    """Yield the files among entries below a root, except hidden ones; report those that are not files."""
    fs = filesystem(url)
    for entry in entries:
        path = fs._strip_protocol(entry["name"])
        hidden = any(part[:1] in ("_", ".") for part in path[len(root) :].split("/") if part)
        if hidden or entry["type"] == "directory":
            continue
        if entry["type"] != "file":
            if report is not None:
                report(not_regular(path, entry.get("error", "is not a regular file")))
            continue
        try:
            with suppress(FileNotFoundError):  # removed during the listing
                yield _file_info(url, path, entry)
        except StorageError as error:
            (report or _fail)(error)


def _s3_entries(fs: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield the objects below a prefix, page by page."""
    # A name below the folder: the client's rules for URLs then give the prefix with its slash, also for
    # the bucket itself.
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
    uri = _uri(url, path)
    if is_local(url):
        entry = _local_entry(path)
    refuse_unaddressable(uri)
    if uri.encode(errors="ignore").decode() != uri:  # a file name with bytes that are not text
        hint = "rename the file: its name is stored as text in the tables"
        raise StorageError("the name of this file is not UTF-8", where=uri, hint=hint)
    return FileInfo(uri, int(entry["size"]), _fingerprint(entry), _modified(entry))


def _uri(url: str, path: str) -> str:
    """Return the URL of a path of the client's, found below a URL."""
    if get_protocol(url) in ("http", "https"):  # the client's path is the URL
        return path
    authority = split_authority(url)[0]
    if "@" in authority:  # the client's path starts with the container, without the account
        return join(authority, path.partition("/")[2])
    return f"{get_protocol(url)}://{path}"


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
    # A replaced file may have the same size and time of the last write, which programs can set: the time
    # of the inode's last change or its number differs then.
    times = f"{stat.st_mtime_ns}-{stat.st_ctime_ns}-{stat.st_ino}"
    return {"size": stat.st_size, "mtime": stat.st_mtime, "etag": f"{stat.st_size}-{times}"}


def _fingerprint(entry: dict[str, Any]) -> str:
    for name in ("ETag", "etag", "md5Hash", "content_settings_md5"):
        if entry.get(name):
            return str(entry[name]).strip('"')
    return f"{entry['size']}-{entry.get('LastModified') or entry.get('updated') or ''}"
