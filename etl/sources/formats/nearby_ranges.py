"""Read ranges of a file that are near each other with one request."""

from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

_MAX_GAP_BYTES = 64 << 10  # chosen here


class NearbyRanges:
    """A file of which some ranges will be read; those near each other are read together, and kept.

    Between ranges there are at most as many bytes as in them, so that they take at most twice their size.
    """

    def __init__(self, file: pa.NativeFile, ranges: Iterable[tuple[int, int]]) -> None:
        self._file = file
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._contents: dict[int, pa.Buffer] = {}  # by index
        needed = 0
        for start, stop in sorted(ranges):
            gap = start - self._stops[-1] if self._stops else None
            if gap is not None and gap <= min(needed, _MAX_GAP_BYTES):
                needed += stop - max(start, min(stop, self._stops[-1]))
                self._stops[-1] = max(stop, self._stops[-1])
            else:
                self._starts.append(start)
                self._stops.append(stop)
                needed = stop - start

    def read(self, start: int, size: int) -> pa.Buffer:
        """Return the bytes from ``start``, fewer at the end of the file."""
        index = bisect_right(self._starts, start) - 1
        if index < 0 or start + size > self._stops[index]:
            self._file.seek(start)
            return self._file.read_buffer(size)
        if index not in self._contents:
            first = self._starts[index]
            self._file.seek(first)
            self._contents[index] = self._file.read_buffer(self._stops[index] - first)
        return self._contents[index].slice(start - self._starts[index], size)
