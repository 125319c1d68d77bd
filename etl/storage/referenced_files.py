"""Find, hash and read the files that stages name: lists, models and evaluation sets."""

import gzip
import hashlib
import io
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated

from pydantic import BeforeValidator, Field

from etl import storage
from etl.errors import RecipeError, StorageError
from etl.storage.listing import FileInfo

Paths = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]
"""A path or URL, or a list of them; a glob or a folder means all of its files."""

_BLOCK_BYTES = 1 << 20


def find_referenced(path: str) -> tuple[FileInfo, ...]:
    """Return the current files of a path, a glob or a folder, sorted by URI.

    Raises RecipeError if there are none or the storage cannot be reached.
    """
    uri = storage.normalize(path)
    try:
        file = None if storage.is_glob(uri) else storage.file_info(uri)
        files = tuple(storage.find_files(uri)) if file is None else (file,)
    except StorageError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
    if not files:
        raise RecipeError("no such file", where=uri)
    return files


def current(path: str) -> tuple[FileInfo, ...]:
    """Return the result of ``find_referenced``, cached for up to 10 seconds for remote paths; called per batch."""
    uri = storage.normalize(path)
    return (
        find_referenced(uri)
        if storage.is_local(uri)
        else _find_cached(uri, int(time.monotonic() // 10))
    )


def sha256(path: str) -> str:
    """Return the sha256 of the bytes of all files of a path; they are read again only if they change.

    Raises RecipeError if there are none or one cannot be read.
    """
    digests = [_sha256(file) for file in find_referenced(path)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def lines(file: FileInfo) -> Iterator[str]:
    """Yield the lines of a text file that are not blank, stripped; .gz files are decompressed.

    Raises RecipeError if the file cannot be read or is not valid UTF-8.
    """
    with _open(file) as source:
        for number, line in enumerate(source, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise RecipeError(
                    f"{line[:60]!r} is not valid UTF-8",
                    where=f"{file.uri}:{number}",
                    hint="convert the file to UTF-8, for example with: iconv -f latin1 -t utf-8",
                ) from error
            if text:
                yield text


def entries(file: FileInfo) -> Iterator[str]:
    """Yield the lines of a list except comments, which begin with #."""
    return (line for line in lines(file) if not line.startswith("#"))


@contextmanager
def local(file: FileInfo) -> Iterator[Path]:
    """Yield a local path with the file's content: a temporary copy if the file is remote.

    Raises RecipeError if the file cannot be read.
    """
    if storage.is_local(file.uri):
        yield storage.local_path(file.uri)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.uri.rpartition("/")[2])
        with _open(file, decompress=False) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
        yield path


@lru_cache(maxsize=64)
def _find_cached(uri: str, _interval: int) -> tuple[FileInfo, ...]:
    return find_referenced(uri)


@lru_cache(maxsize=256)
def _sha256(file: FileInfo) -> str:
    digest = hashlib.sha256()
    with _open(file, decompress=False) as source:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _open(file: FileInfo, *, decompress: bool = True) -> Iterator[IO[bytes] | gzip.GzipFile]:
    try:
        with storage.open_input(file.uri) as source:
            stored = io.BufferedReader(source, _BLOCK_BYTES)
            if decompress and file.uri.lower().endswith(".gz"):
                with gzip.open(stored) as decompressed:
                    yield decompressed
            else:
                yield stored
    except (StorageError, OSError, EOFError) as error:
        what = error.what if isinstance(error, StorageError) else f"cannot be read ({error})"
        raise RecipeError(what, where=file.uri) from error
