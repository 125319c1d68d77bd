"""Decompress one member of a stream a step at a time: gzip, zlib, deflate, zstd or brotli.

A step expands to a limited size, so a small input cannot fill the memory.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

import brotli
import zstandard
from isal import isal_zlib

Coding = Literal["gzip", "zlib", "deflate", "zstd", "brotli"]
"""``deflate`` is a stream without the header of zlib."""

MAGIC: Final[Mapping[Coding, bytes]] = {
    "gzip": b"\x1f\x8b\x08",
    "zstd": b"\x28\xb5\x2f\xfd",
}
"""The first bytes of a member; the other codings have none."""

_SMALL_STEP_BYTES: Final = 1 << 10
_LARGE_STEP_BYTES: Final = 16 << 10
STEP_BYTES: Final[Mapping[Coding, int]] = {
    "gzip": _LARGE_STEP_BYTES,
    "zlib": _LARGE_STEP_BYTES,
    "deflate": _LARGE_STEP_BYTES,
    "zstd": _SMALL_STEP_BYTES,
    "brotli": _SMALL_STEP_BYTES,
}
"""Compressed bytes per step, which expand to at most 32 MB."""

_MAX_EXPANDED_BYTES: Final = 32 << 20
_BROTLI_BYTES: Final = 1 << 20  # of output at a time

# The type stubs of isal declare its error as an instance.
UNPACK_ERRORS: Final[Any] = (isal_zlib.error, zstandard.ZstdError, brotli.error)
"""What an unpacker raises at damage."""


class Unpacker(Protocol):
    """The state of one member."""

    @property
    def eof(self) -> bool:
        """Whether the member has been read to its end."""

    @property
    def unused_data(self) -> bytes:
        """The end of the last step, if it is after the end of the member."""

    def decompress(self, data: bytes | memoryview, /) -> bytes:
        """Return the content of the next step; raise one of ``UNPACK_ERRORS`` at damage."""


class _BrotliUnpacker:
    """As brotli has no ``unused_data``, bytes after the end of the stream count as damage."""

    unused_data = b""

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decompress(self, data: bytes | memoryview, /) -> bytes:
        process = self._decompressor.process
        parts = [process(bytes(data), output_buffer_limit=_BROTLI_BYTES)]
        size = len(parts[0])
        while not self._decompressor.can_accept_more_data():
            if size > _MAX_EXPANDED_BYTES:
                raise brotli.error("a step expands to too many bytes")
            parts.append(process(b"", output_buffer_limit=_BROTLI_BYTES))
            size += len(parts[-1])
        return b"".join(parts)


UNPACKERS: Final[Mapping[Coding, Callable[[], Any]]] = {
    "gzip": lambda: isal_zlib.decompressobj(wbits=31),
    "zlib": lambda: isal_zlib.decompressobj(wbits=15),
    "deflate": lambda: isal_zlib.decompressobj(wbits=-15),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    "brotli": _BrotliUnpacker,
}
"""A function for each coding, which returns the unpacker of a member."""


def may_start_member(head: bytes, coding: Coding) -> bool:
    r"""Return whether a member, or a skippable frame of zstd, may start with some bytes.

    >>> may_start_member(b"\x1f\x8b", "gzip"), may_start_member(b"PK", "gzip")
    (True, False)
    """
    magic = MAGIC.get(coding, b"")
    is_skippable = coding == "zstd" and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50
    return head[: len(magic)] == magic[: len(head)] or is_skippable
