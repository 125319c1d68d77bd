"""Encode and decode sets of row positions as deletion vectors do: a ``RoaringBitmapArray``.

The portable format: a magic number, then one Roaring bitmap of 32-bit integers for each value of the upper
32 bits. A bitmap has a container for each value of the next 16 bits, which is an array of the lower 16 bits
(up to 4,096 values), a bit set of 8 kB, or, only when reading, a list of ranges. Arrays of adjacent
containers are adjacent, too, so that they are copied together. Time and memory depend on the number of
positions, not on the number of rows in the data file.

See https://github.com/RoaringBitmap/RoaringFormatSpec and the Delta protocol, "Deletion Vector Format".
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from etl.parquet.data_file_reader import Positions

_MAGIC = 1681511377
_COOKIE = 12346  # no container is a list of ranges
_COOKIE_OF_RANGES = 12347
_MAX_ARRAY = 4096  # values in a container that is an array
_BITS_BYTES = 8192
_MIN_OFFSETS = 4  # from so many containers on, bitmaps with ranges have offsets

_Shorts = npt.NDArray[np.uint16]


def encode(positions: Positions) -> bytes:
    """Return ascending, distinct positions as a ``RoaringBitmapArray``.

    >>> decode(encode(np.array([3, 4, 1 << 40])), 3).tolist()
    [3, 4, 1099511627776]
    """
    highs, starts = _groups(positions >> 32)
    parts = [struct.pack("<iq", _MAGIC, len(highs))]
    stops = np.append(starts[1:], len(positions))[: len(starts)]
    for high, start, stop in zip(highs.tolist(), starts, stops, strict=True):
        parts += [struct.pack("<I", high), *_encode_bitmap(positions[start:stop])]
    return b"".join(parts)


def _encode_bitmap(positions: Positions) -> Iterator[bytes]:
    """Yield the parts of the bitmap of the lower 32 bits of positions."""
    keys, starts = _groups((positions >> 16) & 0xFFFF)
    lows = (positions & 0xFFFF).astype("<u2")
    stops = np.append(starts[1:], len(positions))
    counts = stops - starts
    sizes = np.where(counts <= _MAX_ARRAY, 2 * counts, _BITS_BYTES)
    yield struct.pack("<II", _COOKIE, len(keys))
    yield np.column_stack([keys, counts - 1]).astype("<u2").tobytes()
    yield (8 + 8 * len(keys) + np.cumsum(sizes) - sizes).astype("<u4").tobytes()
    done = 0
    for number in np.flatnonzero(counts > _MAX_ARRAY).tolist():
        start, stop = starts[number], stops[number]
        yield lows[done:start].tobytes()
        bits = np.zeros(1 << 16, np.uint8)
        bits[lows[start:stop]] = 1
        yield np.packbits(bits, bitorder="little").tobytes()
        done = stop
    yield lows[done:].tobytes()


def _groups(keys: Positions) -> tuple[Positions, Positions]:
    """Return the distinct values of ascending keys, and where each starts."""
    is_first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first], np.flatnonzero(is_first)


def decode(data: bytes, count: int) -> Positions:
    """Return the positions in a ``RoaringBitmapArray``, of which ``count`` are expected.

    Raises ValueError if it is damaged or has another number of positions.
    """
    try:
        magic, num_bitmaps = struct.unpack_from("<iq", data)
        if magic != _MAGIC:
            raise ValueError(f"its format is {magic}, not {_MAGIC}")
        found, start, remaining = [np.empty(0, np.int64)], 12, count
        for _ in range(num_bitmaps):
            (high,) = struct.unpack_from("<i", data, start)
            if high < 0:
                raise ValueError("it has negative positions")
            bitmap = _Bitmap(data, start + 4, remaining)
            found.append(bitmap.positions() | (high << 32))
            start, remaining = bitmap.stop, remaining - bitmap.count
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut") from error
    positions = np.concatenate(found)
    if len(positions) != count:
        raise ValueError(f"it has {len(positions)} positions, not {count}")
    if np.any(positions[1:] <= positions[:-1]):
        raise ValueError("its positions are not in order")
    return positions


class _Bitmap:
    """A bitmap of 32-bit integers at an offset of some bytes; raises as ``decode`` does."""

    def __init__(self, data: bytes, start: int, max_count: int) -> None:
        self._data = data
        (cookie,) = struct.unpack_from("<I", data, start)
        has_ranges = cookie & 0xFFFF == _COOKIE_OF_RANGES
        if has_ranges:
            num_containers = (cookie >> 16) + 1
            flags = self._read(start + 4, (num_containers + 7) // 8, np.uint8)
            start += 4 + len(flags)
            self._is_ranges = np.unpackbits(flags, count=num_containers, bitorder="little") == 1
        elif cookie == _COOKIE:
            (num_containers,) = struct.unpack_from("<I", data, start + 4)
            start += 8
        else:
            raise ValueError(f"a bitmap begins with {cookie}")
        heads = self._read(start, 2 * num_containers, np.uint16).reshape(-1, 2).astype(np.int64)
        self._keys, self._counts = heads[:, 0], heads[:, 1] + 1
        self.count = int(self._counts.sum())
        if self.count > max_count:  # before memory is allocated for them
            raise ValueError(f"it has more than the {max_count} positions expected")
        if not has_ranges:
            self._is_ranges = np.zeros(num_containers, np.bool_)
        has_offsets = not has_ranges or num_containers >= _MIN_OFFSETS
        self.stop = start + (8 if has_offsets else 4) * num_containers

    def positions(self) -> Positions:
        """Return the integers, and set ``stop`` to the end of the bitmap."""
        found: list[_Shorts] = []
        is_array = ~self._is_ranges & (self._counts <= _MAX_ARRAY)
        done, ends = 0, np.cumsum(self._counts)
        for number in np.flatnonzero(~is_array).tolist():
            count, end = int(self._counts[number]), int(ends[number])
            found.append(self._next(end - count - done, np.uint16))
            found.append(self._ranges(count) if self._is_ranges[number] else self._bits(count))
            done = end
        found.append(self._next(self.count - done, np.uint16))
        positions: Positions = np.repeat(self._keys << 16, self._counts)
        positions |= np.concatenate(found)
        return positions

    def _bits(self, count: int) -> _Shorts:
        bits = np.unpackbits(self._next(_BITS_BYTES, np.uint8), bitorder="little")
        return _of_count(np.flatnonzero(bits), count)

    def _ranges(self, count: int) -> _Shorts:
        (num_ranges,) = self._next(1, np.uint16).tolist()
        ranges = self._next(2 * num_ranges, np.uint16).reshape(-1, 2).astype(np.int64)
        first, length = ranges[:, 0], ranges[:, 1] + 1
        if int(length.sum()) != count or np.any(first + length > 1 << 16):
            raise ValueError("a list of ranges has another length than its header records")
        before = np.cumsum(length) - length  # positions in the ranges before each
        return _of_count(np.repeat(first - before, length) + np.arange(count), count)

    def _next(self, count: int, kind: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        values = self._read(self.stop, count, kind)
        self.stop += values.nbytes
        return values

    def _read(
        self, start: int, count: int, kind: type[np.unsignedinteger[Any]]
    ) -> npt.NDArray[Any]:
        if start + count * np.dtype(kind).itemsize > len(self._data):
            raise ValueError("it is cut")
        return np.frombuffer(self._data, np.dtype(kind).newbyteorder("<"), count, start)


def _of_count(values: npt.NDArray[np.int64], count: int) -> _Shorts:
    if len(values) != count:
        raise ValueError("a bit set has another number of positions than its header records")
    return values.astype(np.uint16)
