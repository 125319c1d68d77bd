"""Parse the headers of Parquet pages.

Layout: parquet.thrift, in the Thrift compact protocol.
"""

import re

from etl.parquet import thrift

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
"""The header of a data page v1 in encoding PLAIN without statistics: sizes and the number of values.

The expression is five times as fast as a parser of all headers.
"""


def parse_page_header(data: bytes | memoryview) -> tuple[int, int, int, int]:
    """Return the length of a page header, both sizes of the page (full, compressed), and its values.

    The values are -1 if it is not a data page v1 in encoding PLAIN. Raises IndexError if the header is
    truncated, OSError if it is not valid.
    """
    if (common := _COMMON.match(data)) is not None:
        full_size, compressed_size, values = map(thrift.decode_integer, common.groups())
        return common.end(), full_size, compressed_size, values
    reader = thrift.Reader(bytes(data))
    try:
        header = reader.numbers((_DATA_PAGE,))
        page = header[_DATA_PAGE] if header[_TYPE] == _V1 else {}
        if page.get(_ENCODING) != _PLAIN:
            return reader.position, 0, 0, -1
        return reader.position, header[_SIZE], header[_COMPRESSED_SIZE], page[_NUM_VALUES]
    except (KeyError, ValueError, AttributeError) as error:  # the last: a field has another type
        raise OSError(f"invalid page header ({error})") from error
