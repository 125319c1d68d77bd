"""Sets of files that a run needs on other machines: described by digest, sent, and copied once per machine.

The driver describes the files that a path of a recipe names. A worker copies them into a folder that all
processes of its machine share, and reads the copies. The content of each copy has the digest that the driver
found, so a file that changes during a run cannot change the result. Workers read a file by its URL; a local
file that they cannot reach is first sent to a folder of the lake, in which its name is its digest.

In the folder of a machine, each set has a folder named by the digests of its files, and a lock file beside
it. A process that uses a set holds a shared lock on that file until it ends or forgets the set. Sets that no
process uses are deleted when another one is copied. All this happens under an exclusive lock on one more
file, so that each file is read once.
"""

import fcntl
import hashlib
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

from etl import storage
from etl.errors import RecipeError, StorageError, WriteError, error_line
from etl.storage import FileInfo
from etl.storage.referenced_files import find_referenced_files, hash_file
from etl.storage.sync import sync_file
from etl.storage.urls import WILDCARDS

MAX_FILES: Final = 1000
"""The most files in a set: their digests are part of each task, 70 bytes per file. Chosen here."""

MAX_SENT_BYTES: Final = 4 << 30
"""The most bytes of a set that are sent: more than the largest published fastText filter (2.4 GB)."""

_BLOCK_BYTES = 1 << 20
_THREADS = 8  # they wait for storage
_LOCK = ".lock"


class File(NamedTuple):
    """A file of a set: its path below the root, its size in bytes, and the SHA-256 of its content."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True)
class FileSet:
    """The files that a path names: one file, or all files of a folder or a glob.

    Files are found below ``root``, or, once they are sent, in the folder ``store`` by their digests.
    """

    root: str
    files: tuple[File, ...]
    is_folder: bool
    store: str | None = None

    @property
    def key(self) -> str:
        """A digest of the names and contents of the files, as hexadecimal digits."""
        digest = hashlib.sha256()
        for file in self.files:
            name = file.name.encode("utf-8", "surrogateescape")
            digest.update(len(name).to_bytes(8, "little") + name + file.sha256)
        return digest.hexdigest()

    def url_of(self, file: File) -> str:
        """Return where a worker reads a file."""
        if self.store is None:
            return f"{self.root.rstrip('/')}/{file.name}"
        return storage.join(self.store, file.sha256.hex())

    def path_below(self, folder: Path) -> Path:
        """Return the path in the folder of a machine that replaces the user's path."""
        copies = folder / self.key
        return copies if self.is_folder else copies / self.files[0].name


def describe_path(path: str) -> FileSet:
    """Return the files that a path, a glob or a folder names, with their digests.

    Raises RecipeError if there are none, if one cannot be read, or if they are too many.
    """
    found = find_referenced_files(path)
    uri = storage.normalize(path)
    if [file.uri for file in found] == [uri]:
        root, _, name = uri.rpartition("/")
        return describe_files(root, {name: found[0]}, is_folder=False)
    root = uri
    if not all(file.uri.startswith(f"{uri}/") for file in found):  # a glob
        root = uri[: min(uri.find(char) for char in WILDCARDS if char in uri)].rpartition("/")[0]
    names = {file.uri.removeprefix(f"{root}/"): file for file in found}
    return describe_files(root, names, is_folder=True)


def describe_files(root: str, files: dict[str, FileInfo], *, is_folder: bool = True) -> FileSet:
    """Return the set of some files below a root, given by their names; errors as in ``describe_path``."""
    if len(files) > MAX_FILES:
        raise RecipeError(
            f"{len(files)} files are too many: a path may name {MAX_FILES} that workers read",
            where=root,
            hint="merge them into fewer files; install a large package of code on all machines",
        )
    for name, file in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name:
            raise RecipeError("this name cannot be a local path", where=file.uri, hint="rename it")
    described = (
        File(name, file.size, bytes.fromhex(hash_file(file))) for name, file in files.items()
    )
    return FileSet(root, tuple(described), is_folder)


def send_files(file_set: FileSet, store: str) -> FileSet:
    """Write the files of a local set to a folder that workers can read, unless they are there already.

    Returns the set as workers read it. Raises RecipeError if the files are too large or have changed.
    """
    if not storage.is_local(file_set.root):
        return file_set
    if (size := sum(file.size for file in file_set.files)) > MAX_SENT_BYTES:
        largest = max(file_set.files, key=lambda file: file.size)
        raise RecipeError(
            f"{size / 1e9:.1f} GB are too much to send to workers: the limit is "
            f"{MAX_SENT_BYTES / 1e9:.1f} GB",
            where=file_set.url_of(largest),
            hint="put the files into object storage and write their URL into the recipe",
        )
    try:
        present = storage.file_sizes(store)
    except FileNotFoundError:
        present = {}
    missing = {f.sha256: f for f in file_set.files if present.get(f.sha256.hex()) != f.size}
    sent = replace(file_set, store=store)

    def send(file: File) -> None:
        with storage.open_atomic_output(sent.url_of(file)) as target:
            _copy(file_set.url_of(file), file, target.write)

    try:
        _in_threads(send, list(missing.values()))
    except WriteError:
        raise
    except StorageError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
    return sent


class Copies:
    """The copies of some sets on this machine; as long as this object lives, they are not deleted."""

    def __init__(self, sets: Sequence[FileSet], folder: Path) -> None:
        """Copy the files that are missing; delete sets that no process uses.

        Raises StorageError if a file cannot be read or its content has changed, or the disk is full.
        """
        try:
            # One process at a time copies or deletes. A set in use has a shared lock, so that other
            # processes on the machine use it, too, and none deletes it; the lock ends with the process,
            # even if that is killed.
            with ExitStack() as locks, _locked(folder / _LOCK):
                for file_set in sets:
                    locks.enter_context(_share(folder, file_set))
                for file_set in sets:
                    copy = partial(_copy_file, file_set, folder / file_set.key)
                    _in_threads(copy, file_set.files)
                _remove_unused(folder)
                weakref.finalize(self, locks.pop_all().close)
        except OSError as error:
            raise StorageError(
                f"cannot be written ({error_line(error)})",
                where=str(folder),
                hint="give the workers more local disk: --local-directory of `dask worker`",
            ) from error
        self.paths = [str(file_set.path_below(folder)) for file_set in sets]


def remove_unused(folder: Path) -> None:
    """Delete the sets that no process uses."""
    if folder.is_dir():
        with suppress(OSError), _locked(folder / _LOCK):
            _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    for path in folder.glob(f"*{_LOCK}"):
        if path.name == _LOCK:
            continue
        with path.open("r+b") as lock:
            try:
                # Succeeds only if no process has the shared lock.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # in use
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _share(folder: Path, file_set: FileSet) -> IO[bytes]:
    """Take a shared lock on a set, which ends when the file is closed."""
    file = (folder / f"{file_set.key}{_LOCK}").open("a+b")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _copy_file(file_set: FileSet, folder: Path, file: File) -> None:
    path = folder / file.name
    if path.is_file() and path.stat().st_size == file.size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as target:
        _copy(file_set.url_of(file), file, target.write)
        target.flush()
        sync_file(target.fileno())  # later processes compare only the size of the copy
    part.replace(path)


def _copy(url: str, file: File, write: Callable[[bytes], object]) -> None:
    digest = hashlib.sha256()
    with storage.open_input(url) as source:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            write(block)
    if digest.digest() != file.sha256:
        raise StorageError(
            "the file has changed since the run started", where=url, hint="run again"
        )


def _in_threads(work: Callable[[File], None], files: Sequence[File]) -> None:
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(work, files):
            pass
