"""Read and hash a tokenizer.json by its path or URL."""

import hashlib
from functools import lru_cache

from etl import storage
from etl.errors import StorageError, TokenizerError


def read_tokenizer(path: str) -> bytes:
    """Return the bytes of a tokenizer file, which are read once per process unless the file changes.

    Raises TokenizerError if the file is missing or cannot be read.
    """
    try:
        uri = storage.normalize(path)
        files = [file for file in storage.find_files(path) if file.uri == uri]
        if files:
            return _read_file(files[0])
    except StorageError as error:
        raise TokenizerError(f"cannot read the tokenizer: {error.what}", where=path) from error
    raise TokenizerError(
        "the tokenizer file does not exist",
        where=path,
        hint="give the path or URL of a tokenizer.json, not of its folder, and not a model name; "
        "`hf download ORG/MODEL tokenizer.json --local-dir .` downloads it",
    )


def hash_tokenizer(path: str) -> str:
    """Return the sha256 of a tokenizer file; raise TokenizerError if it cannot be read."""
    return sha256_of(read_tokenizer(path))


@lru_cache(maxsize=2)
def _read_file(file: storage.FileInfo) -> bytes:
    with storage.open_input(file.uri) as source:
        return bytes(source.read())


@lru_cache(maxsize=2)
def sha256_of(data: bytes) -> str:
    """Return the sha256 of the bytes of a tokenizer file as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
