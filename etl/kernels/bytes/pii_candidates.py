"""Find candidates for personal data: the few bytes of a text at which a match may begin.

Every match of ``etl.text.pii_patterns`` begins at a candidate; most candidates are rejected there. One
look-up per byte and kind; memory for the candidates only.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import allocator, kernel

EMAIL, IP, IBAN, CARD, PHONE = range(5)

_TRIGGERS: Final = (b"@", b"0123456789:", b"0123456789", b"23456", b"+(0123456789")
"""For each kind, bytes of which every match contains one, near its beginning."""

_LEAST_CARD: Final = 13  # digits
_LEAST_PHONE: Final = 9  # digits
_LONGEST: Final = 80  # bytes that so many digits and the separators between them can take


def _table(characters: bytes) -> NDArray[np.bool_]:
    """Return which bytes are among ``characters``: bool (256,)."""
    table = np.zeros(256, np.bool_)
    table[[*characters]] = True
    return table


_DIGITS: Final = b"0123456789"
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IS_LOCAL: Final = _table(_DIGITS + _LETTERS + b"._%+-'")  # in the local part of an e-mail address
_MAX_QUOTED: Final = 64  # bytes between the quotes of a local part (RFC 5321, 4.5.3.1.1)

SPACED, UNSPACED = 1, 2
"""Classes of letters: of scripts with spaces between words, and of the others (Han, Thai, Hangul ...).

In the others, a word before an address is not separated from it. Hangul has spaces, but also such suffixes.
"""

_UNSPACED_RANGES: Final = (
    *((0x0E00, 0x1000), (0x1000, 0x10A0), (0x1100, 0x1200), (0x1780, 0x1800), (0x3005, 0x3008)),
    *((0x3040, 0xD800), (0xF900, 0xFB00), (0xFF66, 0xFFA0), (0x20000, 0x34000)),
)
_SPACED_RANGES: Final = ((0x00C0, 0x0E00), (0x10A0, 0x1100), (0x1200, 0x1780), (0x1800, 0x2000))
_PUNCTUATION: Final = (
    "\u00d7\u00f7\u037e\u0387\u055a\u055b\u055c\u055d\u055e\u055f\u0589\u058a\u05be\u05c0\u05c3\u05f3\u05f4"
    "\u060c\u061b\u061f\u06d4\u0964\u0965\u0e3f\u0e4f\u0e5a\u0e5b\u104a\u104b\u1360\u1361\u1362\u1363\u1364"
    "\u1365\u1366\u1367\u1368\u17d4\u17d5\u17d6\u30fb"
)
"""Punctuation within these ranges that may precede or follow an address without a space."""


def _letters() -> NDArray[np.uint8]:
    """Return the class of each code point, 0 for others: uint8 (0x34000,)."""
    table = np.zeros(0x34000, np.uint8)
    for ranges, letters in ((_SPACED_RANGES, SPACED), (_UNSPACED_RANGES, UNSPACED)):
        for first, end in ranges:
            table[first:end] = letters
    table[[*map(ord, _PUNCTUATION)]] = 0
    table.flags.writeable = False
    return table


LETTERS: Final = _letters()
_IS_SEPARATOR: Final = _table(" /().-\u00a0\u202f\u2011".encode())  # between the digits of a number


class Candidates(NamedTuple):
    """The bytes at which a match may begin; the bytes in document ``k`` begin at ``first[k]``."""

    starts: NDArray[np.int64]  # (m,)
    first: NDArray[np.int64]  # (n + 1,)


def find_candidates(texts: Texts, kind: int) -> Candidates:
    """Return the bytes at which a match of a kind may begin; a byte may occur more than once."""
    triggers = _table(_TRIGGERS[kind])
    first = np.zeros(len(texts.offsets), np.int64)
    starts = _find_candidates(texts.offsets, texts.data, triggers, LETTERS, kind, first)
    return Candidates(starts, first)


@allocator
def _find_candidates(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    triggers: NDArray[np.bool_],
    letters: NDArray[np.uint8],
    kind: int,
    first: NDArray[np.int64],
) -> NDArray[np.int64]:
    starts, num = np.empty(1024, np.int64), 0
    for k in range(len(offsets) - 1):
        begin, end = offsets[k], offsets[k + 1]
        for at in range(begin, end):
            if not triggers[data[at]]:
                continue
            if kind != EMAIL and at > begin and 48 <= data[at] <= 57 and 48 <= data[at - 1] <= 57:
                continue  # inside a number
            start = _start(data, letters, begin, at, end, kind)
            if start >= 0:
                if num == len(starts):
                    starts = np.append(starts, np.empty(num, np.int64))
                starts[num] = start
                num += 1
        first[k + 1] = num
    return starts[:num]


@kernel
def _start(
    data: NDArray[np.uint8],
    letters: NDArray[np.uint8],
    begin: int,
    at: int,
    end: int,
    kind: int,
) -> int:
    """Return where a match with a trigger at ``at`` may begin; -1 if there can be none."""
    if kind == EMAIL:
        return _local_part(data, letters, begin, at)
    if kind == IP:
        return _ip(data, begin, at, end)
    if kind == IBAN:
        return _iban(data, begin, at, end)
    if kind == CARD:
        return at if _has_digits(data, at, end, _LEAST_CARD) else -1
    return at if _may_dial(data, at, end) and _has_digits(data, at, end, _LEAST_PHONE) else -1


@kernel
def _local_part(data: NDArray[np.uint8], letters: NDArray[np.uint8], begin: int, at: int) -> int:
    """Return where the local part of an e-mail address that ends at an '@' begins; -1 if it is empty.

    It begins after a letter of a script without spaces, unless it ends in one.
    """
    if at > begin and data[at - 1] == 0x22:
        return _quoted(data, begin, at - 1)
    start, last = at, 0
    while start > begin:
        byte = data[start - 1]
        if byte < 0x80:
            if not _IS_LOCAL[byte]:
                break
            start -= 1
            continue
        lead = start - 1
        while lead > begin and data[lead] & 0xC0 == 0x80:
            lead -= 1
        point, _ = point_at(data, lead, start)
        # Chinese and Thai have no space before an address, so a letter of such a script ends it on the
        # left, unless the address itself is in that script.
        letter = letters[point] if point < len(letters) else 0
        last = letter if start == at else last
        if letter == 0 or (letter == UNSPACED and last != UNSPACED):
            break
        start = lead
    return start if start < at else -1


@kernel
def _quoted(data: NDArray[np.uint8], begin: int, end: int) -> int:
    """Return where the quoted string begins that ends with the quote at ``end``; -1 for none."""
    for start in range(end - 1, max(begin, end - 1 - _MAX_QUOTED) - 1, -1):
        if data[start] == 0x22 and (start == begin or data[start - 1] != 0x5C):
            return start
        if data[start] < 0x20:
            return -1
    return -1


@kernel
def _ip(data: NDArray[np.uint8], begin: int, at: int, end: int) -> int:
    """Return where an IP address may begin; -1 if there can be none.

    Four numbers with dots between them (IPv4), or colons, six or more or two in a row (IPv6).
    """
    # A trigger is a digit (IPv4) or a colon (IPv6).
    if data[at] != 0x3A:
        start, dots, digits = at, 0, 0
        while at < end and digits < 4:
            if 48 <= data[at] <= 57:
                digits += 1
                if dots == 3:
                    return start
            elif data[at] == 0x2E and digits > 0:
                dots, digits = dots + 1, 0
            else:
                return -1
            at += 1
        return -1
    # The first group of an IPv6 address is before the first colon: up to four hexadecimal digits.
    start, colons, is_double = at, 0, False
    while start > begin and _is_hex(data[start - 1]):
        start -= 1
    if at - start > 4 or (start > begin and data[start - 1] == 0x3A):
        return -1
    while at < end and (data[at] == 0x3A or _is_hex(data[at])):
        if data[at] == 0x3A:
            colons += 1
            is_double |= at + 1 < end and data[at + 1] == 0x3A
        at += 1
    return start if is_double or colons >= 6 else -1


@kernel
def _is_hex(byte: int) -> bool:
    return 48 <= byte <= 57 or 97 <= byte | 0x20 <= 102


@kernel
def _iban(data: NDArray[np.uint8], begin: int, at: int, end: int) -> int:
    """Return where two capitals followed by two digits begin, given the first digit; -1 for none."""
    if at - 2 < begin or at + 1 >= end or not 48 <= data[at + 1] <= 57:
        return -1
    return at - 2 if 65 <= data[at - 1] <= 90 and 65 <= data[at - 2] <= 90 else -1


@kernel
def _has_digits(data: NDArray[np.uint8], at: int, end: int, least: int) -> bool:
    """Return whether at least ``least`` digits follow, with nothing but separators between them."""
    digits = 0
    # A leading plus is not a separator.
    for k in range(at + (data[at] == 0x2B), min(at + _LONGEST, end)):
        if 48 <= data[k] <= 57:
            digits += 1
            if digits == least:
                return True
        elif not _IS_SEPARATOR[data[k]]:
            return False
    return False


@kernel
def _may_dial(data: NDArray[np.uint8], at: int, end: int) -> bool:
    """Return whether a number begins like a telephone number."""
    if data[at] in (0x2B, 0x28, 0x30) or at + 4 >= end:  # '+', '(', '0'
        return True
    if data[at] in (0x31, 0x38) and not 48 <= data[at + 1] <= 57:  # '1' or '8' alone
        return True
    return data[at + 3] in (0x20, 0x2D, 0x2E, 0xC2, 0xE2)  # three digits alone
