"""Parse the headers of Parquet pages.

Layout: parquet.thrift, in the Thrift compact protocol, of which page headers use integers and structs.
"""

import re
from typing import Any

# Field numbers of PageHeader and DataPageHeader.
_TYPE, _SIZE, _COMPRESSED_SIZE, _DATA_PAGE = 1, 2, 3, 5
_NUM_VALUES, _ENCODING = 1, 2
_V1, _PLAIN = 0, 0

_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_COMMON = re.compile(
    rb"\x15\x00\x15(%b)\x15(%b)(?:\x15%b\x1c|\x2c)\x15(%b)\x15\x00\x15.\x15.(?:\x1c\x00)?\x00\x00"
    % (_VARINT, _VARINT, _VARINT, _VARINT),
    re.DOTALL,
)
"""The header of a data page v1 in encoding PLAIN without statistics: sizes and the number of values."""

Struct = dict[int, Any]


def parse_page_header(data: bytes | memoryview) -> tuple[int, int, int, int]:
    """Return the length of a page header, both sizes of the page (full, compressed), and its values.

    The values are -1 if it is not a data page v1 in encoding PLAIN. Raises IndexError if the header is
    truncated, OSError if it is not valid.
    """
    if (common := _COMMON.match(data)) is not None:
        full_size, compressed_size, values = common.groups()
        return common.end(), _decode(full_size), _decode(compressed_size), _decode(values)
    header, end = _struct(bytes(data), 0)
    if header[_TYPE] != _V1 or header[_DATA_PAGE][_ENCODING] != _PLAIN:
        return end, 0, 0, -1
    return end, header[_SIZE], header[_COMPRESSED_SIZE], header[_DATA_PAGE][_NUM_VALUES]


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


def _decode(varint: bytes) -> int:
    """Return the value of a whole signed varint."""
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 127
    return (value >> 1) ^ -(value & 1)


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
