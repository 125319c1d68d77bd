"""Content of an uncompressed, gzip or zstd file, member by member, skipping damaged members.

A WARC file consists of many gzip members or zstd frames, usually one per record, so one damaged member need
not cost the others.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import zstandard
from isal import isal_zlib

from etl.errors import SourceError

_READ_BYTES = 1 << 16
# Compressed bytes per step. zstd expands a small step to at most 32 MB, gzip a large step to at most 16 MB.
# Damage loses the whole content of its step, so a damaged member is read again in small steps.
_SMALL_STEP_BYTES = 1 << 10
_LARGE_STEP_BYTES = 16 << 10
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # a skippable frame, by the WARC zstd specification 1.0
_MAX_DICTIONARY_BYTES = 16 << 20  # chosen here; trained dictionaries have 100 KB to 1 MB
_MAX_MEMBERS = 1 << 16  # remembered for ``rewind``: 8 MB

_DAMAGE: Any = (
    isal_zlib.error,
    zstandard.ZstdError,
)  # isal's type stubs declare its error as an instance


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, /) -> bytes: ...


class CompressedMembers:
    """The content of a file as a stream that stops at damage and can resume after it.

    The compression is detected from the first bytes. Of a compressed file, ``start`` and ``stop`` choose the
    members that start there or later, and before there; ``stop`` is the start of a member. Raises
    SourceError if a zstd file starts with a dictionary that cannot be used.
    """

    def __init__(
        self, file: pa.NativeFile, *, uri: str, start: int = 0, stop: int | None = None
    ) -> None:
        self.damage: str | None = None
        """A description of the damage at which the stream stopped, or None."""
        self.offset = 0
        """How many bytes have been returned or skipped."""
        self.unverified_bytes = 0
        """How many of the last bytes returned belong to a member that has not been read to its end."""
        self._file = file
        self._buffer = b""  # compressed bytes
        self._index = 0  # the first unused byte of the buffer
        self._buffer_offset = start  # of the buffer in the file
        self._member_offset = start  # of the current member in the file
        self._members = [(0, start)]  # where members start: in the content, in the file
        self._returned = 0  # bytes of the member that were returned before it was read again
        self._unpacker: _Unpacker | None = None
        self._new_unpacker, self._magic = _detect_compression(file, uri)
        self._uri, self._stop = uri, stop
        if start:
            file.seek(start)
        self._step_bytes = 0  # given to the unpacker at a time

    def read(self) -> bytes:
        """Return the next bytes, at most 32 MB; empty at the end of the file and at damage."""
        content = self._read()
        self.offset += len(content)
        return content

    def skip_to(self, offset: int, *, stop: bytes) -> bytes:
        """Skip to an offset in the content, and return some bytes from there on.

        If a member starts with ``stop`` before that, the content is skipped only to there.
        """
        if self._new_unpacker is None:
            self._seek(min(offset, self._file.size()))
            return self.read()
        members = len(self._members)
        while content := self.read():
            while len(self._members) > members + 1:
                del self._members[-2]
            start = self.offset - len(content)
            if content.startswith(stop) and self.starts_member(start, start):
                return content
            if self.offset > offset:
                return content[offset - start :]
        return b""

    def starts_member(self, first: int, last: int) -> bool:
        """Return whether a compressed member is known to start at one of some offsets in the content."""
        return self._new_unpacker is not None and first <= self._find_member(last)[0] <= last

    def file_offset(self, offset: int) -> int:
        """Return the byte of the file at which an offset in the content is, or its member starts."""
        return offset if self._new_unpacker is None else self._find_member(offset)[1]

    def forget(self, offset: int) -> None:
        """Note that ``rewind`` is not called for an earlier offset."""
        while len(self._members) > 1 and self._members[1][0] <= offset:
            del self._members[0]

    def can_rewind(self, offset: int) -> bool:
        """Return whether the member at an offset is still known."""
        return self._new_unpacker is None or self._members[0][0] <= offset

    def rewind(self, offset: int) -> None:
        """Continue reading at an earlier offset."""
        if self._new_unpacker is None:
            return self._seek(offset)
        start, self._member_offset = self._find_member(offset)
        del self._members[self._members.index((start, self._member_offset)) + 1 :]
        self.damage, self.offset, self.unverified_bytes = None, offset, offset - start
        return self._open_member(_SMALL_STEP_BYTES if self._magic == _ZSTD else _LARGE_STEP_BYTES)

    def _find_member(self, offset: int) -> tuple[int, int]:
        """Return where the member at an offset starts: in the content, in the file."""
        after = bisect_right(self._members, (offset, self._file.size()))
        return self._members[max(after - 1, 0)]

    def _seek(self, offset: int) -> None:
        """Continue reading an uncompressed file at an offset."""
        self._file.seek(offset)
        self._buffer, self._index, self.offset = b"", 0, offset

    def _read(self) -> bytes:
        while self.damage is None:
            if self._index == len(self._buffer):
                self._buffer_offset += self._index
                self._buffer, self._index = self._file.read(_READ_BYTES), 0
            if self._new_unpacker is None:
                self._index = len(self._buffer)
                return self._buffer
            if not self._buffer:
                if self._unpacker is not None:
                    self.damage = "the last member is truncated"
                return b""
            if self._unpacker is None:
                if self._buffer[self._index] == 0 and not self._buffer[self._index :].strip(b"\0"):
                    self._index = len(self._buffer)  # padding, which gzip ignores too
                    continue
                if self._is_at_stop(self._buffer_offset + self._index):
                    return b""
                self._member_offset = self._buffer_offset + self._index
                self._members.append((self.offset, self._member_offset))
                del self._members[:-_MAX_MEMBERS]
                self._step_bytes = _SMALL_STEP_BYTES if self._magic == _ZSTD else _LARGE_STEP_BYTES
                self._unpacker, self.unverified_bytes, self._returned = self._new_unpacker(), 0, 0
            if content := self._unpack_step(self._unpacker):
                return content
        return b""

    def _is_at_stop(self, offset: int) -> bool:
        """Return whether a member does not belong to the piece that is read."""
        if self._stop is None or offset < self._stop:
            return False
        if offset > self._stop:
            raise SourceError(
                f"the file was cut at byte {self._stop}, where no member starts",
                where=self._uri,
                hint="set source.split_bytes to more than four times the size of the file",
            )
        return True

    def resume(self) -> bool:
        """Skip to the next member that starts with a record; return False if there is none."""
        self._unpacker, self.damage, self.unverified_bytes = None, None, 0
        self._buffer, self._index, self._buffer_offset = b"", 0, self._member_offset + 1
        self._file.seek(self._buffer_offset)
        while True:
            start = self._buffer.find(self._magic, self._index)
            if start < 0:
                self._index = max(len(self._buffer) - len(self._magic) + 1, self._index)
                if not self._extend_buffer(_READ_BYTES):
                    return False
                continue
            self._index = start
            self._extend_buffer(_SMALL_STEP_BYTES - (len(self._buffer) - start))
            if self._starts_record(self._buffer[self._index : self._index + _SMALL_STEP_BYTES]):
                return True
            self._index += 1

    def _extend_buffer(self, count: int) -> bool:
        """Read up to ``count`` more bytes; return whether there were any."""
        more = self._file.read(max(count, 0))
        self._buffer_offset += self._index
        self._buffer, self._index = self._buffer[self._index :] + more, 0
        return bool(more)

    def _unpack_step(self, unpacker: _Unpacker) -> bytes:
        """Return the content of the next step; empty at damage, or if the member must be read again."""
        step = memoryview(self._buffer)[self._index : self._index + self._step_bytes]
        try:
            content = unpacker.decompress(step)
        except _DAMAGE as error:
            if self._step_bytes > _SMALL_STEP_BYTES:
                self._open_member(_SMALL_STEP_BYTES)
            else:
                self.damage = f"the member at byte {self._member_offset} is damaged ({error})"
            return b""
        self._index += len(step)
        skipped = min(self._returned, len(content))
        self._returned, content = self._returned - skipped, content[skipped:]
        self.unverified_bytes += len(content)
        if unpacker.eof:
            self._index -= len(unpacker.unused_data)
            self._unpacker, self.unverified_bytes = None, 0
        return content

    def _open_member(self, step_bytes: int) -> None:
        """Start the current member again, to read on after the bytes of it that were returned."""
        assert self._new_unpacker is not None
        self._file.seek(self._member_offset)
        self._buffer, self._index, self._buffer_offset = b"", 0, self._member_offset
        self._unpacker, self._step_bytes = self._new_unpacker(), step_bytes
        self._returned = self.unverified_bytes

    def _starts_record(self, compressed: bytes) -> bool:
        assert self._new_unpacker is not None
        try:
            content: bytes = self._new_unpacker().decompress(compressed)
        except _DAMAGE:
            return False
        return content.startswith(b"WARC/")


def _detect_compression(file: pa.NativeFile, uri: str) -> tuple[Callable[[], Any] | None, bytes]:
    """Return the factory of unpackers (None: the file is uncompressed) and the members' magic bytes."""
    head = file.read(8)
    if head.startswith(_ZSTD_DICTIONARY):
        content = file.read(min(int.from_bytes(head[4:], "little"), _MAX_DICTIONARY_BYTES))
        file.seek(0)  # the unpacker skips the dictionary's frame
        return _with_dictionary(content, uri), _ZSTD
    file.seek(0)
    if head.startswith(_ZSTD):
        return zstandard.ZstdDecompressor().decompressobj, _ZSTD
    if head.startswith(_GZIP):
        return _gunzip, _GZIP
    return None, b""


def _gunzip() -> Any:
    return isal_zlib.decompressobj(wbits=31)


def _with_dictionary(content: bytes, uri: str) -> Callable[[], Any]:
    try:
        if content.startswith(_ZSTD):  # the dictionary itself is compressed
            if zstandard.frame_content_size(content) > _MAX_DICTIONARY_BYTES:
                raise zstandard.ZstdError(f"larger than {_MAX_DICTIONARY_BYTES} bytes")  # noqa: TRY301
            unpacker = zstandard.ZstdDecompressor()
            content = unpacker.decompress(content, max_output_size=_MAX_DICTIONARY_BYTES)
        dictionary = zstandard.ZstdCompressionDict(content)
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
        decompressor.decompressobj()  # raises if the dictionary is not valid
    except zstandard.ZstdError as error:
        raise SourceError(
            f"the zstd dictionary cannot be used ({error})",
            where=uri,
            hint="download the file again",
        ) from error
    return decompressor.decompressobj
