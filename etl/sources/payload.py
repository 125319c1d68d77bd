"""The text of a WARC record: its HTTP header read, its encodings undone, its characters decoded.

The character set is found as a browser finds it: a byte order mark, the HTTP header, the page's own
``meta``, else a guess (WHATWG, Encoding and HTML standards, by resiliparse 2). What that cannot read
becomes U+FFFD; if more than one character in a hundred does, the guess is tried against the declaration.
"""

import codecs
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from fastwarc.warc import WarcRecord
from resiliparse.parse.encoding import detect_encoding, detect_mime, map_encoding_to_html5

from etl.sources.records import Record

_GZIP = b"\x1f\x8b"
_MAX_HTTP_HEADER_BYTES = 1 << 20
_SNIFFED = 1445  # WHATWG MIME Sniffing, 5.2: the length of a resource header
_MAX_UNDECODED_RATIO = (
    0.01  # chosen here: a byte here and there is a page, a hundredth of it is noise
)
_PLAIN_HEADER = re.compile(
    rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]*)?((?:\r\n[!-9;-~]+:[^\r\n]*)*)\r\n\r\n"
)
_ENCODINGS = (b"\r\ncontent-encoding:", b"\r\ntransfer-encoding:")
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:[ \t]*([^\r\n]*)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_PROSE = ("text/css", "text/dns", "text/javascript", "text/ecmascript")
_ALSO_TEXT = ("application/xhtml+xml", "application/xml")
# What WHATWG's labels mean in Python's words, where the plain name is a smaller set.
_WIDER = {
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
}


class Payload(NamedTuple):
    """What a record holds: a text, or the name of a reason why there is none, and what is said of it."""

    text: bytes | None = None  # UTF-8
    problem: str | None = None  # malformed | http_status | not_text | undecodable | too_large
    error: str = ""  # the problem in words
    facts: Mapping[str, Any] = MappingProxyType({})  # content_type, status, charset, undecoded


def payload(record: Record, *, max_bytes: int) -> Payload:
    """The text of a response, resource or conversion record, of at most ``max_bytes`` before decoding."""
    declared = record.fields.get("content-type", "")
    if _mime(declared) == "application/http":
        return _of_response(record, max_bytes)
    if record.fields.get("warc-type", "").lower() == "conversion":
        declared = f"{_mime(declared)}; charset=utf-8"  # as Common Crawl's WET files are
    return _text(record.block, declared=declared, record=record, facts={})


def _of_response(record: Record, max_bytes: int) -> Payload:
    try:
        status, declared, body = _plain_response(record.block) or _response(record, max_bytes)
    except OSError as error:
        return Payload(problem="malformed", error=f"the HTTP header cannot be read ({error})")
    if status is None:
        return Payload(problem="malformed", error="there is no HTTP header")
    facts = {"status": status, "content_type": _mime(declared)}
    if not 200 <= status < 300:
        return Payload(problem="http_status", error=f"HTTP status {status}", facts=facts)
    if len(body) > max_bytes:
        what = f"more than {max_bytes} bytes when its content encoding is undone"
        return Payload(problem="too_large", error=what, facts=facts)
    return _text(body, declared=declared, record=record, facts=facts)


def _plain_response(block: bytes) -> tuple[int, str, bytes] | None:
    """What ``_response`` finds, for a header by the book that declares no encoding; None for others."""
    found = _PLAIN_HEADER.match(block, 0, _MAX_HTTP_HEADER_BYTES)
    if found is None or block.startswith(_GZIP, found.end()):
        return None
    fields = found[2].lower()
    if any(name in fields for name in _ENCODINGS) or not fields.isascii():
        return None
    declared = _CONTENT_TYPE.search(fields)
    return int(found[1]), declared[1].decode() if declared else "", block[found.end() :]


def _response(record: Record, max_bytes: int) -> tuple[int | None, str, bytes]:
    """The status, Content-Type and body; an encoding that is declared and not there is passed over."""
    content_type = "application/http; msgtype=response"
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(record.block)}\r\n\r\n"
    )
    whole = head.encode() + record.block
    for encodings in ("all", "transfer", "content"):
        with suppress(OSError, zlib.error):
            return _parsed(whole, encodings, max_bytes)
    return _parsed(whole, "none", max_bytes)


def _parsed(whole: bytes, encodings: Any, max_bytes: int) -> tuple[int | None, str, bytes]:
    found = WarcRecord.from_bytes(whole)
    # Lenient: many archives hold headers with bare line feeds.
    found.parse_http(encodings, _MAX_HTTP_HEADER_BYTES, quirks_mode=True)
    body = found.reader.read(max_bytes + 1)
    if encodings != "none" and body.startswith(_GZIP):  # by a name that is not known
        body = zlib.decompressobj(wbits=31).decompress(body, max_bytes + 1)
    headers = found.http_headers
    return headers.status_code, headers.get("Content-Type") or "", body


def _text(content: bytes, *, declared: str, record: Record, facts: dict[str, Any]) -> Payload:
    mime = _mime(record.fields.get("warc-identified-payload-type")) or _mime(declared)
    facts = {**facts, "content_type": mime}
    if mime and not _is_text(mime):
        return Payload(problem="not_text", error=f"content type {mime}", facts=facts)
    sniffed = _mime(detect_mime(content[:_SNIFFED]))
    if sniffed and not _is_text(sniffed) and sniffed != "application/octet-stream":
        return Payload(problem="not_text", error=f"it begins as {sniffed}", facts=facts)
    charset = _CHARSET.search(declared)
    text, encoding, undecoded = decode(content, charset[1] if charset else None)
    facts["charset"] = encoding
    if "\0" in text[:_SNIFFED]:
        return Payload(problem="not_text", error="it begins with binary data", facts=facts)
    if undecoded:
        facts["undecoded"] = undecoded
    if _is_noise((text, encoding, undecoded)):
        error = f"{undecoded} of {len(text)} characters are not {encoding}"
        return Payload(problem="undecodable", error=error, facts=facts)
    whole = encoding == "utf-8" and not undecoded and not content.startswith(codecs.BOM_UTF8)
    return Payload(text=content if whole else text.encode("utf-8", "replace"), facts=facts)


def decode(content: bytes, declared: str | None) -> tuple[str, str, int]:
    """The text, the encoding that it was read in, and how many characters became U+FFFD.

    >>> decode("Grüße".encode("latin-1"), "ISO-8859-1")
    ('Grüße', 'cp1252', 0)
    >>> decode(b"<meta charset=koi8-r>" + "Да".encode("koi8-r"), None)
    ('<meta charset=koi8-r>Да', 'koi8-r', 0)
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return _decoded(content.removeprefix(mark), encoding)
    found = _decoded(content, _python_name(declared) or _undeclared(content))
    if _is_noise(found):
        found = min(found, _decoded(content, _guess(content)), key=lambda each: each[2])
    return found


def _undeclared(content: bytes) -> str:
    """What the page says of itself, else UTF-8 if it is that, else a guess."""
    guess = _guess(content)
    found = _python_name(detect_encoding(content, from_html_meta=True)) or guess
    if found != guess:
        return found
    return found if _decoded(content, "utf-8")[2] else "utf-8"


def _guess(content: bytes) -> str:
    return _python_name(detect_encoding(content)) or "utf-8"


def _decoded(content: bytes, encoding: str) -> tuple[str, str, int]:
    text = content.decode(encoding, "replace")
    undecoded = text.count("\ufffd") if "\ufffd" in text else 0  # to look is faster than to count
    return text, encoding, undecoded


def _is_noise(found: tuple[str, str, int]) -> bool:
    text, _, undecoded = found
    return undecoded > _MAX_UNDECODED_RATIO * len(text)


@lru_cache(maxsize=256)
def _python_name(label: str | None) -> str | None:
    """What a declaration means, by WHATWG's table of labels; None if it means nothing."""
    found = map_encoding_to_html5(label.strip().lower(), fallback_utf8=False) if label else None
    return _WIDER.get(found, found) if found else None


@lru_cache(maxsize=256)
def _mime(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _is_text(mime: str) -> bool:
    prose = mime.startswith("text/") and mime not in _NO_PROSE
    return prose or mime in _ALSO_TEXT or (mime.endswith("+xml") and mime != "image/svg+xml")
