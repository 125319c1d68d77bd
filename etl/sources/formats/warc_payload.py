"""Text of a WARC record: parse the HTTP header, undo the encodings, decode the characters."""

import codecs
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from fastwarc.warc import WarcRecord
from resiliparse.parse.encoding import detect_mime

from etl.sources.formats.character_sets import decode_text
from etl.sources.formats.warc_records import Record

_GZIP = b"\x1f\x8b"
_MAX_HTTP_HEADER_BYTES = 1 << 20
_SNIFFED_BYTES = 1445  # WHATWG MIME Sniffing, 5.2: the length of a resource header
_STANDARD_HEADER = re.compile(
    rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]*)?((?:\r\n[!-9;-~]+:[^\r\n]*)*)\r\n\r\n"
)
_HEADER = re.compile(rb"\n\r?\n")
_ENCODINGS = (b"\r\ncontent-encoding:", b"\r\ntransfer-encoding:")
_CODINGS = re.compile(
    rb"[\r\n](?:content|transfer)-encoding[ \t]*:([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)", re.IGNORECASE
)
_MAX_CODINGS = 5  # as in curl (MAX_ENCODE_STACK): each takes memory, and 100,000 abort the process
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:[ \t]*([^\r\n]*)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_BINARY_DATA = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")  # WHATWG MIME Sniffing, 3
_NOT_PROSE = ("text/css", "text/dns", "text/javascript", "text/ecmascript")
_PROSE_APPLICATIONS = ("application/xhtml+xml", "application/xml")


class Payload(NamedTuple):
    """The text of a record, or the name of the reason why it has none, with facts about it."""

    text: bytes | None = None  # UTF-8
    problem: str | None = None  # malformed | http_status | not_text | undecodable | too_large
    error: str = ""  # the problem in words
    facts: Mapping[str, Any] = MappingProxyType({})  # content_type, status, charset, undecoded


def extract_payload(record: Record, *, max_bytes: int) -> Payload:
    """Return the text of a response, resource or conversion record.

    A response body of more than ``max_bytes`` after decompression is rejected as too large.
    """
    declared = record.fields.get("content-type", "")
    if _mime(declared) == "application/http":
        return _response_payload(record, max_bytes)
    if record.fields.get("warc-type", "").lower() == "conversion":
        declared = f"{_mime(declared)}; charset=utf-8"  # true of Common Crawl's WET files
    return _text_payload(record.block, declared=declared, record=record, facts={})


def _response_payload(record: Record, max_bytes: int) -> Payload:
    try:
        response = _parse_standard(record.block) or _parse_any(record, max_bytes)
        status, declared, body = response
    except OSError as error:
        return Payload(problem="malformed", error=f"the HTTP header cannot be read ({error})")
    if status is None:
        return Payload(problem="malformed", error="the record has no HTTP header")
    facts = {"status": status, "content_type": _mime(declared)}
    if not 200 <= status < 300:
        return Payload(problem="http_status", error=f"the HTTP status is {status}", facts=facts)
    if len(body) > max_bytes:
        error_text = f"the body is larger than {max_bytes} bytes after decompression"
        return Payload(problem="too_large", error=error_text, facts=facts)
    return _text_payload(body, declared=declared, record=record, facts=facts)


def _parse_standard(block: bytes) -> tuple[int, str, bytes] | None:
    """Return the result of ``_parse_any`` for a standard header that declares no encoding, else None.

    This is the fast path.
    """
    match = _STANDARD_HEADER.match(block, 0, _MAX_HTTP_HEADER_BYTES)
    if match is None or block.startswith(_GZIP, match.end()):
        return None
    fields = match[2].lower()
    if any(name in fields for name in _ENCODINGS) or not fields.isascii():
        return None
    declared = _CONTENT_TYPE.search(fields)
    return int(match[1]), declared[1].decode() if declared else "", block[match.end() :]


def _parse_any(record: Record, max_bytes: int) -> tuple[int | None, str, bytes]:
    """Return the status, Content-Type and body; ignore declared encodings that the body does not have."""
    codings = b",".join(_CODINGS.findall(_HEADER.split(record.block, 1)[0])).count(b",") + 1
    if codings > _MAX_CODINGS:
        raise OSError(f"it declares {codings} encodings, but the limit is {_MAX_CODINGS}")
    content_type = "application/http; msgtype=response"
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(record.block)}\r\n\r\n"
    )
    whole = head.encode() + record.block
    for encodings in ("all", "transfer", "content"):
        with suppress(OSError, zlib.error):
            return _parse_http(whole, encodings, max_bytes)
    return _parse_http(whole, "none", max_bytes)


def _parse_http(whole: bytes, encodings: Any, max_bytes: int) -> tuple[int | None, str, bytes]:
    record = WarcRecord.from_bytes(whole)
    # Lenient: many archives have headers with bare line feeds.
    record.parse_http(encodings, _MAX_HTTP_HEADER_BYTES, quirks_mode=True)
    body = record.reader.read(max_bytes + 1)
    if encodings != "none" and body.startswith(_GZIP):  # declared by an unknown name
        body = zlib.decompressobj(wbits=31).decompress(body, max_bytes + 1)
    headers = record.http_headers
    return headers.status_code, headers.get("Content-Type") or "", body


def _text_payload(
    content: bytes, *, declared: str, record: Record, facts: dict[str, Any]
) -> Payload:
    mime = _mime(record.fields.get("warc-identified-payload-type")) or _mime(declared)
    facts = {**facts, "content_type": mime}
    if mime and not _is_text(mime):
        return Payload(problem="not_text", error=f"the content type is {mime}", facts=facts)
    if _is_type_doubtful(record, mime, content):
        sniffed = _mime(detect_mime(content[:_SNIFFED_BYTES]))
        if sniffed and not _is_text(sniffed) and sniffed != "application/octet-stream":
            error = f"the content starts like {sniffed}"
            return Payload(problem="not_text", error=error, facts=facts)
    charset = _CHARSET.search(declared)
    decoded = decode_text(content, charset[1] if charset else None)
    text, encoding, undecoded = decoded
    facts["charset"] = encoding
    if "\0" in text[:_SNIFFED_BYTES]:
        error = "the content starts with binary data"
        return Payload(problem="not_text", error=error, facts=facts)
    if undecoded:
        facts["undecoded"] = undecoded
    if decoded.is_noise:
        error = f"{undecoded} of {len(text)} characters are not valid {encoding}"
        return Payload(problem="undecodable", error=error, facts=facts)
    unchanged = encoding == "utf-8" and not undecoded and not content.startswith(codecs.BOM_UTF8)
    return Payload(text=content if unchanged else text.encode("utf-8", "replace"), facts=facts)


def _is_type_doubtful(record: Record, mime: str, content: bytes) -> bool:
    """Return whether the content may have another type than ``mime``.

    Servers often declare a wrong type. A type in the record's own header is reliable, since a converter
    made the text or a crawler examined it, as is text/plain unless binary data follows: prose that
    starts with BM, FORM, ID3 or RIFF is not a file of that type.
    """
    fields = record.fields
    if fields.get("warc-type", "").lower() == "conversion":
        return False
    if "warc-identified-payload-type" in fields:
        return False
    if mime and _mime(fields.get("content-type")) != "application/http":
        return False
    return mime != "text/plain" or bool(_BINARY_DATA.search(content, 0, _SNIFFED_BYTES))


@lru_cache(maxsize=256)
def _mime(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _is_text(mime: str) -> bool:
    prose = mime.startswith("text/") and mime not in _NOT_PROSE
    return (
        prose or mime in _PROSE_APPLICATIONS or (mime.endswith("+xml") and mime != "image/svg+xml")
    )
