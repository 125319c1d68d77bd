"""View Arrow strings as NumPy arrays of bytes, and decode and count their code points.

``offsets`` int64 (n + 1,), ``data`` uint8: document ``k`` is ``data[offsets[k] : offsets[k + 1]]``.
The offsets of a slice do not start at 0.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import NUM_CODE_POINTS
from etl.kernels.bytes.one_chunk import one_chunk
from etl.kernels.bytes.simd import CONTINUED, SIZE, count_ones, low_bits, make_byte_finder
from etl.kernels.jit import inner, kernel

_find_continued = make_byte_finder(CONTINUED)


class Texts(NamedTuple):
    """The buffers of an array of strings; text of 64 bytes or more is not copied."""

    offsets: NDArray[np.int64]  # (n + 1,), read-only
    data: NDArray[np.uint8]  # read-only; at least 64 bytes, as ``etl.kernels.bytes.simd`` needs
    valid: NDArray[np.bool_] | None  # (n,), False for null; None if there are no nulls


def texts(array: pa.Array | pa.ChunkedArray) -> Texts:
    """Return the buffers of an array of strings, which may be a slice and contain nulls.

    >>> texts(pa.array(["ab", None, "c"])[1:]).offsets
    array([2, 2, 3])
    """
    array = one_chunk(array)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = array.cast(pa.large_string())
    if array.buffers()[1] is None or len(array) == 0:
        no_offsets, no_data = np.zeros(len(array) + 1, np.int64), np.zeros(SIZE, np.uint8)
        return Texts(frozen(no_offsets), frozen(no_data), None)
    width = np.int32 if pa.types.is_string(array.type) else np.int64
    _, offset_buffer, data_buffer = array.buffers()
    all_offsets = np.frombuffer(offset_buffer, width)
    offsets = all_offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    if len(data) < SIZE:
        data = np.pad(data, (0, SIZE - len(data)))
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False) if array.null_count else None
    return Texts(frozen(offsets), frozen(data), valid)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: numba compiles a kernel again if a read-only argument is writable."""
    view = array.view()
    view.flags.writeable = False
    return view


@inner
def point_at(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return the code point at a byte, and its width in bytes (1 to 4).

    Bytes that are not valid UTF-8 are one character U+FFFF each. No byte at or after ``end`` is read.
    """
    lead = np.int64(data[at])
    if lead < 0x80:
        return lead, 1
    # The lead byte gives the width, and 5, 4 or 3 bits; each further byte 6 more. ``ä`` is C3 A4: 0x03
    # << 6 | 0x24 = 0xE4. A byte from 0x80 to 0xBF never leads.
    if lead < 0xE0:
        if lead >= 0xC0 and at + 2 <= end:
            return (lead & 0x1F) << 6 | np.int64(data[at + 1]) & 0x3F, 2
    elif lead < 0xF0:
        if at + 3 <= end:
            point = (lead & 0x0F) << 12 | (np.int64(data[at + 1]) & 0x3F) << 6
            return point | np.int64(data[at + 2]) & 0x3F, 3
    elif at + 4 <= end:
        point = (lead & 0x07) << 18 | (np.int64(data[at + 1]) & 0x3F) << 12
        point |= (np.int64(data[at + 2]) & 0x3F) << 6 | np.int64(data[at + 3]) & 0x3F
        if point < NUM_CODE_POINTS:
            return point, 4
    return 0xFFFF, 1


@inner
def class_at(
    data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8]
) -> tuple[int, int]:
    """Return the class of the code point at a byte, and its width in bytes (1 to 4)."""
    point, width = point_at(data, at, end)
    return np.int64(classes[point]), width


def count_chars(texts: Texts) -> NDArray[np.int64]:
    """Count the code points of each document: int64 (n,). Bytes of nulls are counted too.

    >>> count_chars(texts(pa.array(["né", ""])))
    array([2, 0])
    """
    out = np.zeros(len(texts.offsets) - 1, np.int64)
    _count_chars(texts.offsets, texts.data, out)
    return out


@kernel
def _count_chars(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.int64]
) -> None:
    for k in range(len(out)):
        out[k] = num_chars(data, offsets[k], offsets[k + 1])


@inner
def num_chars(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Count the code points between two bytes."""
    chars = end - at
    while at < end:
        chars -= count_ones(_find_continued(data, at)[0] & low_bits(end - at))
        at += SIZE
    return chars
