"""Files that a recipe names (lists, models, evaluation sets): find, hash and read them.

A recipe is identified by the content of these files, not by their URLs. All errors are RecipeError. The
package does not export this module, since it needs pydantic and the others do not.
"""

import gzip
import hashlib
import io
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated

from pydantic import BeforeValidator, Field

from etl import storage
from etl.errors import RecipeError, StorageError
from etl.storage import FileInfo

Paths = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]
"""A path or URL, or a list of them; a glob or a folder names all of its files."""

_BLOCK_BYTES = 1 << 20
_CACHE_SECONDS = 10


def find_referenced_files(path: str) -> tuple[FileInfo, ...]:
    """Return the files that a path, a glob or a folder names, sorted by URI, as they are now.

    Of several files, those that cannot be read are left out: see ``find_unreadable_files``. Raises
    RecipeError if there are none, or if they cannot be listed.
    """
    return _find(path)[0]


def find_unreadable_files(path: str) -> tuple[StorageError, ...]:
    """Return why files among those that a path names cannot be listed or read; errors as above."""
    return _find(path)[1]


def _find(path: str) -> tuple[tuple[FileInfo, ...], tuple[StorageError, ...]]:
    uri = storage.normalize(path)
    problems: list[StorageError] = []
    try:
        file = None if storage.is_glob(uri) else storage.file_info(uri)
        files = storage.find_files(uri, problems.append) if file is None else [file]
    except StorageError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
    if len(files) + len(problems) > 1:
        problems += filter(None, map(_access_error, files))
        files = [file for file in files if _access_error(file) is None]
    if not files and problems:
        first = problems[0]
        raise RecipeError(first.what, where=first.where, hint=first.hint) from first
    if not files:
        raise RecipeError(
            "no such file, or a folder without files",
            where=uri,
            hint="correct the path in the recipe",
        )
    return tuple(files), tuple(problems)


@lru_cache(maxsize=4096)
def _access_error(file: FileInfo) -> StorageError | None:
    """Return the error of a file that cannot be opened; it is opened again only if it changes."""
    try:
        with storage.open_input(file.uri):
            return None
    except StorageError as error:
        return error


def find_referenced_files_cached(path: str) -> tuple[FileInfo, ...]:
    """Return the result of ``find_referenced_files``; for a remote path, it may be 10 seconds old.

    This is for calls that are made for every batch.
    """
    uri = storage.normalize(path)
    if storage.is_local(uri):
        return find_referenced_files(uri)
    return _find_remote_files(uri, int(time.monotonic() // _CACHE_SECONDS))


def hash_referenced_files(path: str) -> str:
    """Return the SHA-256 of all files that a path names; they are read again only if they change.

    Raises RecipeError if there are none, or if one cannot be read.
    """
    digests = [hash_file(file) for file in find_referenced_files(path)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def read_text_lines(file: FileInfo) -> Iterator[str]:
    """Yield the lines of a text file, stripped and without blank ones; a .gz file is decompressed.

    Raises RecipeError if the file cannot be read or is not UTF-8.
    """
    return (text for _, text in _numbered_lines(file))


def read_list_entries(file: FileInfo) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines of a list except comments, which start with #.

    Raises RecipeError if the file cannot be read, is not UTF-8, or has no lines: a list without entries that
    is not damaged says so in a comment.
    """
    is_empty = True
    for number, text in _numbered_lines(file):
        is_empty = False
        if not text.startswith("#"):
            yield number, text
    if is_empty:
        raise RecipeError(
            "the list is empty",
            where=file.uri,
            hint="restore the file; if it should have no entries, write a comment such as: # none",
        )


@contextmanager
def as_local_file(file: FileInfo) -> Iterator[Path]:
    """Provide a local path with the content of a file; a remote file is copied until the context ends.

    Raises RecipeError if the file cannot be read.
    """
    if storage.is_local(file.uri):
        yield storage.local_path(file.uri)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.uri.rpartition("/")[2])
        with _open_file(file) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
        yield path


def _numbered_lines(file: FileInfo) -> Iterator[tuple[int, str]]:
    with _open_file(file, decompress=True) as lines:
        for number, line in enumerate(lines, 1):
            is_utf8, text = _decode(line, number)
            if not is_utf8 or "\0" in text:
                encoding = "utf-16" if b"\0" in line else "latin1"
                raise RecipeError(
                    f"{line[:60]!r} is not UTF-8 text",
                    where=f"{file.uri}:{number}",
                    hint=f"convert the file, as in: iconv -f {encoding} -t utf-8",
                )
            if text:
                yield number, text


def _decode(line: bytes, number: int) -> tuple[bool, str]:
    try:
        return True, line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        return False, ""


@lru_cache(maxsize=64)
def _find_remote_files(uri: str, _period: int) -> tuple[FileInfo, ...]:
    return find_referenced_files(uri)


@lru_cache(maxsize=2048)
def hash_file(file: FileInfo) -> str:
    """Return the SHA-256 of a file as hexadecimal digits; it is read again only if it changes.

    Raises RecipeError if it cannot be read.
    """
    digest = hashlib.sha256()
    with _open_file(file) as source:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _open_file(file: FileInfo, *, decompress: bool = False) -> Iterator[IO[bytes] | gzip.GzipFile]:
    try:
        with storage.open_input(file.uri) as source:
            stored = io.BufferedReader(source, _BLOCK_BYTES)
            if decompress and file.uri.lower().endswith(".gz"):
                with gzip.open(stored) as content:
                    yield content
            else:
                yield stored
    except StorageError as error:
        raise RecipeError(error.what, where=file.uri, hint=error.hint) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        hint = "the file is damaged: copy it again; or, if it is not gzip, remove .gz from its name"
        raise RecipeError(f"cannot be read as gzip ({error})", where=file.uri, hint=hint) from error
    except OSError as error:
        hint = "check that the file is a regular file and that you may read it"
        raise RecipeError(f"cannot be read ({error})", where=file.uri, hint=hint) from error
