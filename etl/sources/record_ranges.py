"""Records of a WARC file that an index lists: packed in a split, cut, and read by ranges of the file.

Records near each other are read by one request, and the next requests are sent while records are parsed. A
record is 16 bytes of a split, so that a million splits of few records fit into a file on the driver's disk.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from etl import storage
from etl.sources.split import RECORDS_MARK, TEXT_RATIO, PackedRecords, Split

# Chosen here: it takes 1 ms at 64 MB/s, and a request 20 ms. Between two pages, a crawler has 2 KB.
_MAX_GAP_BYTES: Final = 64 << 10
_MAX_REQUEST_BYTES: Final = 4 << 20  # chosen here: several are in memory
_REQUESTS: Final = 8  # at a time: they wait for storage


class RecordBytes(NamedTuple):
    """A record as the index lists it, and its bytes, which end with the file; None if it is too long."""

    offset: int
    length: int
    content: bytes | None


def with_records(whole: Split, records: npt.NDArray[np.int64]) -> Split:
    """Return a file of which only some records are read; ``records`` (n, 2) are offsets and lengths.

    Of records at the same offset, the longest is read.
    """
    records = records[np.lexsort((-records[:, 1], records[:, 0]))]
    first = np.ones(len(records), np.bool_)
    first[1:] = records[1:, 0] != records[:-1, 0]
    packed = records[first].astype("<i8").tobytes()
    mark = RECORDS_MARK + xxhash.xxh3_64_hexdigest(packed)
    return narrow(replace(whole, records=packed, fingerprint=whole.fingerprint + mark))


def narrow(part: Split) -> Split:
    """Return a part of a file with only the records that start in it."""
    records = _unpack(part.records)
    stop = part.size if part.stop is None else part.stop
    inside = records[(records[:, 0] >= part.start) & ((part.stop is None) | (records[:, 0] < stop))]
    return replace(part, records=inside.tobytes(), bytes=int(inside[:, 1].sum()))


def find_cuts(whole: Split, split_bytes: int) -> list[int]:
    """Return the offsets at which pieces of about ``split_bytes`` of text may begin."""
    records = _unpack(whole.records)
    step = max(split_bytes // TEXT_RATIO, 1)
    numbers = (np.cumsum(records[:, 1]) - records[:, 1]) // step
    starts = np.flatnonzero(np.diff(numbers)) + 1
    return [int(offset) for offset in records[starts, 0]]


def read_ranges(split: Split, *, max_bytes: int) -> Iterator[RecordBytes]:
    """Yield the listed records of a split in order; one longer than ``max_bytes`` is not read.

    Raises StorageError if the file cannot be read.
    """
    groups = _group(_unpack(narrow(split).records).tolist())
    if storage.is_local(split.uri):
        for group in groups:
            yield from _read_group(split, group, max_bytes)
        return
    waiting: deque[Future[list[RecordBytes]]] = deque()
    with ThreadPoolExecutor(_REQUESTS) as pool:
        try:
            for group in groups:
                waiting.append(pool.submit(_read_group, split, group, max_bytes))
                if len(waiting) == _REQUESTS:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _group(records: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the records that one request reads: those with small gaps between them.

    >>> [*_group([(0, 10), (12, 10), (500_000, 10)])]
    [[(0, 10), (12, 10)], [(500000, 10)]]
    """
    group: list[tuple[int, int]] = []
    stop = 0
    for offset, length in records:
        end = max(stop, offset + length)
        is_near = offset - stop <= _MAX_GAP_BYTES
        if group and not (is_near and end - group[0][0] <= _MAX_REQUEST_BYTES):
            yield group
            group, end = [], offset + length
        group.append((offset, length))
        stop = end
    if group:
        yield group


def _read_group(split: Split, group: list[tuple[int, int]], max_bytes: int) -> list[RecordBytes]:
    wanted = [(offset, offset + length) for offset, length in group if length <= max_bytes]
    first = min((start for start, _ in wanted), default=0)
    stop = min(max((end for _, end in wanted), default=0), split.size)
    content = (storage.read_bytes(split.uri, first, stop) or b"") if first < stop else b""

    def read(offset: int, length: int) -> bytes | None:
        return None if length > max_bytes else content[offset - first : offset - first + length]

    return [RecordBytes(offset, length, read(offset, length)) for offset, length in group]


def _unpack(records: PackedRecords | None) -> npt.NDArray[np.int64]:
    """Return the offset and the length of each record."""
    return np.frombuffer(records or b"", "<i8").reshape(-1, 2)
