"""Small JSON files with a checksum of their content, so that damage is found whenever one is read."""

import hashlib
import json
from typing import Any

from etl.errors import TableError, error_line
from etl.storage.files import read_bytes, write_bytes


def encode(content: object) -> bytes:
    """Return the bytes of a file with JSON data."""
    return json.dumps({"checksum": _checksum(content), "content": content}, indent=1).encode()


def write(uri: str, content: object) -> None:
    """Write a file with JSON data; raises WriteError as ``write_bytes`` does."""
    write_bytes(uri, encode(content))


def read(uri: str, *, hint: str) -> Any:
    """Return the JSON data of a file, or None if it does not exist.

    Raises TableError with the hint if the file is damaged, StorageError if it cannot be read.
    """
    data = read_bytes(uri)
    if data is None:
        return None
    try:
        file = json.loads(data)
        content, checksum = file["content"], file["checksum"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        what = "is empty" if not data.strip() else f"is damaged ({error_line(error)})"
        raise TableError(what, where=uri, hint=hint) from error
    if checksum != _checksum(content):
        raise TableError("is damaged (its checksum differs)", where=uri, hint=hint)
    return content


def _checksum(content: object) -> str:
    """Return the BLAKE2b digest (128 bits) of JSON data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
