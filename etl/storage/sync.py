"""Make local files durable: after a power failure, a synced file and its entry in its folder exist.

``TOKENLAKE_SYNC=off`` in the environment skips this, for scratch lakes. Object stores need nothing: an object
is durable when the request that wrote it returns.
"""

import errno
import os
import sys
from functools import lru_cache
from pathlib import Path

from etl.errors import WriteError

if sys.platform == "darwin":
    import fcntl

_VARIABLE = "TOKENLAKE_SYNC"
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)  # what file systems return that cannot sync a folder


def sync_file(descriptor: int) -> None:
    """Wait until the content of an open file is on the disk."""
    if not _is_enabled():
        return
    if sys.platform == "darwin":  # fsync leaves the data in the cache of the drive
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return
    os.fsync(descriptor)


def start_sync(descriptor: int, start: int, stop: int) -> None:
    """Start to write a range of an open file to the disk, so that ``sync_file`` has less to wait for."""
    if _is_enabled() and hasattr(os, "posix_fadvise"):
        # On Linux this starts the transfer; pages in transfer stay in memory.
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk: its new, renamed and deleted files."""
    if not _is_enabled():
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync_file(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents unless they exist, and wait until their entries are on the disk."""
    if not folder.is_dir():
        _sync_entry.cache_clear()  # it has not been created yet, or was deleted
        folder.mkdir(parents=True, exist_ok=True)
    if _is_enabled():
        _sync_entry(folder)


@lru_cache(maxsize=1024)
def _sync_entry(folder: Path) -> None:
    """Sync the entry of a folder in its parent, and the entries of its parents.

    Another process may have created the folder just now, so this process syncs each one once.
    """
    if os.path.ismount(folder):
        return
    _sync_entry(folder.parent)
    try:
        sync_folder(folder.parent)
    except PermissionError:
        return  # a folder that this user cannot list, such as the parent of home folders


def _is_enabled() -> bool:
    """Return whether files are synced; raise WriteError if the setting is invalid."""
    value = os.environ.get(_VARIABLE, "on")
    if value not in ("on", "off"):
        raise WriteError(
            f"invalid value {value!r}",
            where=f"the environment variable {_VARIABLE}",
            hint="on: files are safe from a power failure; off: faster, for scratch lakes",
        )
    return value == "on"
