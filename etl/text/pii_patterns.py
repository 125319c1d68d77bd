"""Patterns and checks for e-mail and IP addresses, IBANs, card and phone numbers.

Each kind has a pattern over UTF-8 and a check for properties that a pattern cannot express. Patterns also
test the characters around a match: nothing matches inside a word or a longer number, and replacing a match
creates no new matches in the remaining text.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

import numpy as np

from etl.kernels.bytes import pii_candidates
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts
from etl.text.email_pattern import match_email
from etl.text.phone_patterns import ALONE, END, SPACE, Span, match_phone
from etl.text.pii_kinds import Kind

_OCTETS = rb"%(octet)s (?:\.%(octet)s){3}" % {b"octet": rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"}
_IPV4: Final = re.compile(rb"(?<![\w.]) (?<!::) %s (?!\.?\w) (?!-[A-Za-z])" % _OCTETS, re.VERBOSE)
_MIN_LARGEST_OCTET: Final = 32
"""An address must have a number of at least this; others are read as versions or sections (1.2.3.4).

Chosen here: one address in 4,096 has no such number. In 570 MB of German law and software manuals, 5,450
strings have the format and 6 % of them such a number; the others are sections, versions and object
identifiers. An address that ends in .0.0.0 is a network's, or the version of a browser.
"""

_OBJECT_IDENTIFIERS: Final = (ip_network("2.5.4.0/24"), ip_network("2.5.29.0/24"))
"""Object identifiers of X.500 attributes and certificate extensions, which software manuals list."""

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

_RESOLVERS: Final = frozenset(
    map(
        ip_address,
        (
            *("8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844"),  # Google
            *("1.1.1.1", "1.0.0.1", "2606:4700:4700::1111", "2606:4700:4700::1001"),  # Cloudflare
            *("9.9.9.9", "149.112.112.112", "2620:fe::fe", "2620:fe::9"),  # Quad9
            *("208.67.222.222", "208.67.220.220", "2620:119:35::35", "2620:119:53::53"),  # OpenDNS
            *("94.140.14.14", "94.140.15.15", "2a10:50c0::ad1:ff", "2a10:50c0::ad2:ff"),  # AdGuard
            *("77.88.8.8", "77.88.8.1", "2a02:6b8::feed:ff"),  # Yandex
            *("223.5.5.5", "223.6.6.6", "2400:3200::1", "2400:3200:baba::1"),  # AliDNS
            "114.114.114.114",  # 114DNS
        ),
    )
)
"""Public name servers, as their operators publish them."""

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
    % (ALONE, END),
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


def find_matches(
    kind: Kind, texts: Texts, *, public_ips_only: bool = True, keep_resolvers: bool = True
) -> Spans:
    """Return the matches of a kind in each document, from left to right.

    >>> import pyarrow as pa
    >>> from etl.kernels.bytes.utf8 import texts
    >>> spans = find_matches("email", texts(pa.array(["Ask foo@bar.com."])))
    >>> spans.starts, spans.ends
    (array([4]), array([15]))
    """
    code, match = _KINDS[kind]
    if kind == "ip":
        match = partial(_ip, public_only=public_ips_only, keep_resolvers=keep_resolvers)
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


def _ip(
    text: memoryview, offset: int, *, public_only: bool = True, keep_resolvers: bool = True
) -> Span | None:
    address: IPv4Address | IPv6Address
    if match := _IPV4.match(text, offset):
        address = IPv4Address(match[0].decode())
        if max(address.packed) < _MIN_LARGEST_OCTET or match[0].endswith(b".0.0.0"):
            return None
        if any(address in identifiers for identifiers in _OBJECT_IDENTIFIERS):
            return None
    elif match := _IPV6.match(text, offset):
        written = match[1].decode()
        if not any(map(str.isdigit, written)):
            return None  # a qualified name can consist of hexadecimal digits: Face::Bed
        try:
            address = IPv6Address(written)
        except AddressValueError:
            return None
    else:
        return None
    is_kept = (public_only and _is_reserved(address)) or (keep_resolvers and address in _RESOLVERS)
    return None if is_kept else match.span()


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
    last = rb"%s? [A-Z0-9]{%d}" % (SPACE, rest) if rest else b""
    pattern = rb"[A-Z]{2} \d\d (?: %s? [A-Z0-9]{4} ){%d} %s (?!\.?\w)" % (SPACE, fours, last)
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


_KINDS: Final[dict[Kind, tuple[int, Callable[[memoryview, int], Span | None]]]] = {
    "email": (pii_candidates.EMAIL, match_email),
    "ip": (pii_candidates.IP, _ip),
    "iban": (pii_candidates.IBAN, _iban),
    "card": (pii_candidates.CARD, _card),
    "phone": (pii_candidates.PHONE, match_phone),
}
