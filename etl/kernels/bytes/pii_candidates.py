"""Where personal data may stand in a text: the few bytes at which it is worth looking closer.

A candidate is the byte at which a match could begin. None is lost that ``etl.text.pii_patterns`` would find;
most are found to be nothing there. One look-up per byte and kind, memory for the candidates alone.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import kernel

EMAIL, IP, IBAN, CARD, PHONE = range(5)

_TRIGGERS: Final = (b"@", b"0123456789:", b"0123456789", b"23456", b"+(0123456789")
"""For each kind the bytes of which every match has one, near its beginning."""

_LEAST_CARD: Final = 13  # digits
_LEAST_PHONE: Final = 9  # digits
_LONGEST: Final = 80  # bytes of so many digits, with as much between them as there may be


def _table(characters: bytes) -> NDArray[np.bool_]:
    """Which bytes are among these: bool (256,)."""
    table = np.zeros(256, np.bool_)
    table[[*characters]] = True
    return table


_DIGITS: Final = b"0123456789"
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IS_LOCAL: Final = _table(_DIGITS + _LETTERS + b"._%+-")  # stands before an '@'
_IS_BETWEEN: Final = _table(
    " /().-\u00a0\u202f\u2011".encode()
)  # stands between digits of a number


def candidates(texts: Texts, kind: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bytes where a match may begin, int64 (m,), and each document's first of them, int64 (n + 1,)."""
    triggers = _table(_TRIGGERS[kind])
    first = np.zeros(len(texts.offsets), np.int64)
    return _candidates(texts.offsets, texts.data, triggers, kind, first), first


@kernel
def _candidates(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    triggers: NDArray[np.bool_],
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
            start = _start(data, begin, at, end, kind)
            if start >= 0:
                if num == len(starts):
                    starts = np.append(starts, np.empty(num, np.int64))
                starts[num] = start
                num += 1
        first[k + 1] = num
    return starts[:num]


@kernel
def _start(data: NDArray[np.uint8], begin: int, at: int, end: int, kind: int) -> int:
    """The byte where a match of a kind may begin that has a trigger at ``at``; -1 if there is none."""
    if kind == EMAIL:
        return _local_part(data, begin, at)
    if kind == IP:
        return _ip(data, begin, at, end)
    if kind == IBAN:
        return _iban(data, begin, at, end)
    if kind == CARD:
        return at if _has_digits(data, at, end, _LEAST_CARD) else -1
    return at if _dials(data, at, end) and _has_digits(data, at, end, _LEAST_PHONE) else -1


@kernel
def _local_part(data: NDArray[np.uint8], begin: int, at: int) -> int:
    """Where the run of characters begins that ends at an '@'; -1 if there is none."""
    start = at
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
        is_latin = 0xC3 <= data[lead] <= 0xCD and start - lead == 2
        if not is_latin and not (data[lead] == 0xE1 and 0xB8 <= data[lead + 1] <= 0xBB):
            break
        start = lead
    return start if start < at else -1


@kernel
def _ip(data: NDArray[np.uint8], begin: int, at: int, end: int) -> int:
    """Where four numbers begin between dots, or six and more between colons or around two; else -1."""
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
    """Two bytes before the first of two digits that follow two capitals; else -1."""
    if at - 2 < begin or at + 1 >= end or not 48 <= data[at + 1] <= 57:
        return -1
    return at - 2 if 65 <= data[at - 1] <= 90 and 65 <= data[at - 2] <= 90 else -1


@kernel
def _has_digits(data: NDArray[np.uint8], at: int, end: int, least: int) -> bool:
    """Whether so many digits follow, with separators at most between them."""
    digits = 0
    for place in range(at + (data[at] == 0x2B), min(at + _LONGEST, end)):
        if 48 <= data[place] <= 57:
            digits += 1
            if digits == least:
                return True
        elif not _IS_BETWEEN[data[place]]:
            return False
    return False


@kernel
def _dials(data: NDArray[np.uint8], at: int, end: int) -> bool:
    """Whether a number begins as those of telephones do."""
    if data[at] in (0x2B, 0x28, 0x30) or at + 4 >= end:  # '+', '(', '0'
        return True
    if data[at] == 0x31 and not 48 <= data[at + 1] <= 57:  # '1' alone
        return True
    return data[at + 3] in (0x20, 0x2D, 0x2E, 0xC2, 0xE2)  # three digits alone
