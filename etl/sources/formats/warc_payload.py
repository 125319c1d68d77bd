"""Text of a WARC record: the body of a response, or the block, with its characters decoded."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from resiliparse.parse.encoding import detect_mime

from etl.sources.formats.character_sets import decode_text
from etl.sources.formats.http_response import is_response, parse_response
from etl.sources.formats.warc_records import Record
from etl.sources.layers.bodies import SNIFFED_BYTES, has_binary_data

_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_NOT_PROSE = ("text/css", "text/dns", "text/javascript", "text/ecmascript")
_PROSE_APPLICATIONS = ("application/xhtml+xml", "application/xml")


class Payload(NamedTuple):
    """The text of a record, or the name of the reason why it has none, with facts about it."""

    text: bytes | None = None  # UTF-8
    problem: str | None = None  # malformed | http_status | not_text | undecodable | too_large
    error: str = ""  # the problem in words
    facts: Mapping[str, Any] = MappingProxyType({})  # see the module warc


def extract_payload(record: Record, *, max_bytes: int) -> Payload:
    """Return the text of a response, resource or conversion record.

    A response body of more than ``max_bytes`` after decompression is rejected as too large.
    """
    declared = record.fields.get("content-type", "")
    kind = record.fields.get("warc-type", "").lower()
    if _mime(declared) == "application/http" or (kind == "response" and is_response(record.block)):
        return _response_payload(record, max_bytes)
    if kind == "conversion":
        declared = f"{_mime(declared)}; charset=utf-8"  # true of Common Crawl's WET files
    return _text_payload(record.block, declared=declared, record=record, facts={})


def _response_payload(record: Record, max_bytes: int) -> Payload:
    response = parse_response(record.block, max_bytes)
    if response.error is not None:
        return Payload(problem="malformed", error=response.error)
    status, declared, body = response.status, response.content_type, response.body
    facts = {"status": status, "content_type": _mime(declared)}
    if response.damage:
        facts["damage"] = "; ".join(response.damage)
    if not 200 <= status < 300:
        return Payload(problem="http_status", error=f"the HTTP status is {status}", facts=facts)
    if len(body) > max_bytes:
        error_text = f"the body is larger than {max_bytes} bytes after decompression"
        return Payload(problem="too_large", error=error_text, facts=facts)
    return _text_payload(body, declared=declared, record=record, facts=facts)


def _text_payload(
    content: bytes, *, declared: str, record: Record, facts: dict[str, Any]
) -> Payload:
    mime = _mime(record.fields.get("warc-identified-payload-type")) or _mime(declared)
    facts["content_type"] = mime
    if mime and not _is_text(mime):
        return Payload(problem="not_text", error=f"the content type is {mime}", facts=facts)
    if _is_type_doubtful(record, mime, content):
        sniffed = _mime(detect_mime(content[:SNIFFED_BYTES]))
        if sniffed and not _is_text(sniffed) and sniffed != "application/octet-stream":
            error = f"the content starts like {sniffed}"
            return Payload(problem="not_text", error=error, facts=facts)
    charset = _CHARSET.search(declared)
    decoded = decode_text(content, charset[1] if charset else None)
    facts["charset"] = decoded.encoding
    if decoded.starts_with_binary_data(SNIFFED_BYTES):
        error = "the content starts with binary data"
        return Payload(problem="not_text", error=error, facts=facts)
    if decoded.bad:
        facts["undecoded"] = decoded.bad
    if decoded.is_noise:
        characters, encoding = len(decoded.text), decoded.encoding
        error = f"{decoded.bad} of {characters} characters are not valid {encoding}"
        return Payload(problem="undecodable", error=error, facts=facts)
    return Payload(text=decoded.utf8, facts=facts)


def _is_type_doubtful(record: Record, mime: str, content: bytes) -> bool:
    """Return whether the content may have another type than ``mime``.

    Servers often declare a wrong type. A type in the record's own header is reliable, since a converter
    made the text or a crawler examined it, as is text/plain unless binary data follows: prose that
    starts with BM, FORM, ID3 or RIFF is not a file of that type.
    """
    fields = record.fields
    kind = fields.get("warc-type", "").lower()
    if kind == "conversion" or "warc-identified-payload-type" in fields:
        return False
    if mime and kind != "response" and _mime(fields.get("content-type")) != "application/http":
        return False
    return mime != "text/plain" or has_binary_data(content)


@lru_cache(maxsize=256)
def _mime(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _is_text(mime: str) -> bool:
    prose = mime.startswith("text/") and mime not in _NOT_PROSE
    return (
        prose or mime in _PROSE_APPLICATIONS or (mime.endswith("+xml") and mime != "image/svg+xml")
    )
