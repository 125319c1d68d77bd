"""Where a compressed file can be cut: at the starts of its gzip members or zstd frames.

A zstd file may end with a seek table, which lists its frames and their text. Other files are searched for the
first member after each point where they should be cut, several at a time, in a part of ``_SEARCH_BYTES``; one
whose members are longer is not cut. The magic bytes of a member may occur inside compressed data too, so what
follows them must be decompressed without an error. Whether a member starts there is certain only after the
piece before it was read to that byte: a piece that ends inside a member is reported as truncated.
"""

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, islice
from struct import iter_unpack, unpack

from etl import storage
from etl.errors import StorageError
from etl.sources.layers.unpackers import MAGIC, UNPACK_ERRORS, UNPACKERS, Coding, may_start_member
from etl.sources.split import TEXT_RATIO, Split

# Chosen here, for the first request and the second. bgzip writes 64 KB of text per member, pzstd and t2sz 1
# to 8 MB, and a crawler one page.
_SEARCH_BYTES = (1 << 16, 1 << 20)
_SEARCHES = 16  # at a time: they wait for storage
# Of a member are decompressed to see whether it is one, or all of it: more than the header of a gzip member
# (65 KB) or the first block of a zstd frame (128 KB) needs, which may have any content.
_CHECK_BYTES = (1 << 17) + (1 << 12)
_STEP_BYTES = 1 << 10  # zstd expands them to at most 32 MB

# The zstd seekable format 0.1.0: a skippable frame at the end of the file.
_TABLE_MAGIC, _FOOTER_MAGIC = 0x184D2A5E, 0x8F92EAB1
_FOOTER_BYTES = 9
_MAX_FRAMES = 1 << 27  # by the format


def find_cuts(whole: Split, split_bytes: int, *, content: bytes = b"") -> list[int]:
    """Return the bytes of a file at which pieces of about ``split_bytes`` of text may begin.

    ``content`` is what the content of a member must start with, also of a first one at byte 0. There are
    none if the file is small, has one member, is not compressed, or cannot be read; reading it reports the
    error.
    """
    step = max(split_bytes // TEXT_RATIO, 1)
    if whole.compression is None or whole.size <= step:
        return []
    try:
        if whole.compression == "zstd" and not content and (frames := _read_seek_table(whole)):
            return _by_text(frames, split_bytes)
        if content and _find_member(whole, content, 0) != 0:
            return []  # its name is wrong, or its first member is damaged
        return list(_search(whole, step, content))
    except StorageError:
        return []


def _by_text(frames: list[tuple[int, int]], split_bytes: int) -> list[int]:
    """Return where pieces begin, from the sizes of frames: compressed, and as text.

    >>> _by_text([(10, 40), (10, 40), (0, 0), (10, 40), (10, 40)], 60)
    [20, 30]
    """
    starts = list(accumulate((size for size, _ in frames), initial=0))
    text = list(accumulate((size for _, size in frames), initial=0))
    wanted = (bisect_left(text, point) for point in range(split_bytes, text[-1], split_bytes))
    return sorted({starts[index] for index in wanted if starts[index] < starts[-1]})


def _read_seek_table(whole: Split) -> list[tuple[int, int]]:
    """Return the compressed size of each frame and that of its text; none without a valid table."""
    size = whole.size
    footer = _read(whole, max(size - _FOOTER_BYTES, 0), size)
    if len(footer) < _FOOTER_BYTES:
        return []
    count, flags, magic = unpack("<IBI", footer)
    entry_bytes = 12 if flags & 0x80 else 8
    table_bytes = 8 + count * entry_bytes + _FOOTER_BYTES
    if magic != _FOOTER_MAGIC or count > _MAX_FRAMES or table_bytes > size:
        return []
    table = _read(whole, size - table_bytes, size - _FOOTER_BYTES)
    if unpack("<II", table[:8]) != (_TABLE_MAGIC, table_bytes - 8):
        return []
    frames = [(each[0], each[1]) for each in iter_unpack("<III"[: 1 + entry_bytes // 4], table[8:])]
    return frames if sum(packed for packed, _ in frames) + table_bytes == size else []


def _search(whole: Split, step: int, content: bytes) -> Iterator[int]:
    """Yield the first member after each multiple of ``step``, until one has none near it."""
    points = iter(range(step, whole.size, step))
    last, at_once = 0, 1  # a file of one member costs one search
    with ThreadPoolExecutor(_SEARCHES) as pool:
        while some := list(islice(points, at_once)):
            found = pool.map(partial(_find_member, whole, content), some)
            for point, start in zip(some, found, strict=True):
                if start is None:
                    return
                # A member longer than a step is found from several points: only once, from the first.
                if point > last:
                    yield start
                    last = start
            at_once = _SEARCHES


def _find_member(whole: Split, content: bytes, offset: int) -> int | None:
    """Return where the first member at or after an offset starts; None if none is found."""
    assert whole.compression is not None
    magic = MAGIC[whole.compression]
    for search_bytes in _SEARCH_BYTES:
        packed = _read(whole, offset, offset + search_bytes + _CHECK_BYTES)
        is_end = offset + len(packed) >= whole.size
        # The magic number also occurs in compressed data by chance: each candidate is decompressed.
        at = packed.find(magic, 0, search_bytes)
        while at >= 0:
            head = packed[at : at + _CHECK_BYTES]
            if _is_member(head, whole.compression, content, is_end=is_end):
                return offset + at
            at = packed.find(magic, at + 1, search_bytes)
    return None


def _read(whole: Split, start: int, stop: int) -> bytes:
    return storage.read_bytes(whole.uri, start, min(stop, whole.size)) or b""


def _is_member(packed: bytes, coding: Coding, content: bytes, *, is_end: bool) -> bool:
    """Return whether some bytes are decompressed without an error, and another member follows if it ends.

    What they contain must start with ``content``.
    """
    unpacker = UNPACKERS[coding]()
    try:
        for first in range(0, len(packed), _STEP_BYTES):
            text = unpacker.decompress(packed[first : first + _STEP_BYTES])
            if first == 0 and not text.startswith(content):
                return False
            if unpacker.eof:
                rest = unpacker.unused_data + packed[first + _STEP_BYTES :]
                # Another member, a skippable frame, padding or the end of the file may follow.
                return may_start_member(rest, coding) or not rest.strip(b"\0")
    except UNPACK_ERRORS:
        return False
    return not is_end or len(packed) == _CHECK_BYTES
