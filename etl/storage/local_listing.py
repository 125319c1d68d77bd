"""List the entries of local folders and globs, and refuse what is not a regular file on a disk."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from fsspec.utils import glob_translate

from etl.errors import StorageError, error_line

Report = Callable[[StorageError], None]
"""What is called with the error of a file or folder that cannot be listed."""

_PSEUDO: Final = ("/proc/", "/sys/", "/dev/")
_SHARED_MEMORY: Final = "/dev/shm/"  # noqa: S108 - a disk in memory, whose files are regular


def refuse_special_file(path: str) -> None:
    """Raise StorageError if a local path is a pipe, a socket, a device or below /proc, /sys or /dev.

    Links are followed. A path that does not exist passes.
    """
    real = os.path.realpath(path) + "/"
    if real.startswith(_PSEUDO) and not real.startswith(_SHARED_MEMORY):
        raise StorageError(
            "is not a file on a disk, but a view of the system",
            where=f"file://{path}",
            hint="name a regular file or folder; nothing below /proc, /sys and /dev is read",
        )
    with suppress(OSError):  # for the caller, who opens it
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise not_regular(path)


def not_regular(path: str, why: str = "is not a regular file") -> StorageError:
    """Return the error of a pipe, a socket, a device or a link that leads nowhere."""
    hint = "remove it, or leave it out by a glob such as **/*.parquet"
    return StorageError(why, where=f"file://{path}", hint=hint)


def local_entries(
    fs: Any,
    folder: str,
    report: Report,
    tables: set[str],
    wants: Callable[[str, bool], bool] = lambda *_: True,
) -> Iterator[dict[str, Any]]:
    """Yield the entries below a folder that are not folders, except hidden ones; links are followed.

    The folders of Delta tables are added to ``tables``. ``wants`` is called with a path, and whether it is a
    folder; others are left out. A link that leads nowhere is an entry with an ``error``. Folders that cannot
    be read are reported, and entries that are removed during the listing are left out.
    """
    try:
        refuse_special_file(folder)
        scan = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except StorageError as error:
        report(error)
        return
    except OSError as error:
        report(_unlisted(folder, error))
        return
    with scan:
        for found in scan:
            is_folder = found.is_dir(follow_symlinks=False)
            if found.name == "_delta_log":
                tables.add(folder)
            if found.name[:1] in ("_", ".") or not wants(found.path, is_folder):
                continue
            if is_folder:
                yield from local_entries(fs, found.path, report, tables, wants)
            else:
                try:
                    yield _entry(fs, found)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    report(_unlisted(found.path, error))


def _unlisted(path: str, error: OSError) -> StorageError:
    what = f"cannot be listed ({error_line(error)})"
    return StorageError(what, where=f"file://{path}", hint="check the permissions of the folder")


def _entry(fs: Any, found: os.DirEntry[str]) -> dict[str, Any]:
    entry: dict[str, Any] = fs.info(found)
    if not entry["islink"]:
        return entry
    try:
        target: dict[str, Any] = fs.info(entry["name"])
        refuse_special_file(entry["name"])
    except StorageError as error:
        return {**entry, "type": "other", "error": error.what}
    except OSError as error:
        what = f"is a link that leads to no file ({os.strerror(error.errno or 0)})"
        return {**entry, "type": "other", "error": what}
    return target


def glob_matcher(pattern: str, root: str) -> Callable[[str, bool], bool]:
    """Return which paths below the fixed part of a glob to list: matching files, and folders above them.

    >>> wants = glob_matcher("/in/a*/*.txt", "/in")
    >>> wants("/in/a1/b.txt", False), wants("/in/a1", True), wants("/in/b", True)
    (True, True, False)
    """
    parts = pattern[len(root) :].strip("/").split("/")
    folders = [
        re.compile(glob_translate("/".join([root, *parts[:depth]])))
        for depth in range(1, len(parts))
    ]
    files = re.compile(glob_translate(pattern))
    any_depth = parts.index("**") if "**" in parts else len(parts)

    def wants(path: str, is_folder: bool) -> bool:  # noqa: FBT001 - called by position
        if not is_folder:
            return files.match(path) is not None
        depth = path[len(root) :].strip("/").count("/")
        if depth >= any_depth:
            return True
        return depth < len(folders) and folders[depth].match(path) is not None

    return wants
