"""Read the pages of a token column directly: three times as fast as a Parquet reader.

A list<int32> column of PLAIN pages stores its tokens as they are in memory, after two short runs of levels
that mark where lists begin. A page is decompressed and viewed, but not decoded: 880 Mtok per CPU second,
against 300 with pyarrow (lz4). Pages before the first requested token are not even decompressed. Other
layouts (dictionaries, other encodings, data pages v2) are left to pyarrow.

Layout: https://parquet.apache.org/docs/file-format/data-pages/, parquet.thrift and the Thrift compact
protocol, of which page headers use integers and structs.
"""

import struct
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

_CODECS: dict[str, Any] = {
    "UNCOMPRESSED": None,
    "LZ4": "lz4_raw",
    "ZSTD": "zstd",
    "SNAPPY": "snappy",
}
_HEADER_BYTES = (256, 1 << 16)  # enough without statistics, and enough with them

# Field numbers of parquet.thrift's PageHeader and DataPageHeader.
_TYPE, _SIZE, _COMPRESSED_SIZE, _DATA_PAGE = 1, 2, 3, 5
_NUM_VALUES, _ENCODING = 1, 2
_V1, _PLAIN = 0, 0
_LENGTH = struct.Struct("<I")

Struct = dict[int, Any]


class PageSource(Protocol):
    """The source of pages: a local file, or the fetched part of a remote one."""

    def seek(self, position: int, /) -> int:
        """Move to an offset in the file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""

    def read_buffer(self, size: int, /) -> pa.Buffer:
        """Return the next bytes without a copy."""


def is_plain(source: PageSource, chunk: Any) -> bool:
    """Return whether ``read_pages`` supports a pq.ColumnChunkMetaData: int32 in PLAIN pages only."""
    return (
        chunk.physical_type == "INT32"
        and chunk.compression in _CODECS
        and not chunk.has_dictionary_page
        and set(chunk.encodings) <= {"PLAIN", "RLE", "BIT_PACKED"}
        and _is_known(_read_header(source, chunk.data_page_offset, b"")[0])
    )


def read_pages(
    source: PageSource, chunk: Any, *, skip: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the values of a plain chunk page by page, (n,) int32, each with the index of the first one.

    Pages that end before value ``skip`` are omitted. Use ``skip`` only if no list is empty, because a page
    counts an empty list as a value. Raises OSError if a page is damaged.
    """
    name = _CODECS[chunk.compression]
    codec = None if name is None else pa.Codec(name)
    offset, stop = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    max_size = chunk.total_uncompressed_size
    first, ahead = 0, b""
    while offset < stop:
        header, length = _read_header(source, offset, ahead)
        offset += length
        compressed_size, size = header[_COMPRESSED_SIZE], header[_SIZE]
        if not _is_known(header) or compressed_size < 0 or not 0 <= size <= max_size:
            raise OSError(f"unknown page type or invalid page size before byte {offset}")
        count, ahead = header[_DATA_PAGE][_NUM_VALUES], b""
        if first + count > skip:
            source.seek(offset)
            data = source.read(compressed_size + _HEADER_BYTES[0])  # with the next header
            ahead = data[compressed_size:]
            page: Any = pa.py_buffer(data).slice(0, compressed_size)
            if codec is not None:
                # As bytes, because Arrow's allocators handle short-lived pages badly: mimalloc keeps 23 MB
                # more; with glibc it is 11 MB, because freed aligned memory does not fit the next page.
                page = codec.decompress(page, size, asbytes=True)
            values = _values(page)
            count = len(values)
            del data, page  # a suspended generator keeps its locals alive
            yield first, values
            del values
        first += count
        offset += compressed_size


def _values(page: Any) -> np.ndarray:
    """Return the values after the repetition and definition levels, each prefixed by its length."""
    start = 0
    for _ in range(2):
        if start + 4 > len(page):
            raise OSError("a page ends within its levels")
        (length,) = _LENGTH.unpack_from(page, start)
        start += 4 + length
    return np.frombuffer(page, "<i4", offset=start)


def _is_known(header: Struct) -> bool:
    return bool(header[_TYPE] == _V1 and header[_DATA_PAGE][_ENCODING] == _PLAIN)


def _read_header(source: PageSource, offset: int, ahead: bytes) -> tuple[Struct, int]:
    """Return the page header at an offset, and its length; ``ahead`` are bytes already read there."""
    for size in (0, *_HEADER_BYTES):
        if size:
            source.seek(offset)
            ahead = source.read(size)
        try:
            return _struct(ahead, 0)
        except IndexError:  # truncated
            continue
    raise OSError(f"no page header at byte {offset}")


def _struct(data: bytes, offset: int) -> tuple[Struct, int]:
    """Return the fields of a struct in Thrift's compact protocol by number, and the end of the struct."""
    fields: Struct = {}
    number = 0
    while head := data[offset]:
        kind = head & 15
        offset += 1
        if head > 15:
            number += head >> 4
        else:
            number, offset = _signed(data, offset)
        if kind in (4, 5, 6):  # i16, i32, i64
            fields[number], offset = _signed(data, offset)
        elif kind in (1, 2):  # true and false
            fields[number] = kind == 1
        elif kind == 8:  # bytes: minimum and maximum of a page, not needed here
            length, offset = _unsigned(data, offset)
            offset += length
        elif kind == 12:
            fields[number], offset = _struct(data, offset)
        else:
            raise OSError(f"invalid page header: field {number} has the unknown type {kind}")
    return fields, offset + 1


def _unsigned(data: bytes, offset: int) -> tuple[int, int]:
    value, shift = data[offset] & 127, 7
    while data[offset] > 127:
        offset += 1
        value |= (data[offset] & 127) << shift
        shift += 7
    return value, offset + 1


def _signed(data: bytes, offset: int) -> tuple[int, int]:
    value, offset = _unsigned(data, offset)
    return (value >> 1) ^ -(value & 1), offset
