"""Normalize host names as browsers do, so that all spellings of a host are equal.

This is the host parser of the URL standard (WHATWG, url.spec.whatwg.org, "Host parsing") for schemes such as
http: it decodes percent signs, maps characters by UTS #46 with the table of the package ``idna``, encodes
labels in Punycode, and reads every notation of an IP address.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote_to_bytes

import idna

_FORBIDDEN: Final = re.compile(r"[\x00-\x20#%/:<>?@\[\\\]^|\x7f]")
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.DOTALL)
_IPV4_PART: Final = re.compile(r"0x(?P<hex>[0-9a-f]*)|0(?P<octal>[0-7]*)|(?P<decimal>[1-9][0-9]*)")
_JOINER: Final = re.compile("[\u200c\u200d]")


def normalize_host(text: str) -> str | None:
    """Return a host in the form that a browser sends, without trailing dots; None if it is invalid.

    >>> [normalize_host(text) for text in ("Bücher.example", "ｅｘ%61mple。com.", "0x7f.1", "[::0:1]", "a b")]
    ['xn--bcher-kva.example', 'example.com', '127.0.0.1', '[::1]', None]
    """
    try:
        if text.startswith("["):
            return _ipv6(text)
        host = _to_ascii(unquote_to_bytes(text).decode("utf-8", "replace"))
        if _ENDS_IN_NUMBER.fullmatch(host):
            return _ipv4(host.removesuffix("."))
    except ValueError:  # includes IDNAError and UnicodeError
        return None
    return None if _FORBIDDEN.search(host) else host.rstrip(".") or None


def _to_ascii(domain: str) -> str:
    """Return a domain name in ASCII: UTS #46 ToASCII with the options of the URL standard.

    The options are CheckBidi and CheckJoiners, without CheckHyphens, UseSTD3ASCIIRules, transitional
    processing and limits of DNS. ``idna.encode`` checks more, by IDNA 2008: it refuses emoji, for example.
    Raises ValueError for an invalid name, and for one of more than 1,024 characters.
    """
    return ".".join(map(_label_to_ascii, idna.uts46_remap(domain, std3_rules=False).split(".")))


def _label_to_ascii(label: str) -> str:
    is_encoded = label.startswith("xn--")
    if label.isascii() and not is_encoded:
        return label
    decoded = label[4:].encode("ascii").decode("punycode") if is_encoded else label
    if is_encoded and (decoded.isascii() or "." in decoded or decoded.startswith("xn--")):
        raise ValueError(label)
    if idna.uts46_remap(decoded, std3_rules=False) != decoded:
        raise ValueError(label)
    idna.check_initial_combiner(decoded)
    idna.check_bidi(decoded)
    if not all(idna.valid_contextj(decoded, match.start()) for match in _JOINER.finditer(decoded)):
        raise ValueError(label)
    encoded = f"xn--{decoded.encode('punycode').decode()}"
    if is_encoded and encoded != label:
        raise ValueError(label)
    return encoded


def _ipv4(host: str) -> str:
    """Return four decimal numbers for one to four decimal, octal or hexadecimal ones.

    >>> [_ipv4(host) for host in ("2130706433", "0x7f.1", "127.0.0.01")]
    ['127.0.0.1', '127.0.0.1', '127.0.0.1']
    """
    numbers = []
    for part in host.split("."):
        match = _IPV4_PART.fullmatch(part)
        if match is None:
            raise ValueError(host)
        base = {"hex": 16, "octal": 8, "decimal": 10}[match.lastgroup or ""]
        numbers.append(int(match[match.lastgroup or ""] or "0", base))
    *first, last = numbers
    if len(first) > 3 or max(first, default=0) > 255 or last >= 256 ** (4 - len(first)):
        raise ValueError(host)
    return str(IPv4Address(sum(n << 8 * (3 - k) for k, n in enumerate(first)) + last))


def _ipv6(text: str) -> str:
    if not text.endswith("]") or "%" in text:  # browsers refuse zones
        raise ValueError(text)
    address = IPv6Address(text[1:-1])
    if address.ipv4_mapped is None:
        return f"[{address}]"
    high, low = divmod(int(address.ipv4_mapped), 1 << 16)  # Python 3.13 writes four decimal numbers
    return f"[::ffff:{high:x}:{low:x}]"
