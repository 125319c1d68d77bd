"""Undo the codings of an HTTP body as browsers do, as far as the body has them.

Archives store many bodies decoded, with the headers that declare the codings. So each declared coding is
undone only where the bytes show that it is there.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from etl.sources.layers.chunked_transfer import undo_chunks
from etl.sources.layers.members import TRUNCATED, Members, layer_of
from etl.sources.layers.unpackers import MAGIC, Coding

_NAMES: Final[Mapping[str, tuple[Coding, ...]]] = {
    "gzip": ("gzip",),
    "x-gzip": ("gzip",),
    "deflate": ("zlib", "deflate"),  # without the header of zlib too, as some servers send it
    "br": ("brotli",),
    "zstd": ("zstd",),
}

_MAGICS: Final = tuple(MAGIC.values())

SNIFFED_BYTES: Final = 1445
"""The length of a resource header: WHATWG MIME Sniffing, 5.2."""

_BINARY_DATA = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")  # WHATWG MIME Sniffing, 3


class Body(NamedTuple):
    """A decoded body, and the reasons why it ends early."""

    content: bytes
    damage: tuple[str, ...] = ()


def decode_body(body: bytes, codings: Sequence[str], max_bytes: int) -> Body:
    """Undo the codings of a body, given by their names in the order in which they were applied.

    A body that is longer than ``max_bytes`` after a coding was undone is returned as it is then. Names that
    are unknown, and codings that the body does not have, are ignored. What starts like a gzip member or zstd
    frame is decompressed even if no header says so.
    """
    damage: tuple[str, ...] = ()
    if not codings and not body.startswith(_MAGICS):  # most bodies in archives
        return Body(body)
    for name in (*reversed(codings), "gzip", "zstd"):
        if name == "chunked":
            chunks = undo_chunks(body)
            body, why = (body, None) if chunks is None else chunks
            damage += (f"chunked: {why}",) if why else ()
            continue
        for coding in _NAMES.get(name, ()):
            if (unpacked := _unpack(body, coding, max_bytes)) is not None:
                body, damage = unpacked.content, damage + unpacked.damage
                break
        if len(body) > max_bytes:
            break
    return Body(body, damage)


def has_binary_data(content: bytes) -> bool:
    """Return whether content begins with bytes that no text has."""
    return _BINARY_DATA.search(content, 0, SNIFFED_BYTES) is not None


def _unpack(body: bytes, coding: Coding, max_bytes: int) -> Body | None:
    """Return the decompressed body, at least ``max_bytes`` of a longer one; None if it is not compressed."""
    has_magic = coding in MAGIC
    if has_magic and not body.startswith(MAGIC[coding]):
        return None
    members = Members(pa.BufferReader(body), layer_of(coding), uri="")
    parts: list[bytes] = []
    size = 0
    while (has_magic or not members.complete_members) and (part := members.read()):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            break
    content, damage = b"".join(parts), members.damage
    if (
        members.complete_members and not members.is_in_member
    ):  # what follows is ignored, as in browsers
        is_certain, damage = has_magic or members.position == len(body), None
    elif content and (has_magic or coding == "zlib" or damage in (None, TRUNCATED)):
        is_certain = has_magic
    else:  # data that is not compressed soon has an error
        return None
    if not is_certain and not has_binary_data(body):
        return None  # a text that is decompressed without an error by chance
    return Body(content, (f"{coding}: {damage}",) if damage else ())
