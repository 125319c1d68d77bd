"""Make visible what a terminal or a page would obey or hide: controls, direction, zero width.

Names and texts come from the input. Printed raw, they could set the title of a terminal, delete lines, or
reverse the order of what follows. Streams and pages escape the characters of ``HIDDEN`` when they are
written, so no other code has to.
"""

import re
import sys
from typing import Final, TextIO, cast

HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u2028\u2029"  # separators of lines and paragraphs
    "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # direction, zero width, byte order mark
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # others that have no width
    "\ufe00-\ufe0f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff\ufdd0-\ufdef\ufff0-\ufffb\ufffe\uffff"  # no characters: surrogates, noncharacters
    + "".join(f"{chr(plane << 16 | 0xFFFE)}-{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
)
"""Characters that are escaped: controls, and Default_Ignorable_Code_Point of Unicode 16; a part of a regular
expression. Tab and line feed are not, since texts have lines."""

_HIDDEN: Final = re.compile(f"[{HIDDEN}]")
_NOT_OF_A_LINE: Final = re.compile(f"[\t\n{HIDDEN}]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_RESET: Final = "\x1b[0m"
_SHORT: Final = {"\t": "\\t", "\n": "\\n"}


def escape_hidden(text: str) -> str:
    r"""Return a text with hidden characters as in JSON, so that a JSON text keeps its meaning.

    >>> print(escape_hidden("\x1b]0;title\x07 \u202eabc\n\U000e0041"))
    \u001b]0;title\u0007 \u202eabc
    \udb40\udc41
    """
    return _HIDDEN.sub(_escape, text)


def one_line(text: str) -> str:
    r"""Return a text as one line, with tabs, line ends and hidden characters escaped.

    >>> print(one_line("s3://raw/two\nlines é.jsonl"))
    s3://raw/two\nlines é.jsonl
    """
    return _NOT_OF_A_LINE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class VisibleStream:
    """A text stream that escapes the hidden characters of all text but the codes of the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @classmethod
    def of(cls, stream: "TextIO | VisibleStream") -> "VisibleStream":
        """Return a stream as it is if it escapes already, else a stream that escapes."""
        return stream if isinstance(stream, VisibleStream) else cls(stream)

    def write(self, text: str) -> int:
        """Write a text, escaped; also characters that the encoding of the stream lacks."""
        if text == _RESET:  # colorama, which numba uses, writes it when the program ends
            return self._stream.write(text)
        escaped = escape_hidden(text)
        if not self.can_write(escaped):
            escaped = _NOT_ASCII.sub(self._escape_missing, escaped)
        return self._stream.write(escaped)

    def can_write(self, text: str) -> bool:
        """Return whether the encoding of the stream has all characters of a text."""
        try:
            text.encode(self._stream.encoding or "utf-8")  # a buffer in memory has none
        except UnicodeEncodeError:
            return False
        return True

    def _escape_missing(self, match: re.Match[str]) -> str:
        return match[0] if self.can_write(match[0]) else _escape(match)

    def write_code(self, code: str) -> None:
        """Write a control sequence of this program, such as a color."""
        self._stream.write(code)

    def flush(self) -> None:
        """Write what is buffered."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def __getattr__(self, name: str) -> object:
        if name == "buffer":  # through which a text would not be escaped
            raise AttributeError(name)
        return getattr(self._stream, name)


def escape_output() -> None:
    """Escape all that this process prints from now on, whatever prints it."""
    sys.stdout = cast("TextIO", VisibleStream.of(sys.stdout))
    sys.stderr = cast("TextIO", VisibleStream.of(sys.stderr))
