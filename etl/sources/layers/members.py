"""Content of a stream of gzip members or zstd frames, member by member, skipping damaged members.

A compressed file consists of one member or of many: a WARC file has one per record. All that a member
contains before damage is returned; then ``damage`` says why the content ends, and ``resume`` continues with
the next member. Zero bytes between members are padding, which gzip ignores too.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import zstandard

from etl.errors import SourceError
from etl.sources.layers.unpackers import (
    MAGIC,
    STEP_BYTES,
    UNPACK_ERRORS,
    UNPACKERS,
    Coding,
    Unpacker,
    may_start_member,
)

_READ_BYTES = 1 << 16
_CHECK_BYTES = 1 << 10  # of a member are decompressed to see whether it is one
_HEAD_BYTES = 4
_ENOUGH_BYTES = 1 << 15  # of content, to be returned at once
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # a skippable frame, by the WARC zstd specification 1.0
_MAX_DICTIONARY_BYTES = 16 << 20  # chosen here; trained dictionaries have 100 KB to 1 MB
_MAX_MEMBERS = 1 << 16  # remembered for ``rewind``: 8 MB

TRUNCATED = "the last member is truncated"
"""The damage of a stream that ends inside a member."""


class Layer(NamedTuple):
    """A coding, and the function that returns its unpackers."""

    coding: Coding
    new_unpacker: Callable[[], Any]


def layer_of(coding: Coding | None) -> Layer | None:
    """Return the layer of a coding; None without one."""
    return None if coding is None else Layer(coding, UNPACKERS[coding])


class Members:
    """The content of a file as a stream that stops at damage and can resume after it.

    ``layer`` is None if the file is not compressed. Of a compressed file, ``start`` and ``stop`` choose the
    members that start there or later, and before there; ``stop`` is the start of a member. ``content`` is
    what the content of a member starts with at which reading can resume.
    """

    def __init__(
        self,
        file: pa.NativeFile,
        layer: Layer | None,
        *,
        uri: str,
        start: int = 0,
        stop: int | None = None,
        content: bytes = b"",
    ) -> None:
        self.damage: str | None = None
        """A description of the damage at which the stream stopped, or None."""
        self.offset = 0
        """How many bytes have been returned or skipped."""
        self.unverified_bytes = 0
        """How many of the last bytes returned belong to a member that has not been read to its end."""
        self.member_offset = start
        """The byte of the file at which the current member starts."""
        self.complete_members = 0
        """How many members have been read to their ends."""
        self._file, self._layer, self._uri = file, layer, uri
        self._stop, self._content = stop, content
        self._buffer = b""  # compressed bytes
        self._index = 0  # the first unused byte of the buffer
        self._buffer_offset = start  # of the buffer in the file
        self._members = [(0, start)]  # where members start: in the content, in the file
        self._returned = 0  # bytes of the member that were returned before it was read again
        self._careful_from: int | None = None  # a byte of the file; from there, a step is one byte
        self._unpacker: Unpacker | None = None
        if start:
            file.seek(start)

    @property
    def is_in_member(self) -> bool:
        """Whether the stream stopped, or the last bytes ended, inside a member."""
        return self._unpacker is not None

    @property
    def position(self) -> int:
        """The byte of the file up to which it has been read."""
        return self._buffer_offset + self._index

    def read(self) -> bytes:
        """Return the next bytes, at most 33 MB; empty at the end of the file and after damage."""
        content = self._read()
        self.offset += len(content)
        return content

    def skip_to(self, offset: int, *, stop: bytes) -> bytes:
        """Skip to an offset in the content, and return some bytes from there on.

        If a member starts with ``stop`` before that, the content is skipped only to there.
        """
        if self._layer is None:
            self._seek(min(offset, self._file.size()))
            return self.read()
        members = len(self._members)
        while content := self.read():
            # Nothing before the offset is read again: of the members passed over, only the last is
            # remembered.
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
        return self._layer is not None and first <= self._find_member(last)[0] <= last

    def file_offset(self, offset: int) -> int:
        """Return the byte of the file at which an offset in the content is, or its member starts."""
        return offset if self._layer is None else self._find_member(offset)[1]

    def forget(self, offset: int) -> None:
        """Note that ``rewind`` is not called for an earlier offset."""
        while len(self._members) > 1 and self._members[1][0] <= offset:
            del self._members[0]

    def can_rewind(self, offset: int) -> bool:
        """Return whether the member at an offset is still known."""
        return self._layer is None or self._members[0][0] <= offset

    def rewind(self, offset: int) -> None:
        """Continue reading at an earlier offset."""
        if self._layer is None:
            return self._seek(offset)
        start, self.member_offset = self._find_member(offset)
        del self._members[self._members.index((start, self.member_offset)) + 1 :]
        self.damage, self.offset, self.unverified_bytes = None, offset, offset - start
        return self._open_member_again()

    def _find_member(self, offset: int) -> tuple[int, int]:
        """Return where the member at an offset starts: in the content, in the file."""
        # The greater second number finds the last of several members that start at the same offset: all
        # but it are empty.
        after = bisect_right(self._members, (offset, 1 << 62))
        return self._members[max(after - 1, 0)]

    def _seek(self, offset: int) -> None:
        """Continue reading an uncompressed file at an offset."""
        self._file.seek(offset)
        self._buffer, self._index, self.offset = b"", 0, offset

    def _read(self) -> bytes:
        while self.damage is None:
            if self._index == len(self._buffer):
                # The buffer is used up, and its bytes are counted, before the next ones are read.
                self._buffer_offset += self._index
                self._buffer, self._index = self._file.read(_READ_BYTES), 0
            if self._layer is None:
                self._index = len(self._buffer)
                return self._buffer
            if not self._buffer:
                if self._unpacker is not None:
                    self.damage = TRUNCATED
                else:
                    self._is_at_stop()
                return b""
            if self._unpacker is None:
                if self._buffer[self._index] == 0 and self._skip_padding(self._layer):
                    continue
                if not self._begin_member(self._layer):
                    return b""
            if content := self._unpack(self._layer):
                return content
        return b""

    def _skip_padding(self, layer: Layer) -> bool:
        """Skip zero bytes after a member; return whether there were any."""
        if layer.coding not in MAGIC or self.position == 0:
            return False
        self._index = len(self._buffer) - len(self._buffer[self._index :].lstrip(b"\0"))
        return True

    def _begin_member(self, layer: Layer) -> bool:
        """Begin the next member; return False at the end of the piece and if no member starts here."""
        if self._is_at_stop():
            return False
        if len(self._buffer) - self._index < _HEAD_BYTES:
            self._extend_buffer(_HEAD_BYTES)
        self.member_offset = self.position
        self._members.append((self.offset, self.member_offset))
        # A file can have very many members: only the last ones can be read again.
        del self._members[:-_MAX_MEMBERS]
        self.unverified_bytes = self._returned = 0
        self._careful_from = None
        head = self._buffer[self._index : self._index + _HEAD_BYTES]
        if not may_start_member(head, layer.coding):
            self.damage = f"no {layer.coding} member starts at byte {self.member_offset}"
            return False
        self._unpacker = layer.new_unpacker()
        return True

    def _is_at_stop(self) -> bool:
        """Return whether the next member does not belong to the piece that is read."""
        if self._stop is None or self.position < self._stop:
            return False
        if self.position > self._stop:
            raise SourceError(
                f"the file was cut at byte {self._stop}, where no member starts",
                where=self._uri,
                hint="set source.split_bytes to more than four times the size of the file",
            )
        return True

    def pass_stop(self) -> None:
        """Continue with the members after the piece."""
        self._stop = None

    def resume(self) -> bool:
        """Skip to the next member, or the next that starts with ``content``; return False without one."""
        assert self._layer is not None
        magic = MAGIC[self._layer.coding]
        self._unpacker, self.damage, self.unverified_bytes = None, None, 0
        # Where the damaged member ends is unknown: search from its second byte on.
        self._buffer, self._index, self._buffer_offset = b"", 0, self.member_offset + 1
        self._file.seek(self._buffer_offset)
        while True:
            start = self._buffer.find(magic, self._index)
            if start < 0:
                # The magic number may begin with the last bytes of the buffer.
                self._index = max(len(self._buffer) - len(magic) + 1, self._index)
                if not self._extend_buffer(_READ_BYTES):
                    self._index = len(self._buffer)
                    return self._is_at_stop()  # which raises if a member should start there
                continue
            self._index = start
            if len(self._buffer) - start < _CHECK_BYTES:
                self._extend_buffer(_CHECK_BYTES - (len(self._buffer) - start))
            # The magic number also occurs in compressed data by chance: what follows must decompress, to
            # the expected content.
            head = self._buffer[self._index : self._index + _CHECK_BYTES]
            if starts_member(head, self._layer, self._content):
                return True
            self._index += 1

    def _extend_buffer(self, count: int) -> bool:
        """Read up to ``count`` more bytes; return whether there were any."""
        more = self._file.read(max(count, 0))
        self._buffer_offset += self._index
        self._buffer, self._index = self._buffer[self._index :] + more, 0
        return bool(more)

    def _unpack(self, layer: Layer) -> bytes:
        """Return the content of the next steps; empty if they have none, or are to be read again.

        Damage loses the whole content of its step, so the member is then read again, and from that step on
        byte by byte: thus what is readable does not depend on the steps.
        """
        unpacker, buffer = self._unpacker, memoryview(self._buffer)
        assert unpacker is not None
        parts: list[bytes] = []
        size = step_bytes = 0
        damage: Exception | None = None
        while size < _ENOUGH_BYTES and self._index < len(buffer) and not unpacker.eof:
            step_bytes = self._count_step(layer)
            try:
                parts.append(unpacker.decompress(buffer[self._index : self._index + step_bytes]))
            except UNPACK_ERRORS as error:
                damage = error
                break
            self._index = min(self._index + step_bytes, len(buffer))
            size += len(parts[-1])
        content = b"".join(parts)
        if self._returned:
            # The member was opened again after damage: its content up to there was returned already.
            skipped = min(self._returned, len(content))
            self._returned, content = self._returned - skipped, content[skipped:]
        self.unverified_bytes += len(content)
        # A step of many bytes loses what was readable before the damage. Read the member again, in steps
        # of one byte from the start of this step on, and report the damage then.
        if damage is not None and step_bytes > 1:
            self._careful_from = self.position
            self._open_member_again()
        elif damage is not None:
            self.damage = f"the member at byte {self.member_offset} is damaged ({damage})"
        elif unpacker.eof:
            # The step reached into the next member.
            self._index -= len(unpacker.unused_data)
            self._unpacker, self.unverified_bytes = None, 0
            self.complete_members += 1
        return content

    def _count_step(self, layer: Layer) -> int:
        """Return how many bytes to decompress together."""
        count = STEP_BYTES[layer.coding]
        if self._careful_from is None:
            return count
        return max(min(count, self._careful_from - self.position), 1)

    def _open_member_again(self) -> None:
        """Start the current member again, to read on after the bytes of it that were returned."""
        assert self._layer is not None
        self._file.seek(self.member_offset)
        self._buffer, self._index, self._buffer_offset = b"", 0, self.member_offset
        self._unpacker, self._returned = self._layer.new_unpacker(), self.unverified_bytes


def starts_member(packed: bytes, layer: Layer, content: bytes) -> bool:
    """Return whether some bytes are decompressed without an error to what starts with ``content``."""
    try:
        text: bytes = layer.new_unpacker().decompress(packed)
    except UNPACK_ERRORS:
        return False
    return text.startswith(content)


def detect_layer(file: pa.NativeFile, uri: str) -> Layer | None:
    """Return the layer of a WARC file by its first bytes, or None if it is not compressed.

    Raises SourceError if a zstd file starts with a dictionary that cannot be used.
    """
    head = file.read(8)
    if head.startswith(_ZSTD_DICTIONARY):
        content = file.read(min(int.from_bytes(head[4:], "little"), _MAX_DICTIONARY_BYTES))
        file.seek(0)  # the unpacker skips the dictionary's frame
        return Layer("zstd", _with_dictionary(content, uri))
    file.seek(0)
    return next((layer_of(coding) for coding in MAGIC if head.startswith(MAGIC[coding])), None)


def _with_dictionary(content: bytes, uri: str) -> Callable[[], Any]:
    try:
        if content.startswith(MAGIC["zstd"]):  # the dictionary itself is compressed
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
