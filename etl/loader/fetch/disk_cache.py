"""A disk cache of ranges fetched from an object store, shared by all processes of a machine.

Each range is stored as a file named by a hash of its key. The file is written under a temporary name and
renamed when complete, so no process sees half of it. Its last eight bytes are a checksum over key and
content: a file damaged by a crash or a disk counts as missing and is written again.

There are no locks. If two processes miss the same range, both fetch it, and the later rename replaces the
same content. If two processes evict at once, they delete the same files. POSIX keeps a deleted file readable
until its last reader closes it.
"""

import errno
import os
import secrets
import time
import warnings
from hashlib import blake2b
from pathlib import Path

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from etl.errors import StorageError

_CHECKS_PER_LIMIT = 64  # a process measures the cache after writing this fraction of the limit
_KEPT_RATIO = 7 / 8  # of the limit, after eviction: eight processes stay within it between checks
_ABANDONED_S = 3600  # a file not renamed after this time belongs to a process that has died


class Cache:
    """A folder of ranges with a size limit, safe to share among threads and processes."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        """Create the folder; raises StorageError if it is not writable."""
        self._folder = Path(folder).expanduser()
        self._max_bytes = max_bytes
        self._unchecked_bytes = max_bytes  # written since the last check: the first write checks
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(error) from error

    def get(self, key: str, size: int) -> bytes | None:
        """Return the ``size`` bytes stored under a key, or None if they are missing or damaged."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                content, checksum = file.read(size), file.read()
                os.utime(file.fileno())  # mark as recently used
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error) from error
        if checksum == _checksum(key, content):
            return content
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Store data under a key and evict old data if needed; only warn if the disk is full."""
        path = self._path(key)
        part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            path.parent.mkdir(exist_ok=True)
            with part.open("wb") as file:
                file.write(data)
                file.write(_checksum(key, data))
            part.replace(path)
            self._unchecked_bytes += len(data)
            if self._unchecked_bytes >= self._max_bytes // _CHECKS_PER_LIMIT:
                self._unchecked_bytes = 0
                self._evict()
        except OSError as error:
            part.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise self._error(error) from error
            warnings.warn(
                f"{self._folder}: the disk is full, new data is not cached",
                RuntimeWarning,
                stacklevel=2,
            )

    def _evict(self) -> None:
        """Delete the least recently used files until the cache is within its limit."""
        files, total, now = [], 0, time.time()
        for path in self._folder.glob("??/*"):
            try:
                status = path.stat()
            except FileNotFoundError:  # deleted by another process
                continue
            if path.suffix == ".part":
                if now - status.st_mtime > _ABANDONED_S:
                    path.unlink(missing_ok=True)
                continue
            files.append((status.st_mtime_ns, status.st_size, path))
            total += status.st_size
        if total <= self._max_bytes * _KEPT_RATIO:
            return
        for _, size, path in sorted(files):
            path.unlink(missing_ok=True)
            total -= size
            if total <= self._max_bytes * _KEPT_RATIO:
                return

    def _path(self, key: str) -> Path:
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _error(self, error: OSError) -> StorageError:
        return StorageError(
            f"the cache cannot be used ({error})",
            where=str(self._folder),
            hint="set Remote(cache=...) to a writable folder on a local disk",
        )


def _checksum(key: str, content: bytes) -> bytes:
    return xxh3_64_digest(content, seed=xxh3_64_intdigest(key.encode()))
