"""Write Parquet files byte by byte, with claims that no writer makes."""

import struct
from collections.abc import Sequence
from typing import Any

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12

Fields = dict[int, tuple[int, Any]]
"""Field id -> its type and value; of a list, the value is the type of its items and the items."""


def varint(value: int) -> bytes:
    """An unsigned integer."""
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def encode(kind: int, value: Any) -> bytes:
    """A value of a type; bytes of a structure or list are taken as they are."""
    match kind:
        case 5 | 6:
            return varint((value << 1) ^ (value >> 63))
        case 8:
            return varint(len(value)) + value
        case 9:
            item, values = value
            return (
                bytes([0xF0 | item])
                + varint(len(values))
                + b"".join(encode(item, v) for v in values)
            )
    return value if isinstance(value, bytes) else struct_bytes(value)


def struct_bytes(fields: Fields) -> bytes:
    """A structure."""
    parts, last = [], 0
    for number, (kind, value) in sorted(fields.items()):
        parts.append(bytes([(number - last) << 4 | kind]) + encode(kind, value))
        last = number
    return b"".join(parts) + b"\0"


def element(name: bytes, *, children: int = 0, kind: int = 6, repetition: int = 0) -> Fields:
    """An element of a schema; by default a required string."""
    if children:
        return {3: (I32, repetition), 4: (BINARY, name), 5: (I32, children)}
    fields: Fields = {1: (I32, kind), 3: (I32, repetition), 4: (BINARY, name)}
    return {**fields, 6: (I32, 0)} if kind == 6 else fields


def data_page(
    content: bytes,
    *,
    values: int,
    encoding: int = 0,
    claimed: int | None = None,
    stored: int | None = None,
) -> bytes:
    """A data page with its header, uncompressed or claiming to be larger."""
    header = {1: (I32, values), 2: (I32, encoding), 3: (I32, 3), 4: (I32, 3)}
    return page(0, 5, header, content, claimed, stored)


def dictionary_page(content: bytes, values: int, *, claimed: int | None = None) -> bytes:
    """A dictionary page with its header."""
    return page(2, 7, {1: (I32, values), 2: (I32, 0)}, content, claimed, None)


def page(
    kind: int, field: int, header: Fields, content: bytes, claimed: int | None, stored: int | None
) -> bytes:
    """A page with its header."""
    size = len(content)
    fields: Fields = {
        1: (I32, kind),
        2: (I32, size if claimed is None else claimed),
        3: (I32, size if stored is None else stored),
        field: (STRUCT, header),
    }
    return struct_bytes(fields) + content


def file_of(  # noqa: PLR0913 - the claims of a footer
    schema: Sequence[Fields | bytes],
    pages: bytes = b"",
    *,
    rows: int = 0,
    codec: int = 0,
    path: tuple[bytes, ...] = (b"text",),
    dictionary_bytes: int = 0,
    length: int | None = None,
    groups: bytes | None = None,
    elements: int | None = None,
) -> bytes:
    """A file of one column chunk, or of serialized row groups."""
    metadata: Fields = {
        1: (I32, 6), 2: (LIST, (I32, [0])), 3: (LIST, (BINARY, list(path))), 4: (I32, codec), 5: (I64, rows),
        6: (I64, len(pages)), 7: (I64, len(pages) if length is None else length),
        9: (I64, 4 + dictionary_bytes),
    }  # fmt: skip
    if dictionary_bytes:
        metadata[11] = (I64, 4)
    chunk: Fields = {2: (I64, 4), 3: (STRUCT, metadata)}
    group: Fields = {1: (LIST, (STRUCT, [chunk])), 2: (I64, len(pages)), 3: (I64, rows)}
    footer = (
        b"\x15\x02\x19\xfc" + varint(len(schema) if elements is None else elements)
        + b"".join(encode(STRUCT, each) for each in schema)
        + b"\x16" + encode(I64, rows) + b"\x19" + (groups or encode(LIST, (STRUCT, [group])))
        + b"\0"
    )  # fmt: skip
    return b"PAR1" + pages + footer + struct.pack("<I", len(footer)) + b"PAR1"
