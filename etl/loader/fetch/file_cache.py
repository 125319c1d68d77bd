"""A cache of folders with files, which all processes of a machine share.

A folder is written under a temporary name. Its files are then renamed into place one by one, and at last the
list with their checksums, so that no process takes a part of it for the whole. Two processes that build the
same folder write the same files, and the later rename replaces equal content.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from xxhash import xxh3_64

from etl.errors import StorageError

_LIST = "files.json"
_CHUNK = 1 << 24  # bytes


class FileCache:
    """The folders below one folder, each by a key."""

    def __init__(self, folder: str | None) -> None:
        default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tokenlake", "loader")
        self._folder = (default if folder is None else Path(folder)).expanduser().absolute()

    def find(self, key: str) -> Path | None:
        """Return the folder of a key, or None if it is missing or damaged; raises OSError."""
        folder = self._folder / key
        return folder if is_sound(folder) else None

    def open(self, key: str, build: Callable[[Path], None]) -> Path:
        """Return the folder of a key; if it is missing or damaged, ``build`` writes its files first.

        Raises StorageError if the folder cannot be read or written.
        """
        folder = self._folder / key
        try:
            if self.find(key) is not None:
                return folder
            part = folder.with_name(f"{key}.{os.getpid()}-{secrets.token_hex(4)}.part")
            part.mkdir(parents=True)
            try:
                build(part)
                _move(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise StorageError(
                f"the cache of the loader cannot be used ({error})",
                where=str(folder),
                hint="set View(cache=...) to a writable folder on a local disk",
            ) from error
        return folder


def cached_arrays(
    kind: str, key: object, compute: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays that ``compute`` returns, from the cache if they were computed before.

    ``key`` is JSON data. A cache that cannot be read or written is not used.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    cache, name = FileCache(None), f"{kind}-{digest}"
    with suppress(OSError, ValueError):
        folder = cache.find(name)
        if folder is not None:
            return {path.stem: np.load(path) for path in folder.glob("*.npy")}
    arrays = compute()
    with suppress(StorageError):
        cache.open(name, partial(_save, arrays))
    return arrays


def _save(arrays: dict[str, np.ndarray], folder: Path) -> None:
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)


def is_sound(folder: Path) -> bool:
    """Return whether a folder has all its files, with the checksums that were recorded."""
    try:
        recorded = json.loads((folder / _LIST).read_text())
        return all(_checksum(folder / name) == value for name, value in recorded.items())
    except (FileNotFoundError, ValueError, AttributeError):
        return False


def _move(part: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    files = sorted(part.iterdir())
    recorded = {path.name: _checksum(path) for path in files}
    (part / _LIST).write_text(json.dumps(recorded))
    for path in (*files, part / _LIST):
        path.replace(folder / path.name)


def _checksum(path: Path) -> str:
    digest = xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
