"""Files that a stage names: lists, models, evaluation sets. Their content counts, and not their place."""

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
"""A path or URL, or a list of them; a glob or a folder names all of its files."""

_BLOCK_BYTES = 1 << 20


def find_referenced(path: str) -> tuple[FileInfo, ...]:
    """The files that a path, a glob or a folder names, sorted by URI, as they are now.

    Raises RecipeError if there is none, or if the place cannot be reached.
    """
    uri = storage.normalize(path)
    try:
        one = None if storage.is_glob(uri) else storage.file_info(uri)
        files = tuple(storage.find_files(uri)) if one is None else (one,)
    except StorageError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
    if not files:
        raise RecipeError("there is no such file", where=uri)
    return files


def current(path: str) -> tuple[FileInfo, ...]:
    """What ``find_referenced`` gives, for one batch after the other: a store is asked again after 10 seconds."""
    uri = storage.normalize(path)
    return (
        find_referenced(uri) if storage.is_local(uri) else _found(uri, int(time.monotonic() // 10))
    )


def sha256(path: str) -> str:
    """The sha256 of the bytes of all files that a path names; read again only when they change.

    Raises RecipeError if there is none, or if one cannot be read.
    """
    digests = [_sha256(file) for file in find_referenced(path)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def lines(file: FileInfo) -> Iterator[str]:
    """The lines of a text, without white space around them and blank ones; of a .gz, unpacked.

    Raises RecipeError if the file cannot be read, or is no UTF-8.
    """
    with _open(file) as source:
        for number, line in enumerate(source, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise RecipeError(
                    f"{line[:60]!r} is no UTF-8",
                    where=f"{file.uri}:{number}",
                    hint="convert the file, as in: iconv -f latin1 -t utf-8",
                ) from error
            if text:
                yield text


def entries(file: FileInfo) -> Iterator[str]:
    """The lines of a list: all but the comments, which begin with #."""
    return (line for line in lines(file) if not line.startswith("#"))


@contextmanager
def local(file: FileInfo) -> Iterator[Path]:
    """A path of this machine with the file's content; a copy of it, for a while, if it lies elsewhere.

    Raises RecipeError if the file cannot be read.
    """
    if storage.is_local(file.uri):
        yield storage.local_path(file.uri)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.uri.rpartition("/")[2])
        with _open(file, unpack=False) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
        yield path


@lru_cache(maxsize=64)
def _found(uri: str, _moment: int) -> tuple[FileInfo, ...]:
    return find_referenced(uri)


@lru_cache(maxsize=256)
def _sha256(file: FileInfo) -> str:
    digest = hashlib.sha256()
    with _open(file, unpack=False) as source:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _open(file: FileInfo, *, unpack: bool = True) -> Iterator[IO[bytes] | gzip.GzipFile]:
    try:
        with storage.open_input(file.uri) as source:
            plain = io.BufferedReader(source, _BLOCK_BYTES)
            if unpack and file.uri.lower().endswith(".gz"):
                with gzip.open(plain) as unpacked:
                    yield unpacked
            else:
                yield plain
    except (StorageError, OSError, EOFError) as error:
        what = error.what if isinstance(error, StorageError) else f"cannot be read ({error})"
        raise RecipeError(what, where=file.uri) from error
