"""What was fetched from an object store, kept in a folder that all processes of a machine share.

Each range of a file is a file here, named by a hash of what it is. It is written under another name and
renamed when it is whole, so that nobody sees half of one. Its last eight bytes are a checksum over name and
content: one that a crash or a disk has damaged is taken for missing, and written anew.

There is no lock. Two processes that miss the same range both fetch it, and the later rename replaces the
same content. Two that make room at once delete the same files, and a file that somebody reads stays readable
until it is closed, as POSIX has it.
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

_LOOKS = 64  # a process looks how much there is whenever it has written this part of the limit
_KEPT = 7 / 8  # of the limit, when room is made: so that eight processes stay within it in between
_ABANDONED_S = 3600  # a file still not renamed after that belongs to a process that has died


class Cache:
    """A folder of ranges with a limit in bytes; may be shared by threads and processes."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        """Make the folder; raises StorageError if it cannot be written."""
        self._folder = Path(folder).expanduser()
        self._max_bytes = max_bytes
        self._unseen = max_bytes  # bytes written since the last look: at the first write, look
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(error) from error

    def get(self, key: str, size: int) -> bytes | None:
        """The content under a key, which has ``size`` bytes, or None if it is not here or damaged."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                content, rest = file.read(size), file.read()
                os.utime(file.fileno())  # used just now
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error) from error
        if rest == _checksum(key, content):
            return content
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Keep content under a key, and make room if there is too much; on a full disk, only warn."""
        path = self._path(key)
        part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            path.parent.mkdir(exist_ok=True)
            with part.open("wb") as file:
                file.write(data)
                file.write(_checksum(key, data))
            part.replace(path)
            self._unseen += len(data)
            if self._unseen >= self._max_bytes // _LOOKS:
                self._unseen = 0
                self._make_room()
        except OSError as error:
            part.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise self._error(error) from error
            warnings.warn(
                f"{self._folder}: the disk is full, the cache keeps nothing more",
                RuntimeWarning,
                stacklevel=2,
            )

    def _make_room(self) -> None:
        """Delete what was used longest ago, if there is more than the limit leaves."""
        found, total, now = [], 0, time.time()
        for path in self._folder.glob("??/*"):
            try:
                status = path.stat()
            except FileNotFoundError:  # deleted by another process
                continue
            if path.suffix == ".part":
                if now - status.st_mtime > _ABANDONED_S:
                    path.unlink(missing_ok=True)
                continue
            found.append((status.st_mtime_ns, status.st_size, path))
            total += status.st_size
        if total <= self._max_bytes * _KEPT:
            return
        for _, size, path in sorted(found):
            path.unlink(missing_ok=True)
            total -= size
            if total <= self._max_bytes * _KEPT:
                return

    def _path(self, key: str) -> Path:
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _error(self, error: OSError) -> StorageError:
        return StorageError(
            f"the cache cannot be used ({error})",
            where=str(self._folder),
            hint="give a folder of a local disk that this user may write, Remote(cache=...)",
        )


def _checksum(key: str, content: bytes) -> bytes:
    return xxh3_64_digest(content, seed=xxh3_64_intdigest(key.encode()))
