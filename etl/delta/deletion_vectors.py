"""Deletion vectors: which rows of a data file are struck, although they are still in it.

The log describes the vector of a file by a descriptor, which is part of the file's identity: with another
vector, the file has other rows. In this package, a descriptor is one canonical JSON string
(``Table.data_files``).

All vectors of a commit are written to one file, ``_dv/deletion_vector_<UUID>.bin``: a version byte, and for
each vector its size, the positions of the struck rows (``etl.delta.roaring``) and a CRC-32. In the folder
``_dv``, which is the optional prefix in descriptors, vacuums of other programs leave it alone. The UUID is a
digest of the content, which ends with random bytes: a file that was swapped with another is found, and no
two commits write the same file. Vectors of other programs are read from everywhere that the protocol allows.
"""

import hashlib
import json
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

import numpy as np

from etl import storage
from etl.delta.actions import VECTOR
from etl.delta.roaring import decode, encode
from etl.errors import StorageError, TableError
from etl.parquet.data_file_reader import Positions

FOLDER: Final = "_dv"
"""The folder of the files with vectors in a table; other readers of its data files ignore it."""

_VERSION = b"\x01"
_SALT_BYTES = 16
_UUID_CHARS = 20  # in base85
_MAX_FILE_BYTES = (1 << 31) - 1  # offsets in it have 32 bits and a sign
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = bytes.maketrans(_DIGITS, bytes(range(85)))
_POWERS = 85 ** np.arange(4, -1, -1)
_HINT = "repair the table, or restore the file from a backup"


def to_json(descriptor: Mapping[str, Any]) -> str:
    """Return a descriptor as canonical JSON, as ``actions.vector_strings`` does."""
    fields = {field.name: descriptor.get(field.name) for field in VECTOR}
    known = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False)


def path_of(vector: str) -> str | None:
    """Return the path inside the table of the file with a vector; None if it names no such file.

    >>> path_of('{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^"}')
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    descriptor = json.loads(vector)
    if descriptor["storageType"] != "u":
        return None
    name = descriptor["pathOrInlineDv"]
    prefix, digits = name[:-_UUID_CHARS], name[-_UUID_CHARS:]
    try:
        uuid = UUID(bytes=_from_base85(digits))
    except ValueError:
        return None
    return f"{prefix}/deletion_vector_{uuid}.bin" if prefix else f"deletion_vector_{uuid}.bin"


def num_struck(vector: str | None) -> int:
    """Return how many rows a vector strikes, by its descriptor."""
    return 0 if vector is None else int(json.loads(vector)["cardinality"])


def read_struck(url: str, file: Mapping[str, Any]) -> Positions:
    """Return the positions of the struck rows of a data file, ascending.

    ``url`` is the table's, and ``file`` an entry of its list of data files with at least ``path`` and
    ``vector``. Raises TableError if the vector is missing or damaged, StorageError if it cannot be read.
    """
    if file["vector"] is None:
        return np.empty(0, np.int64)
    uri = storage.join(url, file["path"])
    try:
        vector = json.loads(file["vector"])
        positions = decode(_read_vector(url, vector), int(vector["cardinality"]))
    except (ValueError, LookupError, TypeError) as error:
        what = f"the deletion vector of a data file is damaged: {error}"
        raise TableError(what, where=uri, hint=_HINT) from error
    rows = file.get("physical_rows")
    if rows is not None and len(positions) and positions[-1] >= rows:
        what = f"the deletion vector strikes row {positions[-1]} of a data file with {rows} rows"
        raise TableError(what, where=uri, hint=_HINT)
    return positions


def _read_vector(url: str, vector: Mapping[str, Any]) -> bytes:
    """Return a vector without its frame; raise ValueError if it is missing or its checksum is wrong."""
    kind, name, size = vector["storageType"], vector["pathOrInlineDv"], vector["sizeInBytes"]
    if kind == "i":
        return _from_base85(name)[:size]
    if kind not in ("u", "p"):
        raise ValueError(f"its storage type is {kind!r}")
    path = path_of(to_json(vector))
    if kind == "u" and path is None:
        raise ValueError(f"{name!r} is not the name of a file in base85")
    uri = storage.normalize(unquote(name)) if path is None else storage.join(url, path)
    start = vector.get("offset") or 0
    if min(start, size) < 0:
        raise ValueError(f"it has {size} bytes at byte {start}")
    try:
        framed = storage.read_bytes(uri, start, start + size + 8)
    except StorageError as error:
        stored = storage.file_size(uri)
        if stored is not None and stored < start + size + 8:
            raise ValueError(f"{uri} is cut after {stored} bytes") from error
        raise
    if framed is None:
        raise ValueError(f"{uri} is missing")
    data = framed[4:-4]
    if framed[:4] != struct.pack(">I", size) or framed[-4:] != struct.pack(">I", zlib.crc32(data)):
        raise ValueError(f"the checksum at byte {start} of {uri} is wrong")
    return data


def write_vectors(url: str, positions: Iterable[Positions]) -> list[str | None]:
    """Write vectors of ascending positions to one file of a table, and return their descriptors.

    A vector without positions has none. Raises WriteError if the file cannot be written, TableError if it
    would have more than 2 GB.
    """
    parts, end = [_VERSION], len(_VERSION)
    frames: list[tuple[int, int, int] | None] = []  # offset, size, cardinality
    for struck in positions:
        if not len(struck):
            frames.append(None)
            continue
        data = encode(struck)
        frames.append((end, len(data), len(struck)))
        parts += [struct.pack(">I", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        end += len(data) + 8
        if end + _SALT_BYTES > _MAX_FILE_BYTES:
            raise TableError(
                "the deletion vectors of a commit have more than 2 GB",
                where=url,
                hint="strike the rows of fewer data files in one commit",
            )
    if len(parts) == 1:
        return [None] * len(frames)
    content = b"".join([*parts, secrets.token_bytes(_SALT_BYTES)])
    uuid = _uuid_of(content)
    storage.write_bytes(storage.join(url, f"{FOLDER}/deletion_vector_{uuid}.bin"), content)
    return [None if frame is None else _describe(uuid, *frame) for frame in frames]


def _describe(uuid: UUID, offset: int, size: int, cardinality: int) -> str:
    return to_json(
        {
            "storageType": "u",
            "pathOrInlineDv": FOLDER + _to_base85(uuid.bytes),
            "offset": offset,
            "sizeInBytes": size,
            "cardinality": cardinality,
        }
    )


def find_problem(url: str, path: str) -> str | None:
    """Return what is wrong with a file of vectors as a whole; None if nothing is, or if it is not ours.

    Raises StorageError if it cannot be read.
    """
    if not is_vector_file(path):
        return None
    content = storage.read_bytes(storage.join(url, path))
    if content is None:
        return "is missing"
    if not path.endswith(f"_{_uuid_of(content)}.bin"):
        return "does not have the content that it was written with"
    return None


def is_vector_file(path: str) -> bool:
    """Return whether a path inside a table has the form of a file that ``write_vectors`` writes.

    >>> is_vector_file("_dv/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")
    True
    """
    folder, _, name = path.rpartition("/")
    return folder == FOLDER and name.startswith("deletion_vector_") and name.endswith(".bin")


def _uuid_of(content: bytes) -> UUID:
    return UUID(bytes=hashlib.blake2b(content, digest_size=16).digest())


def _to_base85(data: bytes) -> str:
    """Return bytes, of which there are a multiple of four, in the base85 of ZeroMQ (Z85)."""
    words = np.frombuffer(data, ">u4").astype(np.int64)
    digits = words[:, np.newaxis] // _POWERS % 85
    return bytes(_DIGITS[digit] for digit in digits.ravel().tolist()).decode()


def _from_base85(text: str) -> bytes:
    """Return the bytes of a text in base85; raise ValueError if it is not one."""
    if set(text.encode()).difference(_DIGITS):
        raise ValueError("it is not base85")
    values = np.frombuffer(text.encode().translate(_VALUES), np.uint8)
    return (values.reshape(-1, 5) @ _POWERS).astype(">u4").tobytes()
