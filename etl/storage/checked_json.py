"""Small JSON files with their name and a checksum, so that damage is found whenever one is read."""

import hashlib
import json
from typing import Any

from etl import storage
from etl.errors import TableError, error_line


def encode(uri: str, content: object) -> bytes:
    """Return the bytes of the file at a URI with JSON data."""
    file = {"file": _name(uri), "content": content}
    return json.dumps({**file, "checksum": _checksum(file)}, indent=1).encode()


def write(uri: str, content: object) -> None:
    """Write a file with JSON data; raises WriteError as ``write_bytes`` does."""
    storage.write_bytes(uri, encode(uri, content))


def read(uri: str, *, hint: str) -> Any:
    """Return the JSON data of a file, or None if it does not exist.

    Raises TableError with the hint if the file is damaged, StorageError if it cannot be read.
    """
    data = storage.read_bytes(uri)
    if data is None:
        return None
    try:
        file = json.loads(data)
        content, name, checksum = file["content"], file["file"], file.pop("checksum")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        what = "is empty" if not data.strip() else f"is damaged ({error_line(error)})"
        raise TableError(what, where=uri, hint=hint) from error
    if checksum != _checksum(file):
        raise TableError("is damaged (its checksum differs)", where=uri, hint=hint)
    if name != _name(uri):
        raise TableError(f"has the content of {name}", where=uri, hint=hint)
    return content


def _name(uri: str) -> str:
    """Return the last two parts of a URI: a lake may be moved."""
    return "/".join(uri.rsplit("/", 2)[-2:])


def _checksum(content: object) -> str:
    """Return the BLAKE2b digest (128 bits) of JSON data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
