"""The content of a plain, gzip or zstd file, member by member, past members that are damaged.

WARC files are many gzip members or zstd frames, one a record as a rule, so that a damaged one need not
cost the others.
"""

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import zstandard
from isal import isal_zlib

from etl.errors import SourceError

_READ_BYTES = 1 << 16
# Packed bytes at a time: zstd makes up to 32 MB of the fewer, gzip 16 MB of the more. What stands before
# damage in a step is lost with it, so that its member is read again by the fewer.
_FEW_BYTES = 1 << 10
_MORE_BYTES = 16 << 10
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # a skippable frame, by the WARC zstd specification 1.0
_MAX_DICTIONARY_BYTES = 16 << 20  # chosen here; trained dictionaries have 100 KB to 1 MB


_DAMAGE: Any = (isal_zlib.error, zstandard.ZstdError)  # isal's types call its error an instance


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, /) -> bytes: ...


class Members:
    """A file's content as a stream that ends before damage, and goes on behind it when told to.

    What packs the file is seen from its first bytes. Raises SourceError if a zstd file begins with a
    dictionary that cannot be used.
    """

    def __init__(self, file: pa.NativeFile, *, uri: str) -> None:
        self.damage: str | None = None
        """Why the stream ends here, if not because the file does."""
        self.unproven = 0
        """How many of the last bytes are of a member that has not been read to its end."""
        self._file = file
        self._held = b""  # read from the file
        self._next = 0  # the first of the held bytes that is not used up
        self._at = 0  # offset of what is held
        self._start = 0  # offset of the member that is being read
        self._known = 0  # how many bytes of the member were given before it was begun again
        self._unpacker: _Unpacker | None = None
        self._new, self._magic = _packing(file, uri)
        self._step_bytes = 0  # what is asked of the unpacker at once

    def read(self) -> bytes:
        """The next bytes, 32 MB at most; none at the end of the file, and where it is damaged."""
        while self.damage is None:
            if self._next == len(self._held):
                self._at += self._next
                self._held, self._next = self._file.read(_READ_BYTES), 0
            if self._new is None:
                self._next = len(self._held)
                return self._held
            if not self._held:
                if self._unpacker is not None:
                    self.damage = "the last member is cut short"
                return b""
            if self._unpacker is None:
                if self._held[self._next] == 0 and not self._held[self._next :].strip(b"\0"):
                    self._next = len(self._held)  # padding, which gzip itself passes over
                    continue
                self._start = self._at + self._next
                self._step_bytes = _FEW_BYTES if self._magic == _ZSTD else _MORE_BYTES
                self._unpacker, self.unproven, self._known = self._new(), 0, 0
            if found := self._unpacked(self._unpacker):
                return found
        return b""

    def resume(self) -> bool:
        """Go to the next member that begins with a record; False if there is none."""
        self._unpacker, self.damage, self.unproven = None, None, 0
        self._held, self._next, self._at = b"", 0, self._start + 1
        self._file.seek(self._at)
        while True:
            place = self._held.find(self._magic, self._next)
            if place < 0:
                self._next = max(len(self._held) - len(self._magic) + 1, self._next)
                if not self._fetched(_READ_BYTES):
                    return False
                continue
            self._next = place
            self._fetched(_FEW_BYTES - (len(self._held) - place))
            if self._begins_a_record(self._held[self._next : self._next + _FEW_BYTES]):
                return True
            self._next += 1

    def _fetched(self, count: int) -> bool:
        """Hold so many more bytes, if there are any."""
        more = self._file.read(max(count, 0))
        self._at += self._next
        self._held, self._next = self._held[self._next :] + more, 0
        return bool(more)

    def _unpacked(self, unpacker: _Unpacker) -> bytes:
        """What the next step holds; nothing also where the member is to be read again."""
        step = memoryview(self._held)[self._next : self._next + self._step_bytes]
        try:
            found = unpacker.decompress(step)
        except _DAMAGE as error:
            if self._step_bytes > _FEW_BYTES:
                self._begin_again()
            else:
                self.damage = f"the member at byte {self._start} is damaged ({error})"
            return b""
        self._next += len(step)
        passed = min(self._known, len(found))
        self._known, found = self._known - passed, found[passed:]
        self.unproven += len(found)
        if unpacker.eof:
            self._next -= len(unpacker.unused_data)
            self._unpacker, self.unproven = None, 0
        return found

    def _begin_again(self) -> None:
        """Read the member by small steps: what stands before its damage is worth having."""
        assert self._new is not None
        self._file.seek(self._start)
        self._held, self._next, self._at = b"", 0, self._start
        self._unpacker, self._step_bytes = self._new(), _FEW_BYTES
        self._known = self.unproven

    def _begins_a_record(self, packed: bytes) -> bool:
        assert self._new is not None
        try:
            begin: bytes = self._new().decompress(packed)
        except _DAMAGE:
            return False
        return begin.startswith(b"WARC/")


def _packing(file: pa.NativeFile, uri: str) -> tuple[Callable[[], Any] | None, bytes]:
    """What makes an unpacker of a member (None: the file is plain), and how members begin."""
    head = file.read(8)
    if head.startswith(_ZSTD_DICTIONARY):
        content = file.read(min(int.from_bytes(head[4:], "little"), _MAX_DICTIONARY_BYTES))
        file.seek(0)  # the frame of the dictionary is passed over like any of its kind
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
        if content.startswith(_ZSTD):  # the dictionary is packed itself
            if zstandard.frame_content_size(content) > _MAX_DICTIONARY_BYTES:
                raise zstandard.ZstdError("it is too large")  # noqa: TRY301
            unpacker = zstandard.ZstdDecompressor()
            content = unpacker.decompress(content, max_output_size=_MAX_DICTIONARY_BYTES)
        dictionary = zstandard.ZstdCompressionDict(content)
        found = zstandard.ZstdDecompressor(dict_data=dictionary)
        found.decompressobj()  # raises if it is no dictionary
    except zstandard.ZstdError as error:
        raise SourceError(
            f"its zstd dictionary cannot be used ({error})",
            where=uri,
            hint="fetch the file again",
        ) from error
    return found.decompressobj
