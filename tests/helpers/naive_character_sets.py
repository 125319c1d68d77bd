"""Decode the characters of a page: the plain implementation, which examines one character at a time.

The character set is that of a byte order mark, the HTTP header, the page's own ``meta`` element, or else a
guess (WHATWG, Encoding and HTML standards; uchardet, by resiliparse 2). Two kinds need no guess: UTF-16 shows
in the zero bytes of the first tag, and ISO-2022 in its escape sequences, although its bytes are valid UTF-8.

Bytes that cannot be decoded become U+FFFD. So do the C1 control characters of legacy character sets, which
no text has: they show that the set is the wrong one. Other sets are tried if more than one character in a
hundred is bad, or any in a legacy set, or if a guess leaves symbols, capitals or two scripts inside words.
"""

import codecs
import re
import unicodedata
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

_MAX_BAD_RATIO: Final = (
    0.01  # chosen here: a few bad bytes are normal in a page, a hundredth is noise
)
_MAX_ODD_RATIO: Final = 0.02  # chosen here: of the characters outside ASCII
_SAMPLE: Final = 4096  # characters outside ASCII that are examined
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Python's codecs for WHATWG labels whose namesake in Python is a smaller character set.
_SUPERSETS: Final = {
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
    "koi8-r": "koi8-u",
}
# Character sets that browsers do not support (any more), by their labels and uchardet's names.
_NOT_IN_BROWSERS: Final = {
    **{name: name for name in ("cp437", "cp850", "cp852", "cp855", "cp949", "mac-cyrillic")},
    "ibm850": "cp850",
    "ibm852": "cp852",
    "uhc": "cp949",
    "x-mac-cyrillic": "mac-cyrillic",
    "hz-gb-2312": "hz",
    "iso-2022-kr": "iso2022_kr",
    "iso2022_kr": "iso2022_kr",
}
# What is tried if a guess looks wrong, most likely first.
_OTHERS: Final = (
    *("cp1252", "cp1250", "cp1251", "cp1254", "cp1253", "cp1257", "iso8859-15", "iso8859-2"),
    *("koi8-u", "cp866", "cp850", "cp852", "mac-roman", "mac-latin2", "mac-cyrillic"),
)
_IN_WORDS: Final = frozenset("’‘ʼʻ′·•‧‐‑–—…\xad\xb7\u0387\u200b\u200c\u200d")
_UTF_16: Final = re.compile(rb"(?:[\t-\r -~]\0){4}|((?:\0[\t-\r -~]){4})")
_OTHER_SCRIPTS: Final = (
    "\u0370",
    "\u06ff",
)  # Greek to Arabic: letters that do not follow Latin ones in a word
_EAST_ASIAN: Final = "\u2e80"  # from here on, punctuation needs no spaces
_C1: Final = re.compile("[\x80-\x9f]")
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


def _guessed_encoding(content: bytes) -> str:
    return _python_name(detect_encoding(content, html5_compatible=False)) or "utf-8"


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


@lru_cache(maxsize=256)
def _python_name(label: str | None) -> str | None:
    """Return Python's name for a declared encoding, by WHATWG's table of labels; None if unknown."""
    if not label:
        return None
    label = label.strip().lower()
    name = map_encoding_to_html5(label, fallback_utf8=False) or _NOT_IN_BROWSERS.get(label)
    return _SUPERSETS.get(name, name) if name else None
