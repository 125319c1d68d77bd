"""Elements of a JSON array that is the content of a whole file, in bounded memory.

An element is parsed where it starts. If that fails, its end is searched: the next comma outside its brackets
and quotes. Thus a bad element costs only itself, unless its brackets or quotes do not match. A line feed ends
a string, since a string must not contain any.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from etl.sources.formats.byte_lines import Damage
from etl.sources.records import LONG_RECORD_CHARS, find_excess

_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:[]{\[\"\d-]|true|false|null|\Z)")
_MARK = re.compile(r'[]["{},\n]|\\.', re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*")
_BLANK_BYTES = b"\xef\xbb\xbf \t\r\n"  # with a byte order mark
_SNIFFED_BYTES = 1 << 10
_MAX_RAW_CHARS = 4000
_OPENING = {"}": b"{", "]": b"["}
_decode = json.JSONDecoder().raw_decode


class Element(NamedTuple):
    """An element as it is written, with its value or the reason why it has none."""

    raw: str
    value: Any = None
    problem: str | None = None  # malformed | too_large
    error: str = ""


def may_start_array(content: bytes) -> bool:
    """Return whether a file that starts with these bytes may be an array."""
    return content[:_SNIFFED_BYTES].lstrip(_BLANK_BYTES)[:1] in (b"[", b"")


def starts_array(content: bytes) -> bool:
    r"""Return whether a file that starts with these bytes is an array, not lines of which the first is one.

    >>> [starts_array(content) for content in (b'[{"a": 1},', b"[\n", b'[1]\n{"a": 1}', b'{"a": [1]}')]
    [True, True, False, False]
    """
    if _START.match(content) is None:
        return False
    line, _, more = content.lstrip(_BLANK_BYTES).partition(b"\n")
    return not (line.rstrip().endswith(b"]") and more.strip())


def read_elements(
    chunks: Iterable[bytes | Damage], *, max_bytes: int
) -> Iterator[Element | Damage]:
    """Yield the elements of an array in order; an element that cannot be read has a problem.

    Damage ends the array. What follows the array, and a missing end, count as a malformed element.
    """
    text = _Text(chunks)
    text.skip("[")
    while text.peek() not in ("]", ""):
        element = _read_element(text, max_bytes)
        if text.damage is not None and text.peek() == "":
            yield text.damage._replace(raw=element.raw[:_MAX_RAW_CHARS])
            return
        yield element
        text.skip(",")
    has_end = text.skip("]")
    if text.peek():
        error = "content follows the end of the array"
        yield Element(text.rest(), problem="malformed", error=error)
    elif text.damage is not None:
        yield text.damage
    elif not has_end:
        yield Element("", problem="malformed", error="the array has no end")


class _Text:
    """The text of a file from the current position on, of which more is read when needed."""

    def __init__(self, chunks: Iterable[bytes | Damage]) -> None:
        self._chunks = iter(chunks)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.damage: Damage | None = None
        self.is_complete = False  # nothing is left to read
        self.text, self.position = "", 0
        self.fill()
        self.text = self.text.removeprefix("\ufeff")

    def fill(self) -> None:
        """Read at least as much as there is; so a long element is copied a few times only."""
        parts = [self.text[self.position :]]
        missing = max(len(parts[0]), 1)
        # A backslash and the character after it stay together.
        while (missing > 0 or parts[-1].endswith("\\")) and not self.is_complete:
            chunk = next(self._chunks, None)
            if chunk is None or isinstance(chunk, Damage):
                self.damage, self.is_complete = chunk, True
                chunk = b""
            parts.append(self._decoder.decode(chunk, self.is_complete))
            missing -= len(parts[-1])
        self.text, self.position = "".join(parts), 0

    def rest(self) -> str:
        """Return the start of what has not been parsed."""
        while len(self.text) - self.position < _MAX_RAW_CHARS and not self.is_complete:
            self.fill()
        return self.text[self.position : self.position + _MAX_RAW_CHARS]

    def peek(self) -> str:
        """Return the next character that is not blank; an empty string at the end."""
        while True:
            self.position = _end(_BLANKS, self.text, self.position)
            if self.position < len(self.text) or self.is_complete:
                return self.text[self.position : self.position + 1]
            self.fill()

    def skip(self, mark: str) -> bool:
        """Skip a character if it is next; return whether it was."""
        is_next = self.peek() == mark
        self.position += is_next
        return is_next


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    assert match is not None
    return match.end()


def _read_element(text: _Text, max_bytes: int) -> Element:
    # Little text cannot take much memory when it is parsed.
    while len(text.text) - text.position <= LONG_RECORD_CHARS:
        try:
            value, end = _decode(text.text, text.position)
        except (ValueError, RecursionError):
            end = len(text.text)
        after = _end(_BLANKS, text.text, end)
        if text.text[after : after + 1] in (",", "]") and after < len(text.text):
            raw, text.position = text.text[text.position : end], after
            return _check(raw, value, max_bytes)
        if after < len(text.text) or text.is_complete:
            break
        text.fill()
    raw, is_long = _skip_element(text, max_bytes)
    if is_long:
        return Element(
            raw, problem="too_large", error=f"the record is larger than {max_bytes} bytes"
        )
    if (excess := find_excess(raw, max_bytes)) is not None:
        return Element(raw, problem="too_large", error=excess)
    try:
        return Element(raw, json.loads(raw))
    except (ValueError, RecursionError) as error:
        return Element(raw, problem="malformed", error=str(error))


def _check(raw: str, value: Any, max_bytes: int) -> Element:
    excess = find_excess(raw, max_bytes)
    return Element(raw, value) if excess is None else Element(raw, None, "too_large", excess)


def _skip_element(text: _Text, max_bytes: int) -> tuple[str, bool]:
    """Skip to the comma or bracket after an element; return it, or its start and that it is too long."""
    parts: list[str] = []
    size, open_brackets, in_string = 0, bytearray(), False
    while True:
        end = None
        for match in _MARK.finditer(text.text, text.position):
            mark = match[0]
            # Brackets and commas inside strings do not count. A line feed ends a string, since JSON has
            # none in it: a missing quote does not swallow the file.
            if in_string or mark == '"':
                in_string = mark not in ('"', "\n") if in_string else True
            elif mark in "[{":
                open_brackets += mark.encode()
            # A closing bracket also closes brackets that are still open inside: after damage, the
            # element still ends.
            elif mark in _OPENING and (index := open_brackets.rfind(_OPENING[mark])) >= 0:
                del open_brackets[index:]
            elif mark == "]" or (mark == "," and not open_brackets):
                end = match.start()
                break
        part = text.text[text.position : end]
        parts.append(part[: max(max_bytes - size, 0)])
        size += len(part)
        text.position = len(text.text) if end is None else end
        if end is not None or text.is_complete:
            return "".join(parts), size > max_bytes
        text.fill()
