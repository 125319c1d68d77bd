"""Where a compressed file can be cut: at the starts of its gzip members or zstd frames.

A zstd file may end with a seek table, which lists its frames and their text. Other files are searched for the
first member after each point where they should be cut, in ``_SEARCH_BYTES``; one whose members are longer is
not cut. The magic bytes of a member may occur inside compressed data too, so what follows them must be
decompressed without an error. Whether a member starts there is certain only after the piece before it was
read to that byte: a piece that ends inside a member is reported as truncated.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from struct import iter_unpack, unpack
from typing import Any

import pyarrow as pa
import zstandard
from isal import isal_zlib

from etl import storage
from etl.errors import StorageError
from etl.sources.split import TEXT_RATIO, Split

# Chosen here. bgzip writes 64 KB, pzstd and t2sz 1 to 8 MB of text per member; a remote request of 1 MB takes
# as long as a small one.
_SEARCH_BYTES = 1 << 20
# Of a member are decompressed to see whether it is one, or all of it: more than the header of a gzip member
# (65 KB) or the first block of a zstd frame (128 KB) needs, which may have any content.
_CHECK_BYTES = (1 << 17) + (1 << 12)
_STEP_BYTES = 1 << 10  # zstd expands them to at most 32 MB
_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}

# The zstd seekable format 0.1.0: a skippable frame at the end of the file.
_TABLE_MAGIC, _FOOTER_MAGIC = 0x184D2A5E, 0x8F92EAB1
_FOOTER_BYTES = 9
_MAX_FRAMES = 1 << 27  # by the format

_DAMAGE: Any = (
    isal_zlib.error,
    zstandard.ZstdError,
)  # isal's type stubs declare its error as an instance


def find_cuts(whole: Split, split_bytes: int) -> list[int]:
    """Return the bytes of a compressed file at which pieces of about ``split_bytes`` of text may begin.

    These are none if the file is small, has one member, or cannot be read; reading it reports the error.
    """
    step = max(split_bytes // TEXT_RATIO, 1)
    if whole.size <= step:
        return []
    try:
        with storage.open_input(whole.uri) as file:
            if whole.compression == "zstd" and (frames := _read_seek_table(file, whole.size)):
                return _by_text(frames, split_bytes)
            return list(_search(file, whole, step))
    except (StorageError, pa.ArrowException, OSError):
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


def _read_seek_table(file: pa.NativeFile, size: int) -> list[tuple[int, int]]:
    """Return the compressed size of each frame and that of its text; none without a valid table."""
    if size < _FOOTER_BYTES:
        return []
    count, flags, magic = unpack("<IBI", file.read_at(_FOOTER_BYTES, size - _FOOTER_BYTES))
    entry_bytes = 12 if flags & 0x80 else 8
    table_bytes = 8 + count * entry_bytes + _FOOTER_BYTES
    if magic != _FOOTER_MAGIC or count > _MAX_FRAMES or table_bytes > size:
        return []
    table = file.read_at(table_bytes - _FOOTER_BYTES, size - table_bytes)
    if unpack("<II", table[:8]) != (_TABLE_MAGIC, table_bytes - 8):
        return []
    frames = [(each[0], each[1]) for each in iter_unpack("<III"[: 1 + entry_bytes // 4], table[8:])]
    return frames if sum(packed for packed, _ in frames) + table_bytes == size else []


def _search(file: pa.NativeFile, whole: Split, step: int) -> Iterator[int]:
    """Yield the first member after each multiple of ``step``, until one has none near it."""
    last = 0
    for point in range(step, whole.size, step):
        if point <= last:
            continue
        start = _find_member(file, whole, point)
        if start is None:
            return
        yield start
        last = start


def _find_member(file: pa.NativeFile, whole: Split, offset: int) -> int | None:
    """Return where the first member at or after an offset starts; None if none is found."""
    assert whole.compression is not None
    magic = _MAGIC[whole.compression]
    content = bytes(file.read_at(_SEARCH_BYTES + _CHECK_BYTES, offset))
    at = content.find(magic, 0, _SEARCH_BYTES)
    while at >= 0:
        is_end = offset + len(content) >= whole.size
        if _is_member(content[at : at + _CHECK_BYTES], magic, is_end=is_end):
            return offset + at
        at = content.find(magic, at + 1, _SEARCH_BYTES)
    return None


def _is_member(content: bytes, magic: bytes, *, is_end: bool) -> bool:
    """Return whether some bytes are decompressed without an error, and another member follows if it ends."""
    is_gzip = magic == _MAGIC["gzip"]
    unpacker: Any = (
        isal_zlib.decompressobj(wbits=31)
        if is_gzip
        else zstandard.ZstdDecompressor().decompressobj()
    )
    try:
        for first in range(0, len(content), _STEP_BYTES):
            unpacker.decompress(content[first : first + _STEP_BYTES])
            if unpacker.eof:
                rest = unpacker.unused_data + content[first + _STEP_BYTES :]
                return _may_follow(rest, magic)
    except _DAMAGE:
        return False
    return not is_end or len(content) == _CHECK_BYTES


def _may_follow(rest: bytes, magic: bytes) -> bool:
    """Return whether a member, a skippable frame, padding or the end of the file may follow a member."""
    is_skippable = rest[1:4] == b"\x2a\x4d\x18" and rest[0] & 0xF0 == 0x50
    return rest[: len(magic)] == magic[: len(rest)] or is_skippable or not rest.strip(b"\0")
