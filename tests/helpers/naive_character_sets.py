"""Decode the characters of a page: the plain implementation, which examines one character at a time.

The rules are as in ``etl.sources.formats.character_sets``, whose tables and names of character sets it uses.
"""

import re
import unicodedata
from itertools import islice
from typing import Final, NamedTuple

from resiliparse.parse.encoding import detect_encoding

from etl.sources.formats.character_sets import (
    _BOMS,
    _C1,
    _MAX_BAD_RATIO,
    _MAX_ODD_RATIO,
    _OTHERS,
    _UTF_16,
    _guessed_encoding,
    _python_name,
)

_SAMPLE: Final = 4096  # characters outside ASCII that are examined
_IN_WORDS: Final = frozenset("’‘ʼʻ′·•‧‐‑–—…\xad\xb7\u0387\u200b\u200c\u200d")
_OTHER_SCRIPTS: Final = (
    "\u0370",
    "\u06ff",
)  # Greek to Arabic: letters that do not follow Latin ones in a word
_EAST_ASIAN: Final = "\u2e80"  # from here on, punctuation needs no spaces
_OUTSIDE_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class Decoded(NamedTuple):
    """A text, the encoding in which it was decoded, and its number of bad characters (U+FFFD)."""

    text: str
    encoding: str
    bad: int

    @property
    def is_noise(self) -> bool:
        """Whether too many characters are bad for a text."""
        return self.bad > _MAX_BAD_RATIO * len(self.text)


def decode_text(content: bytes, declared: str | None) -> Decoded:
    """Return the text of a page, given the character set that its container declares.

    >>> tuple(decode_text("Grüße".encode("latin-1"), "ISO-8859-1"))
    ('Grüße', 'cp1252', 0)
    >>> tuple(decode_text(b"<meta charset=koi8-r>" + "Да".encode("koi8-r"), None))
    ('<meta charset=koi8-r>Да', 'koi8-u', 0)
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return _decode_as(content.removeprefix(mark), encoding)
    if visible := _visible_encoding(content):
        decoded = _decode_as(content, visible)
        if not decoded.is_noise:
            return decoded
    known = _python_name(declared)
    encoding, is_guess = _undeclared_encoding(content) if known is None else (known, False)
    decoded = _decode_as(content, encoding)
    is_doubtful = decoded.is_noise or (decoded.bad > 0 and encoding != "utf-8")
    if is_doubtful or (is_guess and odd_ratio(decoded.text) > _MAX_ODD_RATIO):
        return _least_odd(content, decoded)
    return decoded


def _visible_encoding(content: bytes) -> str | None:
    """Return the encoding of UTF-16 without a byte order mark, and of ISO-2022; None if it is neither."""
    if match := _UTF_16.match(content):
        return "utf-16-be" if match[1] else "utf-16-le"
    if b"\x1b$" in content:
        guess = _guessed_encoding(content)
        return guess if guess.startswith("iso2022") else None
    return None


def _undeclared_encoding(content: bytes) -> tuple[str, bool]:
    """Return what the page's ``meta`` declares, else UTF-8 if valid, else a guess; and whether it is one."""
    guess = _guessed_encoding(content)
    encoding = _python_name(detect_encoding(content, from_html_meta=True)) or guess
    if encoding not in (guess, "utf-8"):
        return encoding, False
    return (guess, True) if _decode_as(content, "utf-8").bad else ("utf-8", False)


def _decode_as(content: bytes, encoding: str) -> Decoded:
    text = content.decode(encoding, "replace")
    if not encoding.startswith("utf"):  # in UTF-8, C1 controls are in the text itself
        text = _C1.sub("\ufffd", text)
    bad = text.count("\ufffd") if "\ufffd" in text else 0  # a search is faster than a count
    return Decoded(text, encoding, bad)


def _least_odd(content: bytes, first: Decoded) -> Decoded:
    """Return the page in the encoding with the fewest odd characters, if there are hardly any."""
    before = odd_ratio(first.text)
    if first.encoding == "utf-8" and before < 1 / 2:  # it is UTF-8 with damage
        return first
    names = dict.fromkeys((_guessed_encoding(content), *_OTHERS))
    candidates = [first, *(_decode_as(content, name) for name in names if name != first.encoding)]
    best = min(candidates, key=lambda each: odd_ratio(each.text))
    return best if odd_ratio(best.text) <= min(_MAX_ODD_RATIO, before / 2) else first


def odd_ratio(text: str) -> float:
    """Return the share of characters outside ASCII that are bad or odd; only the first are examined."""
    marks = [*islice(_OUTSIDE_ASCII.finditer(text, 1, len(text) - 1), _SAMPLE)]
    odd = sum(_is_odd(text[at - 1], text[at], text[at + 1]) for at in map(re.Match.start, marks))
    return odd / max(len(marks), 1)


def _is_odd(before: str, char: str, after: str) -> bool:
    """Return whether a character outside ASCII is unlikely between two others."""
    if char == "\ufffd":
        return True
    if char in _IN_WORDS or char >= _EAST_ASIAN:
        return False
    if not all(each.isalpha() or not each.isascii() for each in (before, after)):
        return False
    if not char.isalpha():
        return not unicodedata.category(char).startswith("M")
    is_mixed = _OTHER_SCRIPTS[0] <= char <= _OTHER_SCRIPTS[1] and (
        before.isascii() or after.isascii()
    )
    return is_mixed or (before.islower() and char.isupper())
