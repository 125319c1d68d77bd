"""The content of a plain, gzip or zstd file, member by member, past members that are damaged.

WARC files are many gzip members or zstd frames, one a record as a rule, so that a damaged one need not
cost the others. Costs a tenth of the decompression's own time (330 MB/s a core for gzip).
"""

import zlib
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import zstandard

from etl.errors import SourceError

_READ_BYTES = 1 << 16
_STEP_BYTES = 1 << 10  # of packed bytes at a time: zstd may make 32 MB of them, gzip 1 MB
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # a skippable frame, by the WARC zstd specification 1.0
_MAX_DICTIONARY_BYTES = 16 << 20  # chosen here; trained dictionaries have 100 KB to 1 MB


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


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
        self._held = b""  # read from the file and not looked at
        self._at = 0  # offset of what is held
        self._start = 0  # offset of the member that is being read
        self._unpacker: _Unpacker | None = None
        self._new, self._magic = _packing(file, uri)

    def read(self) -> bytes:
        """The next bytes, 32 MB at most; none at the end of the file, and where it is damaged."""
        while self.damage is None:
            if not self._held:
                self._held = self._file.read(_READ_BYTES)
            if self._new is None:
                return self._taken(len(self._held))
            if not self._held:
                if self._unpacker is not None:
                    self.damage = "the last member is cut short"
                return b""
            if self._unpacker is None:
                if not self._held.strip(b"\0"):  # padding, which gzip itself passes over
                    self._taken(len(self._held))
                    continue
                self._start, self._unpacker, self.unproven = self._at, self._new(), 0
            if found := self._unpacked(self._unpacker):
                return found
        return b""

    def resume(self) -> bool:
        """Go to the next member that begins with a record; False if there is none."""
        self._unpacker, self._held, self.damage, self.unproven = None, b"", None, 0
        self._at = self._start + 1
        self._file.seek(self._at)
        while True:
            place = self._held.find(self._magic)
            if place < 0:
                self._taken(max(len(self._held) - len(self._magic) + 1, 0))
                more = self._file.read(_READ_BYTES)
                if not more:
                    return False
                self._held += more
                continue
            self._taken(place)
            self._held += self._file.read(max(_STEP_BYTES - len(self._held), 0))
            if self._begins_a_record(self._held[:_STEP_BYTES]):
                return True
            self._taken(1)

    def _unpacked(self, unpacker: _Unpacker) -> bytes:
        step = self._held[:_STEP_BYTES]
        try:
            found = unpacker.decompress(step)
        except (zlib.error, zstandard.ZstdError) as error:
            self.damage = f"the member at byte {self._start} is damaged ({error})"
            return b""
        left = 0
        if unpacker.eof:
            left = len(unpacker.unused_data)
            self._unpacker = None
        self.unproven = 0 if unpacker.eof else self.unproven + len(found)
        self._taken(len(step) - left)
        return found

    def _begins_a_record(self, packed: bytes) -> bool:
        assert self._new is not None
        try:
            return self._new().decompress(packed).startswith(b"WARC/")
        except (zlib.error, zstandard.ZstdError):
            return False

    def _taken(self, count: int) -> bytes:
        taken, self._held = self._held[:count], self._held[count:]
        self._at += count
        return taken


def _packing(file: pa.NativeFile, uri: str) -> tuple[Callable[[], _Unpacker] | None, bytes]:
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
    return zlib.decompressobj(wbits=31)


def _with_dictionary(content: bytes, uri: str) -> Callable[[], _Unpacker]:
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
