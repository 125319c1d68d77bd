"""Patterns and checks for e-mail and IP addresses, IBANs, card and phone numbers.

Each kind has a pattern over UTF-8 and a check for properties that a pattern cannot express. Patterns also
test the characters around a match: nothing matches inside a word or a longer number, and replacing a match
creates no new matches in the remaining text.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_network
from typing import Final, Literal, NamedTuple

import numpy as np

from etl.kernels.bytes import pii_candidates
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts

Kind = Literal["email", "ip", "iban", "card", "phone"]
Span = tuple[int, int]

_LETTER = rb"(?:[A-Za-z0-9]|[\xc3-\xcd][\x80-\xbf]|\xe1[\xb8-\xbb][\x80-\xbf])"  # Latin or a mark
_EMAIL: Final = re.compile(
    rb"""[.%%+-]* ( (?:%(letter)s|_) (?:%(letter)s|[._%%+-])* (?<!\.)
    @ (?! \dx\. ) (?: %(letter)s (?: (?:%(letter)s|-)* %(letter)s )? \. )+ [A-Za-z]{2,63} ) (?!\w)"""
    % {b"letter": _LETTER},
    re.VERBOSE,
)
"""Local parts as in RFC 5322 without quotes, comments and rare symbols; domains of two or more labels.

``icon@2x.png`` does not match: it is an image name.
"""

_OCTETS = rb"%(octet)s (?:\.%(octet)s){3}" % {b"octet": rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"}
_IPV4: Final = re.compile(rb"(?<![\w.]) (?<!::) %s (?!\.?\w) (?!-[A-Za-z])" % _OCTETS, re.VERBOSE)
_MIN_LARGEST_OCTET: Final = 32
"""An address must have a number of at least this; others are read as versions or sections (1.2.3.4).

Chosen here: one address in 4,096 has no such number. In 570 MB of German law and software manuals, 5,450
strings have the format and 6 % of them such a number; the others are sections, versions and object
identifiers.
"""

_IPV6: Final = re.compile(
    rb"""(?<![\w:.]) ( (?:[0-9A-Fa-f]{0,4}:){2,7} (?: %s | [0-9A-Fa-f]{1,4} | (?<=::) ) )
    (?! \w | \.\w | :\S )"""
    % _OCTETS,
    re.VERBOSE,
)
_RESERVED: Final = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("::/3", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "4000::/2", "8000::/1"),
    )
)
"""Private, documentation, multicast and unassigned addresses.

Sources: IANA's registries of special-purpose addresses (RFC 6890) and of IPv6, where only 2000::/3 is
assigned.
"""

_SPACE = rb"(?:[ ]|\xc2\xa0|\xe2\x80\xaf)"  # includes the no-break spaces U+00A0 and U+202F
_GAP = rb"(?:[ ./-]|\xc2\xa0|\xe2\x80[\xaf\x91])"  # includes the no-break hyphen U+2011
_ALONE = rb"(?<![\w.+\#/=@-]) (?<!\d[ :]) (?<!\d\xc2\xa0) (?<!\d\xe2\x80[\xaf\x91])"
_END = rb"(?![\w@]) (?! %s \d) (?!:\d) (?!\.\w)" % _GAP

_IBAN: Final = re.compile(rb"(?<![\w.-]) (?<!::) [A-Z]{2} \d\d", re.VERBOSE)
_IBAN_CHARS: Final = {
    country: int(chars)
    for country, chars in re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 "
        "DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 "
        "IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 "
        "MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 "
        "SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30",
    )
}
"""The length of each country's account numbers (ISO 13616, SWIFT's IBAN registry)."""

_CARD: Final = re.compile(
    rb"""%s (?: \d{13,19} | \d{4} ([ -]) (?: \d{4}\1\d{4}\1\d{4} (?:\1\d{3})? | \d{6}\1\d{4,5} ) ) %s"""
    % (_ALONE, _END),
    re.VERBOSE,
)
_ISSUED: Final = re.compile(
    r"""4 (?: \d{12} | \d{15} | \d{18} )                                                # Visa
    | (?: 5[1-5]\d\d | 222[1-9] | 22[3-9]\d | 2[3-6]\d\d | 27[01]\d | 2720 ) \d{12}     # Mastercard
    | 3[47] \d{13}                                                               # American Express
    | (?: 6011 | 64[4-9]\d | 65\d\d | 62\d\d | 352[89] | 35[3-8]\d ) \d{12,15}  # Discover, JCB ...
    | 3 (?: 0[0-5] | [689]\d ) \d{11,16}                                               # Diners Club""",
    re.VERBOSE,
)
"""First digits and lengths of issuers (ISO/IEC 7812)."""


class _PhoneFormat(NamedTuple):
    """A format of phone numbers: a pattern and a range for the number of digits."""

    pattern: re.Pattern[bytes]
    min_digits: int
    max_digits: int


def _phone_format(pattern: bytes, min_digits: int, max_digits: int) -> _PhoneFormat:
    parts = {
        b"alone": _ALONE,
        b"gap": _GAP,
        b"space": _SPACE,
        b"digits": rb"(?: %s? \d )" % _GAP,
    }
    whole = re.compile(pattern % parts + _END, re.VERBOSE)
    return _PhoneFormat(whole, min_digits, max_digits)


_PHONES: Final = (
    # +49 30 1234567: E.164 allows at most 15 digits; a minimum of 9 is chosen here. Not a decimal fraction.
    _phone_format(
        rb"(?<![\w+]) \+ (?! \d+ \. \d+ (?! %(gap)s? \d ) ) [1-9] %(digits)s{8,14}", 9, 15
    ),
    # +49 (0)30 1234567
    _phone_format(rb"(?<![\w+]) \+ [1-9]\d{0,2} %(gap)s? \( \d{1,5} \) %(digits)s{4,14}", 9, 15),
    # 0049 30 1234567, 0049 (0)30 1234567
    _phone_format(rb"%(alone)s 00 (?= \d+ %(gap)s ) [1-9] %(digits)s{8,14}", 11, 17),
    _phone_format(rb"%(alone)s 00 [1-9]\d{0,2} %(gap)s? \( \d{1,5} \) %(digits)s{4,14}", 11, 17),
    # (212) 555-1234, 1 (212) 555 1234: North America
    _phone_format(rb"(?<!\w) \( [2-9]\d\d \) (?: %(space)s | - )? [2-9]\d\d [ .-] \d{4}", 10, 10),
    _phone_format(rb"%(alone)s 1 %(gap)s \( [2-9]\d\d \) %(space)s? [2-9]\d\d [ .-] \d{4}", 11, 11),
    # 212-555-1234, 1.212.555.1234: North America
    _phone_format(rb"%(alone)s (?: 1 [ .-] )? [2-9]\d\d ([.-]) [2-9]\d\d \1 \d{4}", 10, 11),
    # 01 23 45 67 89: France. Neither a chapter number such as 01.02.01.05.03 nor a row of hex bytes.
    _phone_format(
        rb"%(alone)s (?<! [0-9A-Fa-f]{2}[ ] ) 0[1-9] (%(gap)s) (?! (?: 0\d \1 ){3} 0\d ) \d\d"
        rb"(?: \1 \d\d ){3} (?! [ ] [0-9A-Fa-f]{2} \b )",
        10,
        10,
    ),
    # 030/1234567, 020 7946 0958, 03-1234-5678: Germany, United Kingdom, Japan ...
    _phone_format(
        rb"%(alone)s 0[1-9]\d{0,4} (?: %(space)s? / %(space)s? | %(space)s | - ) \d{3,8}"
        rb"(?: (?: %(space)s | - ) \d{1,4} ){0,3}",
        9,
        11,
    ),
    # (030) 1234567
    _phone_format(
        rb"(?<!\w) \( 0[1-9]\d{0,4} \) %(space)s? \d{3,8} (?: (?: %(space)s | - ) \d{1,4} ){0,3}",
        9,
        11,
    ),
    # 138 1234 5678: mobile phones in China
    _phone_format(rb"%(alone)s 1[3-9]\d ([ -]) \d{4} \1 \d{4}", 11, 11),
)


def find_matches(kind: Kind, texts: Texts, *, public_ips_only: bool) -> Spans:
    """Return the matches of a kind in each document, from left to right.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> spans = find_matches("email", texts(pa.array(["Ask foo@bar.com."])), public_ips_only=True)
    >>> spans.starts, spans.ends
    (array([4]), array([15]))
    """
    code, match = _KINDS[kind]
    if kind == "ip":
        match = partial(_ip, public_only=public_ips_only)
    candidates, first_candidate = pii_candidates.find_candidates(texts, code)
    view, offsets = texts.data.data, texts.offsets
    starts: list[int] = []
    ends: list[int] = []
    first_span = np.zeros(len(offsets), np.int64)
    for k in np.flatnonzero(np.diff(first_candidate)).tolist():
        # 1 us per candidate. Text up to the end of a match is cut off before the next candidate is matched,
        # so that matches do not depend on text that a mask may replace.
        begin, end = int(offsets[k]), int(offsets[k + 1])
        for candidate in candidates[first_candidate[k] : first_candidate[k + 1]].tolist():
            span = match(view[begin:end], max(candidate - begin, 0))
            if span is not None:
                starts.append(begin + span[0])
                ends.append(begin + span[1])
                begin += span[1]
        first_span[k + 1] = len(starts)
    first_span = np.maximum.accumulate(first_span)
    return Spans(np.array(starts, np.int64), np.array(ends, np.int64), first_span)


def _email(text: memoryview, offset: int) -> Span | None:
    match = _EMAIL.match(text, offset)
    return match and match.span(1)


def _ip(text: memoryview, offset: int, *, public_only: bool) -> Span | None:
    if match := _IPV4.match(text, offset):
        numbers = match[0].decode()
        if max(map(int, numbers.split("."))) < _MIN_LARGEST_OCTET:
            return None
        return None if public_only and _is_reserved(IPv4Address(numbers)) else match.span()
    if not (match := _IPV6.match(text, offset)):
        return None
    written = match[1].decode()
    try:
        address = IPv6Address(written)
    except AddressValueError:
        return None
    if (public_only and _is_reserved(address)) or not any(map(str.isdigit, written)):
        return None  # a qualified name can consist of hexadecimal digits: Face::Bed
    return match.span(1)


def _is_reserved(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in _RESERVED)


def _iban(text: memoryview, offset: int) -> Span | None:
    if not (match := _IBAN.match(text, offset)):
        return None
    chars = _IBAN_CHARS.get(match[0][:2].decode())
    if chars is None or not (match := _iban_pattern(chars).match(text, offset)):
        return None
    bare = re.sub(rb"[^A-Z0-9]", b"", match[0]).decode()
    number = "".join(str(int(char, 36)) for char in bare[4:] + bare[:4])
    return match.span() if int(number) % 97 == 1 else None  # ISO 7064


@cache
def _iban_pattern(chars: int) -> re.Pattern[bytes]:
    fours, rest = divmod(chars - 4, 4)
    last = rb"%s? [A-Z0-9]{%d}" % (_SPACE, rest) if rest else b""
    pattern = rb"[A-Z]{2} \d\d (?: %s? [A-Z0-9]{4} ){%d} %s (?!\.?\w)" % (_SPACE, fours, last)
    return re.compile(pattern, re.VERBOSE)


def _card(text: memoryview, offset: int) -> Span | None:
    if not (match := _CARD.match(text, offset)):
        return None
    digits = re.sub(rb"\D", b"", match[0]).decode()
    return match.span() if _ISSUED.fullmatch(digits) and _is_luhn(digits) else None


def _is_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[::-2]))) % 10 == 0


def _phone(text: memoryview, offset: int) -> Span | None:
    for phone in _PHONES:
        if match := phone.pattern.match(text, offset):
            digits = sum(48 <= byte <= 57 for byte in match[0])
            if phone.min_digits <= digits <= phone.max_digits:
                return match.span()
    return None


_KINDS: Final[dict[Kind, tuple[int, Callable[[memoryview, int], Span | None]]]] = {
    "email": (pii_candidates.EMAIL, _email),
    "ip": (pii_candidates.IP, partial(_ip, public_only=True)),
    "iban": (pii_candidates.IBAN, _iban),
    "card": (pii_candidates.CARD, _card),
    "phone": (pii_candidates.PHONE, _phone),
}
KINDS: Final = tuple(_KINDS)
"""All kinds in the order of matching, the most certain first; matches of earlier kinds are excluded."""
