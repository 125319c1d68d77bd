"""Records of a WARC file (ISO 28500, versions 0.17 to 1.1), skipping damaged stretches.

A record is accepted only if its content length is correct: another record, a gzip member or zstd frame, or
the end of the file follows.
Otherwise it counts as damaged, and the search for the next record starts inside it, so a wrong length does
not swallow the records that follow.

A record that is too large is skipped to its end, or to a gzip member or zstd frame that starts with a record,
and read again from its start if its length is wrong.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from types import MappingProxyType
from typing import NamedTuple

from etl.sources.layers.members import Members

_MAX_HEADER_BYTES = 1 << 16  # chosen here; headers written by crawlers have 1 KB
_MAX_VERSION_BYTES = 64
_MAX_REWINDS = 16  # chosen here: limits how often a file is read again, however damaged it is
_EXCERPT_BYTES = 1000
_MAGIC = b"WARC/"
_BLANKS = re.compile(rb"[\r\n \t\0]*")
_VERSION = re.compile(rb"WARC/\d\.\d+[ \t]*\r*\n")
_START = re.compile(rb"WARC/\d\.\d+[ \t]*\r*\n(?=[^\n:]{1,100}:)")  # and the name of a field
_MAX_START_BYTES = 256  # at most, with spaces after the version
_FIELD_NAME = re.compile(rb"(?:WARC|Content)-\w+", re.IGNORECASE)
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:[ \t]*\d", re.IGNORECASE)
_HEADER_END = re.compile(rb"\n\r*\n")  # some tools add a carriage return
_FIELD = re.compile(r"\n([^:\n]*):([^\n]*)")
_CONTINUED = re.compile(r"\r?\n[ \t]+")


class Record(NamedTuple):
    """A record, or a damaged stretch of the file; ``problem`` is the reason for a missing block."""

    header: str = ""  # as written; of a stretch without a header, its first bytes
    fields: Mapping[str, str] = MappingProxyType({})  # of the header, by lower-case name
    block: bytes = b""
    problem: str | None = None  # damaged | too_large
    error: str = ""  # the problem in words
    offset: int = 0  # the byte of the file at which the record, or its compressed member, starts


def read_records(content: Members, *, max_bytes: int) -> Iterator[Record]:
    """Yield all records in order; one longer than ``max_bytes`` has no block."""
    return _Reader(content, max_bytes).records()


class _Reader:
    def __init__(self, content: Members, max_bytes: int) -> None:
        self._content = content
        self._max = max_bytes
        self._buffer = bytearray()
        self._rewinds = 0
        self._damage_reported = False  # whether a record has reported the current damage

    def records(self) -> Iterator[Record]:
        while True:
            self._skip_blanks()
            if self._buffer:
                yield self._read_record()
            elif self._content.damage is None:
                return
            else:
                if not self._damage_reported:
                    offset = self._content.file_offset(self._content.offset)
                    yield Record(problem="damaged", error=self._content.damage, offset=offset)
                self._damage_reported = False
                if not self._content.resume():
                    return

    def _read_more(self) -> bool:
        more = self._content.read()
        self._buffer += more
        return bool(more)

    def _skip_blanks(self) -> None:
        while True:
            del self._buffer[: _blanks_end(self._buffer, 0)]
            if self._buffer or not self._read_more():
                return

    def _read_record(self) -> Record:
        begin = self._content.offset - len(self._buffer)
        self._content.forget(begin)
        offset = self._content.file_offset(begin)
        end = self._header_end()
        if end is None:
            error = "no record starts here"
            return self._skip_damage(
                Record(header=_excerpt(self._buffer), error=error, offset=offset)
            )
        header = self._buffer[:end].decode("utf-8", "surrogateescape").strip()
        record = Record(header=header, fields=_fields(header), offset=offset)
        length = record.fields.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 19):
            return self._skip_damage(record, f"the content length {length!r} is not a valid number")
        if int(length) > self._max:
            return self._skip_block(record, end, int(length))
        return self._read_block(record, end, int(length))

    def _header_end(self) -> int | None:
        """Return the end of the header that starts here; None if no header starts here.

        A header does not contain the first line of another one.
        """
        while True:
            # Read until the blank line that ends a header: no longer than a header may be.
            match = _HEADER_END.search(self._buffer, 0, _MAX_HEADER_BYTES)
            if match and _VERSION.match(self._buffer):
                return match.end() if self._buffer.find(b"\nWARC/", 0, match.end()) < 0 else None
            if match or len(self._buffer) >= _MAX_HEADER_BYTES or not self._read_more():
                return None

    def _read_block(self, record: Record, start: int, length: int) -> Record:
        end = start + length
        while len(self._buffer) < end:
            if not self._read_more():
                error = _missing(len(self._buffer) - start, length)
                damage = self._content.damage
                return self._skip_damage(record, f"{error}; {damage}" if damage else error)
        if not self._ends_at(end):
            damage = self._content.damage
            return self._skip_damage(record, damage or "no record follows: the length is wrong")
        block = bytes(memoryview(self._buffer)[start:end])
        del self._buffer[:end]
        return Record(record.header, record.fields, block, offset=record.offset)

    def _ends_at(self, end: int) -> bool:
        """Return whether a record, a member, many blanks or the end of the content follows ``end``.

        Damage counts as the end of the content, unless it is in the record's own member.
        """
        while True:
            start = _blanks_end(self._buffer, end)
            if _VERSION.match(self._buffer, start) or start - end > _MAX_HEADER_BYTES:
                return True
            first = self._content.offset - len(self._buffer)
            if self._content.starts_member(first + end, first + start):
                return True
            rest = self._buffer[start : start + _MAX_VERSION_BYTES]
            if len(rest) == _MAX_VERSION_BYTES:
                return False
            if not self._read_more():  # the next header may be truncated in its first line
                unverified_bytes = self._content.unverified_bytes if self._content.damage else 0
                return unverified_bytes <= len(self._buffer) - end and _MAGIC.startswith(
                    rest[: len(_MAGIC)]
                )

    def _skip_block(self, record: Record, start: int, length: int) -> Record:
        """Skip a block that is too large; search in it for the next record if its length is wrong."""
        begin = self._content.offset - len(self._buffer) + start
        end = begin + length
        error = f"the record has {length} bytes, but the limit is {self._max}"
        # A wrong length may hide thousands of records: look at what is behind the block, and come back
        # if that is not a record. Each look costs reading, so their number is limited.
        if self._rewinds == _MAX_REWINDS or not self._content.can_rewind(begin - 1):
            return self._skip_damage(record, error)
        reached = self._content.offset
        if reached < end:
            self._buffer[:] = self._content.skip_to(end, stop=_MAGIC)
            reached = self._content.offset - len(self._buffer)
        else:
            del self._buffer[: start + length]
            reached = end
        if reached == end and self._ends_at(0):
            return record._replace(problem="too_large", error=error)
        if reached < end:
            error = _missing(reached - begin, length)
        else:
            error = self._content.damage or "no record follows: the length is wrong"
        self._rewinds += 1
        self._buffer.clear()
        self._content.rewind(begin - 1)  # to the line feed at the end of the header
        return self._skip_damage(record, error)

    def _skip_damage(self, record: Record, error: str = "") -> Record:
        """Skip to the start of the next record, or to the end of the stream or its next damage."""
        start = 1
        while True:
            found, start = self._find_record(start)
            if found is not None:
                del self._buffer[:found]
                break
            if start > _MAX_HEADER_BYTES:
                del self._buffer[: start - 1]
                start = 1
            if not self._read_more():
                self._buffer.clear()
                self._damage_reported = self._content.damage is not None
                break
        return record._replace(problem="damaged", error=error or record.error)

    def _find_record(self, start: int) -> tuple[int | None, int]:
        """Return where a record starts in the buffer, and from where to search when it has more bytes.

        Before the next start of a record, its header must end, and have a length. So each byte is searched
        about once, and repeated first lines or headers are one damaged stretch.
        """
        size = len(self._buffer)
        starts = (
            match.start()
            for match in _START.finditer(self._buffer, start)
            if self._may_start(match.start(), match.end())
        )
        for index, next_start in pairwise(chain(starts, [size])):
            end = min(next_start, index + _MAX_HEADER_BYTES)
            if header_end := _HEADER_END.search(self._buffer, index, end):
                if _LENGTH.search(self._buffer, index, header_end.end()):
                    return index, index
                continue
            if end == size:  # it may end in what follows
                return None, index
        return None, max(1, size - _MAX_START_BYTES)

    def _may_start(self, index: int, end: int) -> bool:
        """Return whether a first line is after a line feed, or starts a member, or a field follows it."""
        offset = self._content.offset - len(self._buffer) + index
        return (
            self._buffer[index - 1] == ord("\n")
            or _FIELD_NAME.match(self._buffer, end) is not None
            or self._content.starts_member(offset, offset)
        )


def _missing(present: int, length: int) -> str:
    return f"only {present} of {length} bytes are present"


def _blanks_end(content: bytearray, start: int) -> int:
    match = _BLANKS.match(content, start)
    assert match is not None
    return match.end()


def _fields(header: str) -> dict[str, str]:
    """Return the header's fields by name; the first value of a repeated field."""
    if "\n " in header or "\n\t" in header:
        header = _CONTINUED.sub(" ", header)
    fields = reversed(_FIELD.findall(header))
    return {name.strip().lower(): value.strip() for name, value in fields}


def _excerpt(content: bytearray) -> str:
    return bytes(content[:_EXCERPT_BYTES]).decode("utf-8", "replace")
