"""Decode the characters of a page as a browser does, and notice when the result cannot be right.

The character set is that of a byte order mark, the HTTP header, the page's own ``meta`` element, or else a
guess (WHATWG, Encoding and HTML standards; uchardet, by resiliparse 2). Two kinds need no guess: UTF-16 shows
in the zero bytes of the first tag, and ISO-2022 in its escape sequences, although its bytes are valid UTF-8.

Bytes that cannot be decoded become U+FFFD. So do the C1 control characters of legacy character sets, which
no text has: they show that the set is the wrong one. Other sets are tried if more than one character in a
hundred is bad, or any in a legacy set, or if a guess leaves symbols, capitals or two scripts inside words.
"""

import codecs
import re
import struct
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from etl.sources.formats.odd_characters import odd_ratio, sample_bytes, sampled_odd_ratio

_MAX_BAD_RATIO: Final = (
    0.01  # chosen here: a few bad bytes are normal in a page, a hundredth is noise
)
_MAX_ODD_RATIO: Final = 0.02  # chosen here: of the characters outside ASCII
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
_UTF_16: Final = re.compile(rb"(?:[\t-\r -~]\0){4}|((?:\0[\t-\r -~]){4})")
_C1: Final = re.compile("[\x80-\x9f]")


class Decoded(NamedTuple):
    """A text, the encoding in which it was decoded, and its number of bad characters (U+FFFD)."""

    encoding: str
    bad: int
    content: bytes
    characters: str | None = None  # None if the content is the text in UTF-8

    @property
    def text(self) -> str:
        """The text."""
        return self.content.decode() if self.characters is None else self.characters

    @property
    def utf8(self) -> bytes:
        """The text in UTF-8."""
        if self.characters is None:
            return self.content
        return self.characters.encode("utf-8", "replace")

    @property
    def is_noise(self) -> bool:
        """Whether too many characters are bad for a text."""
        return self.bad > 0 and self.bad > _MAX_BAD_RATIO * len(self.text)

    def starts_with_binary_data(self, length: int) -> bool:
        """Return whether one of the first characters is NUL."""
        if self.characters is not None:
            return "\0" in self.characters[:length]
        head = self.content[: 4 * length]  # at most four bytes a character
        return b"\0" in head and "\0" in head.decode("utf-8", "ignore")[:length]


def decode_text(content: bytes, declared: str | None) -> Decoded:
    """Return the text of a page, given the character set that its container declares.

    >>> page = decode_text("Grüße".encode("latin-1"), "ISO-8859-1")
    >>> page.text, page.encoding, page.bad
    ('Grüße', 'cp1252', 0)
    >>> decode_text(b"<meta charset=koi8-r>" + "Да".encode("koi8-r"), None).text
    '<meta charset=koi8-r>Да'
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return _decode_as(content.removeprefix(mark), encoding)
    if visible := _visible_encoding(content):
        decoded = _decode_as(content, visible)
        if not decoded.is_noise:
            return decoded
    known = _python_name(declared)
    decoded, is_guess = (
        _decode_undeclared(content) if known is None else (_decode_as(content, known), False)
    )
    is_doubtful = decoded.is_noise or (decoded.bad > 0 and decoded.encoding != "utf-8")
    if is_doubtful or (is_guess and odd_ratio(decoded.text) > _MAX_ODD_RATIO):
        return _least_odd(content, decoded)
    return decoded


def _visible_encoding(content: bytes) -> str | None:
    """Return the encoding of UTF-16 without a byte order mark, and of ISO-2022; None if it is neither."""
    if match := _UTF_16.match(content):
        return "utf-16-be" if match[1] else "utf-16-le"
    if b"\x1b" in content and b"\x1b$" in content:  # a byte is found faster than two
        guess = _guessed_encoding(content)
        return guess if guess.startswith("iso2022") else None
    return None


def _decode_undeclared(content: bytes) -> tuple[Decoded, bool]:
    """Decode by the page's ``meta``, as UTF-8 if valid, or by a guess; also return whether it is a guess."""
    declared = _python_name(detect_encoding(content, from_html_meta=True))
    is_utf8 = _is_clean_utf8(content)
    # A guess takes 0.2 ms for 150 kB, so it is made only where it decides.
    if declared == "utf-8" and is_utf8:
        return Decoded("utf-8", 0, content), False
    guess = _guessed_encoding(content)
    if declared not in (None, guess, "utf-8"):
        return _decode_as(content, declared), False
    return (Decoded("utf-8", 0, content), False) if is_utf8 else (_decode_as(content, guess), True)


def _guessed_encoding(content: bytes) -> str:
    return _python_name(detect_encoding(content, html5_compatible=False)) or "utf-8"


def _decode_as(content: bytes, encoding: str) -> Decoded:
    if encoding == "utf-8" and _is_clean_utf8(content):
        return Decoded(encoding, 0, content)
    text = content.decode(encoding, "replace")
    if not encoding.startswith("utf"):  # in UTF-8, C1 controls are in the text itself
        text = _C1.sub("\ufffd", text)
    bad = text.count("\ufffd") if "\ufffd" in text else 0  # a search is faster than a count
    return Decoded(encoding, bad, content, text)


def _is_clean_utf8(content: bytes) -> bool:
    """Return whether content is valid UTF-8 without U+FFFD (150 kB take 20 to 40 us, and 70 to decode)."""
    if content.isascii():
        return True
    if b"\xef" in content:  # a search for all three bytes of U+FFFD takes 100 us
        data = np.frombuffer(content, np.uint8)
        at = np.flatnonzero(data[:-2] == 0xEF)
        if bool(((data[at + 1] == 0xBF) & (data[at + 2] == 0xBD)).any()):
            return False
    buffers = [None, pa.py_buffer(struct.pack("<qq", 0, len(content))), pa.py_buffer(content)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _least_odd(content: bytes, first: Decoded) -> Decoded:
    """Return the page in the encoding with the fewest odd characters, if there are hardly any."""
    before = odd_ratio(first.text)
    if first.encoding == "utf-8" and before < 1 / 2:  # it is UTF-8 with damage
        return first
    guess, sample = _guessed_encoding(content), sample_bytes(content)
    # Of encodings with one byte a character, only what is examined is decoded.
    ratios = {first.encoding: before}
    if guess not in (first.encoding, *_OTHERS):
        ratios[guess] = odd_ratio(_decode_as(content, guess).text)
    for name in dict.fromkeys((guess, *_OTHERS)):
        if name not in ratios:
            ratios[name] = sampled_odd_ratio(_decode_as(sample, name).text)
    best = min(ratios, key=lambda name: ratios[name])
    if best == first.encoding or ratios[best] > min(_MAX_ODD_RATIO, before / 2):
        return first
    return _decode_as(content, best)


@lru_cache(maxsize=256)
def _python_name(label: str | None) -> str | None:
    """Return Python's name for a declared encoding, by WHATWG's table of labels; None if unknown."""
    if not label:
        return None
    label = label.strip().lower()
    name = map_encoding_to_html5(label, fallback_utf8=False) or _NOT_IN_BROWSERS.get(label)
    return _SUPERSETS.get(name, name) if name else None
