"""Small JSON files with their name and a checksum, so that damage is found whenever one is read.

Files that nothing else mentions are written twice (``write_both``): the loss of one would go unnoticed.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from etl import storage
from etl.errors import TableError, error_line

_COPIES = "/_copies/"  # other readers of Delta tables ignore folders whose names begin with _


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


def copy_of(uri: str) -> str:
    """Return the URI of the copy of a file.

    >>> copy_of("s3://lake/web/releases/one.json")
    's3://lake/web/releases/_copies/one.json'
    """
    folder, _, name = uri.rpartition("/")
    return f"{folder}{_COPIES}{name}"


def write_both(uri: str, content: object) -> None:
    """Write a file with JSON data and its copy; raises WriteError as ``write_bytes`` does."""
    data = encode(uri, content)
    for each in (uri, copy_of(uri)):
        storage.write_bytes(each, data)


def remove_both(uri: str) -> None:
    """Remove a file and its copy; raise StorageError if one cannot be removed."""
    for each in (copy_of(uri), uri):
        storage.remove(each)


def names(folder: str) -> list[str]:
    """Return the names, without ``.json``, of the files in a folder and of copies whose file is lost."""
    patterns = (folder, copy_of(storage.join(folder, "*.json")))
    uris = (file.uri for pattern in patterns for file in storage.find_files(pattern))
    return sorted({uri.rpartition("/")[2].removesuffix(".json") for uri in uris})


def read_either(uri: str, *, hint: str) -> Any:
    """Return the JSON data of a file or else of its copy, or None if neither exists.

    Raises the errors of ``read`` if neither can be read.
    """
    errors = []
    for each in (uri, copy_of(uri)):
        try:
            content = read(each, hint=hint)
        except TableError as error:
            errors.append(error)
        else:
            if content is not None:
                return content
    if errors:
        raise errors[0]
    return None


def find_damage(uri: str, *, hint: str) -> Iterator[TableError]:
    """Yield the errors of a file and of its copy; if only one exists, the other is an error."""
    uris = (uri, copy_of(uri))
    exists = [storage.file_info(each) is not None for each in uris]
    for each, is_there in zip(uris, exists, strict=True):
        try:
            read(each, hint=hint)
        except TableError as error:
            yield error
        else:
            if any(exists) and not is_there:
                yield TableError("is missing", where=each, hint=hint)


def _name(uri: str) -> str:
    """Return the last two parts of a URI without the folder of copies: a lake may be moved."""
    return "/".join(uri.replace(_COPIES, "/").rsplit("/", 2)[-2:])


def _checksum(content: object) -> str:
    """Return the BLAKE2b digest (128 bits) of JSON data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
