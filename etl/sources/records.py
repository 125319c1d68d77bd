"""The records of a WARC file (ISO 28500, versions 0.17 to 1.1), past what is damaged.

A record is taken only if what it says of its length is true: behind it comes another record, or the end.
Otherwise it counts as damaged, and the search for the next one begins inside it, so that a wrong
length does not swallow the records that follow.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from etl.sources.members import Members

_MAX_HEADER_BYTES = 1 << 16  # chosen here; those of crawlers have 1 KB
_MAX_VERSION_BYTES = 64
_SHOWN_BYTES = 1000
_MAGIC = b"WARC/"
_BLANKS = re.compile(rb"[\r\n \t\0]*")
_VERSION = re.compile(rb"WARC/\d\.\d+[ \t]*\r*\n")
_HEADER_END = re.compile(rb"\n\r*\n")  # some tools add a carriage return
_FIELD = re.compile(r"\n([^:\n]*):([^\n]*)")
_CONTINUED = re.compile(r"\r?\n[ \t]+")


class Record(NamedTuple):
    """One record, or a stretch of the file that is none: then ``problem`` is a reason's name."""

    header: str = ""  # as it stands; of a stretch that is no record its beginning
    fields: Mapping[str, str] = MappingProxyType({})  # of the header, by name in lower case
    block: bytes = b""
    problem: str | None = None  # damaged | too_large
    error: str = ""  # what is wrong, in words


def records(content: Members, *, max_bytes: int) -> Iterator[Record]:
    """All records in their order; one longer than ``max_bytes`` comes without its block."""
    return _Reader(content, max_bytes).records()


class _Reader:
    def __init__(self, content: Members, max_bytes: int) -> None:
        self._content = content
        self._max = max_bytes
        self._held = bytearray()
        self._told = False  # whether a record has said already that the content is damaged here

    def records(self) -> Iterator[Record]:
        while True:
            self._pass_blanks()
            if self._held:
                yield self._record()
            elif self._content.damage is None:
                return
            else:
                if not self._told:
                    yield Record(problem="damaged", error=self._content.damage)
                self._told = False
                if not self._content.resume():
                    return

    def _more(self) -> bool:
        found = self._content.read()
        self._held += found
        return bool(found)

    def _pass_blanks(self) -> None:
        while True:
            del self._held[: _blanks_end(self._held, 0)]
            if self._held or not self._more():
                return

    def _record(self) -> Record:
        end = self._header_end()
        if end is None:
            return self._damaged(Record(header=_shown(self._held), error="no record begins here"))
        header = self._held[:end].decode("utf-8", "replace").strip()
        record = Record(header=header, fields=_fields(header))
        length = record.fields.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 19):
            return self._damaged(record, f"its content length is {length!r}")
        if int(length) > self._max:
            return self._too_large(record, end, int(length))
        return self._whole(record, end, int(length))

    def _header_end(self) -> int | None:
        """Where the header that begins here ends; None if none does."""
        while True:
            found = _HEADER_END.search(self._held, 0, _MAX_HEADER_BYTES)
            if found and _VERSION.match(self._held):
                return found.end()
            if found or len(self._held) >= _MAX_HEADER_BYTES or not self._more():
                return None

    def _whole(self, record: Record, start: int, length: int) -> Record:
        end = start + length
        while len(self._held) < end:
            if not self._more():
                found = f"{len(self._held) - start} of {length} bytes are there"
                why = self._content.damage
                return self._damaged(record, f"{found}; {why}" if why else found)
        if not self._ends_at(end):
            why = self._content.damage or "what follows it is no record: its length is wrong"
            return self._damaged(record, why)
        block = bytes(memoryview(self._held)[start:end])
        del self._held[:end]
        return record._replace(block=block)

    def _ends_at(self, end: int) -> bool:
        """Whether a record, or nothing, follows there: damage too, unless it is that of its own member."""
        while True:
            start = _blanks_end(self._held, end)
            if _VERSION.match(self._held, start):
                return True
            rest = self._held[start : start + _MAX_VERSION_BYTES]
            if len(rest) == _MAX_VERSION_BYTES:
                return False
            if not self._more():  # the next header may be cut short in its first line
                broken = self._content.unproven if self._content.damage else 0
                return broken <= len(self._held) - end and _MAGIC.startswith(rest[: len(_MAGIC)])

    def _too_large(self, record: Record, start: int, length: int) -> Record:
        """Pass over the block without holding it; if the file ends in it, its length may be wrong."""
        passed, end = 0, start + length
        while len(self._held) < end - passed:
            passed += len(self._held)
            self._held.clear()
            if not self._more():
                return self._damaged(record, f"{passed - start} of {length} bytes are there")
        del self._held[: end - passed]
        what = f"a record of {length} bytes, where {self._max} are the limit"
        return record._replace(problem="too_large", error=what)

    def _damaged(self, record: Record, error: str = "") -> Record:
        """Go to the next record's beginning; what is damaged ends the stream by itself."""
        place = 1
        while True:
            found = _next_record(self._held, place)
            if found is not None:
                del self._held[:found]
                break
            place = max(1, len(self._held) - _MAX_VERSION_BYTES)
            if place > _MAX_HEADER_BYTES:
                del self._held[: place - 1]
                place = 1
            if not self._more():
                self._held.clear()
                self._told = self._content.damage is not None
                break
        return record._replace(problem="damaged", error=error or record.error)


def _blanks_end(held: bytearray, start: int) -> int:
    found = _BLANKS.match(held, start)
    assert found is not None
    return found.end()


def _next_record(held: bytearray, start: int) -> int | None:
    for found in _VERSION.finditer(held, start):
        if held[found.start() - 1] == ord("\n"):
            return found.start()
    return None


def _fields(header: str) -> dict[str, str]:
    """The named fields; of one that stands twice the first."""
    if "\n " in header or "\n\t" in header:
        header = _CONTINUED.sub(" ", header)
    fields = reversed(_FIELD.findall(header))
    return {name.strip().lower(): value.strip() for name, value in fields}


def _shown(held: bytearray) -> str:
    return bytes(held[:_SHOWN_BYTES]).decode("utf-8", "replace")
