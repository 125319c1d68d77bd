"""Write the metadata of a page as a JSON object: its title, language, date, rights and so on."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.entities import decode
from etl.kernels.html.letters import AND, BACKSLASH, COLON, COMMA, END_OBJECT, OBJECT, QUOTE, SPACE
from etl.kernels.html.page import FIELDS, Page
from etl.kernels.jit import inner, rare

_LONGEST: Final = 1000  # bytes of a value that are read: chosen here
_NAMES: Final = np.frombuffer("".join(FIELDS).encode(), np.uint8)
_NAME_ENDS: Final = np.cumsum([len(name) for name in FIELDS])

_OVERHEAD: Final = sum(len(name) + 8 for name in FIELDS)  # quotes, a colon, a comma
_MAX_BYTES: Final = 2 * _LONGEST * len(FIELDS)


def room(sizes: NDArray[np.int64]) -> int:
    """Return how many bytes the metadata of pages of some sizes need at most."""
    # Each byte of a value may be escaped.
    return int((np.minimum(2 * sizes, _MAX_BYTES) + _OVERHEAD).sum()) + 1


@inner
def write_metadata(data: NDArray[np.uint8], page: Page, out: NDArray[np.uint8], end: int) -> int:
    """Write the fields that a page has, and return the end; write nothing if it has none."""
    first = end
    for field in range(len(page.fields)):
        start, stop = page.fields[field, 0], page.fields[field, 1]
        if stop == 0:
            continue
        out[end] = OBJECT if end == first else COMMA
        end = _write_name(field, out, end + 1)
        end = _write_value(data, start, _cut(data, start, stop), out, end)
    if end > first:
        out[end] = END_OBJECT
        end += 1
    return end


@rare
def _write_name(field: int, out: NDArray[np.uint8], end: int) -> int:
    out[end] = QUOTE
    for k in range(_NAME_ENDS[field - 1] if field else 0, _NAME_ENDS[field]):
        end += 1
        out[end] = _NAMES[k]
    out[end + 1], out[end + 2] = QUOTE, COLON
    return end + 3


@inner
def _cut(data: NDArray[np.uint8], start: int, stop: int) -> int:
    """Return where a value that may be too long is cut: between two characters."""
    if stop - start > _LONGEST:
        stop = start + _LONGEST
        while stop > start and data[stop] & 0xC0 == 0x80:
            stop -= 1
    return stop


@rare
def _write_value(
    data: NDArray[np.uint8], at: int, stop: int, out: NDArray[np.uint8], end: int
) -> int:
    """Write a value as a JSON string, with each run of white space and control characters as one space."""
    out[end] = QUOTE
    first = end = end + 1
    after_space = True
    while at < stop:
        before = end
        if data[at] == AND:
            at, end = decode(data, at, stop, out, end)
        else:
            out[end] = data[at]
            at, end = at + 1, end + 1
        byte = out[before]
        if byte <= SPACE or byte == 0x7F:
            out[before] = SPACE
            end = before + (not after_space)
            after_space = True
        else:
            after_space = False
            if byte == QUOTE or byte == BACKSLASH:
                out[before], out[before + 1] = BACKSLASH, byte
                end = before + 2
    if after_space and end > first:
        end -= 1
    out[end] = QUOTE
    return end + 1
