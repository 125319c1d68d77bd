"""Parse the headers of Parquet pages.

Layout: parquet.thrift, in the Thrift compact protocol.
"""

import re
from typing import NamedTuple

from etl.parquet import thrift

# Field numbers of PageHeader and DataPageHeader.
_TYPE, _SIZE, _COMPRESSED_SIZE, _CRC, _DATA_PAGE = 1, 2, 3, 4, 5
_NUM_VALUES, _ENCODING = 1, 2
_V1, _PLAIN = 0, 0
_UINT32 = (1 << 32) - 1

_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_COMMON = re.compile(
    rb"\x15\x00\x15(%b)\x15(%b)(?:\x15(%b)\x1c|\x2c)\x15(%b)\x15\x00\x15.\x15.(?:\x1c\x00)?\x00\x00"
    % (_VARINT, _VARINT, _VARINT, _VARINT),
    re.DOTALL,
)
"""The header of a data page v1 in encoding PLAIN without statistics: sizes, checksum, number of values.

The expression is five times as fast as a parser of all headers.
"""


class PageHeader(NamedTuple):
    """The header of a page."""

    length: int  # of the header
    size: int  # of the page
    compressed_size: int
    num_values: int  # -1 if it is not a data page v1 in encoding PLAIN
    crc: int | None  # of the compressed page, if the writer added it


def parse_page_header(data: bytes | memoryview) -> PageHeader:
    """Return the header of a page; raise IndexError if it is truncated, OSError if it is not valid."""
    if (common := _COMMON.match(data)) is not None:
        size, compressed_size, crc, values = common.groups(b"")
        return PageHeader(
            common.end(),
            thrift.decode_integer(size),
            thrift.decode_integer(compressed_size),
            thrift.decode_integer(values),
            thrift.decode_integer(crc) & _UINT32 if crc else None,
        )
    reader = thrift.ThriftReader(bytes(data))
    try:
        header = reader.numbers((_DATA_PAGE,))
        page = header[_DATA_PAGE] if header[_TYPE] == _V1 else {}
        if page.get(_ENCODING) != _PLAIN:
            return PageHeader(reader.position, 0, 0, -1, None)
        return PageHeader(
            reader.position,
            header[_SIZE],
            header[_COMPRESSED_SIZE],
            page[_NUM_VALUES],
            header[_CRC] & _UINT32 if _CRC in header else None,
        )
    except (KeyError, ValueError, AttributeError) as error:  # the last: a field has another type
        raise OSError(f"invalid page header ({error})") from error
