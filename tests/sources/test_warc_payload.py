"""Texts of WARC records: encodings are undone, characters decoded, other content is refused."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etl.sources.formats.character_sets import decode_text
from etl.sources.formats.warc_payload import (
    Payload,
    extract_payload,
)
from etl.sources.formats.warc_records import Record
from tests.helpers.warc_archives import PAGE, http

_HTTP = "application/http; msgtype=response"


def _page(block: bytes, kind: str = "response", content_type: str = _HTTP, **fields) -> Payload:
    header = {"warc-type": kind, "content-type": content_type}
    header |= {name.replace("_", "-"): value for name, value in fields.items()}
    return extract_payload(Record(fields=header, block=block), max_bytes=1 << 20)


def _chunked(body: bytes) -> bytes:
    return b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (PAGE, {}),
        (gzip.compress(PAGE, mtime=0), {"Content_Encoding": "gzip"}),
        (gzip.compress(PAGE, mtime=0), {"Content_Encoding": "x-gzip"}),
        (zlib.compress(PAGE), {"Content_Encoding": "deflate"}),
        (brotli.compress(PAGE), {"Content_Encoding": "br"}),
        (zstandard.compress(PAGE), {"Content_Encoding": "zstd"}),
        (brotli.compress(gzip.compress(PAGE, mtime=0)), {"Content_Encoding": "gzip, br"}),
        (_chunked(PAGE), {"Transfer_Encoding": "chunked"}),
        (
            _chunked(gzip.compress(PAGE, mtime=0)),
            {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"},
        ),
        # crawlers undo an encoding and leave it in the header
        (PAGE, {"Content_Encoding": "gzip"}),
        (PAGE, {"Content_Encoding": "unheard-of"}),
        (PAGE, {"Transfer_Encoding": "chunked"}),
        (
            gzip.compress(PAGE, mtime=0),
            {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"},
        ),
        (_chunked(PAGE), {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"}),
    ],
)
def test_encodings_are_undone(body: bytes, fields: dict[str, str]) -> None:
    assert _page(http(body, **fields)).text == PAGE


@pytest.mark.parametrize(
    "block",
    [
        b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + PAGE,
        b"HTTP/1.1 200\r\nContent-Type: text/html\r\n\r\n" + PAGE,
        b"HTTP/2 200 \r\ncontent-type: TEXT/HTML ;charset='UTF-8'\r\n\r\n" + PAGE,
        b"HTTP/1.1 200 OK\r\nX: \xff\r\nX-\xff: 1\r\nContent-Type: text/html\r\n\r\n" + PAGE,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n" + PAGE,
    ],
)
def test_unusual_http_headers_are_accepted(block: bytes) -> None:
    assert _page(block).text == PAGE


@pytest.mark.parametrize(
    ("status", "problem"),
    [(199, "http_status"), (200, None), (299, None), (300, "http_status"), (404, "http_status")],
)
def test_only_pages_with_a_2xx_status_have_a_text(status: int, problem: str | None) -> None:
    page = _page(http(PAGE, status=f"{status} Message"))
    assert page.problem == problem
    assert page.facts["status"] == status


@pytest.mark.parametrize("block", [b"", b"<html>", b"garbage\r\n" * 9, b"\r\n\r\n", b"x" * 99])
def test_a_block_without_an_http_header_is_malformed(block: bytes) -> None:
    page = _page(block)
    assert (page.problem, page.text) == ("malformed", None)


@pytest.mark.parametrize(
    ("content_type", "is_text"),
    [
        ("text/html", True),
        ("Text/HTML; charset=utf-8", True),
        ("application/xhtml+xml", True),
        ("text/plain", True),
        ("application/rss+xml", True),
        (None, True),  # not declared, but the content starts like text
        ("text/css", False),
        ("text/javascript", False),
        ("text/dns", False),
        ("application/json", False),
        ("application/pdf", False),
        ("image/svg+xml", False),
        ("image/png", False),
        ("nonsense", False),
    ],
)
def test_only_text_content_types_are_accepted(content_type: str | None, is_text: bool) -> None:
    page = _page(http(PAGE, Content_Type=content_type))
    assert (page.problem is None) == is_text
    assert page.problem in (None, "not_text")


@pytest.mark.parametrize(
    "body",
    [
        b"%PDF-1.7\n%abc",
        b"\x89PNG\r\n\x1a\n" + bytes(9),
        b"\xff\xd8\xff\xe0\x00\x10JFIF",
        b"PK\x03\x04" + bytes(20),
        gzip.compress(PAGE, mtime=0)[:10] + b"\xff" * 9,
        bytes(9),
    ],
)
def test_binary_content_declared_as_html_is_not_text(body: bytes) -> None:
    assert _page(http(body)).problem == "not_text"


# Prose that starts like a file: AIFF, bitmap, MP3, WAVE, Ogg.
PROSE = ("FORM 1040 is due", "BMW sells cars", "ID3 tags are", "RIFF RAFF is", "OggS is a word")


@pytest.mark.parametrize("text", PROSE)
def test_text_that_starts_like_a_binary_file_is_text(text: str) -> None:
    block = f"{text} here. ".encode() * 9
    plain = "text/plain; charset=utf-8"
    pages = {
        "WET": _page(block, "conversion", "text/plain"),
        "WET without a type": _page(block, "conversion", ""),
        "resource": _page(block, "resource", plain),
        "declared by the server": _page(http(block, Content_Type=plain)),
        "detected by the crawler": _page(http(block), warc_identified_payload_type="text/plain"),
    }
    assert {name: page.text for name, page in pages.items()} == dict.fromkeys(pages, block)


@pytest.mark.parametrize("content_type", [None, "text/html", "text/plain"])
def test_a_binary_response_is_not_text_whatever_the_server_declares(content_type) -> None:
    bitmap = b"BM" + (5000).to_bytes(4, "little") + bytes(4) + b"\x36" + bytes(90)
    for body in (bitmap, b"ID3\x04\x01\x01\x01\x02\x76" + b"TIT2" * 9, b"OggS\x02\x01" * 9):
        assert _page(http(body, Content_Type=content_type)).problem == "not_text"


def test_the_detected_content_type_overrides_the_declared_one() -> None:
    page = _page(http(PAGE, Content_Type="image/png"), warc_identified_payload_type="text/html")
    assert (page.text, page.facts["content_type"]) == (PAGE, "text/html")
    page = _page(http(PAGE), warc_identified_payload_type="application/pdf")
    assert page.problem == "not_text"


@pytest.mark.parametrize(
    ("content", "declared", "text", "encoding"),
    [
        ("\ufeffä".encode(), "latin-1", "ä", "utf-8"),
        ("\ufeffä".encode("utf-16-le"), "utf-8", "ä", "utf-16-le"),
        ("\ufeffä".encode("utf-16-be"), None, "ä", "utf-16-be"),
        ("“ä”".encode("cp1252"), "ISO-8859-1", "“ä”", "cp1252"),
        ("ąę".encode("iso8859-2"), '"iso-8859-2"', "ąę", "iso8859-2"),
        ("①髙".encode("cp932"), "Shift_JIS", "①髙", "cp932"),
        ("똠방".encode("cp949"), "euc-kr", "똠방", "cp949"),
        ("€镕".encode("gb18030"), "gb2312", "€镕", "gb18030"),
        (b"<meta charset='koi8-r'>" + "Да".encode("koi8-r"), None, None, "koi8-u"),
        (b"<meta charset=latin1>" + "Да".encode(), "utf-8", None, "utf-8"),
        ("ó".encode(), None, "ó", "utf-8"),
        (b"words", None, "words", "utf-8"),
        (b"", None, "", "utf-8"),
        ("Привет, как дела? ".encode("cp1251") * 9, None, "Привет, как дела? " * 9, "cp1251"),
        # a declaration that is wrong or unknown
        ("Привет, как дела? ".encode("cp1251") * 9, "utf-8", "Привет, как дела? " * 9, "cp1251"),
        ("ä".encode(), "none-such", "ä", "utf-8"),
        ("ä".encode(), "x-user-defined", "ä", "utf-8"),
    ],
)
def test_the_character_set_is_detected(
    content: bytes, declared: str | None, text: str | None, encoding: str
) -> None:
    label = declared.strip('"') if declared else None
    decoded = decode_text(content, label)
    assert text is None or decoded.text == text
    assert (decoded.encoding, decoded.bad) == (encoding, 0)
    if declared and not content.startswith((b"\xef", b"\xff", b"\xfe")):
        body = _page(http(content, Content_Type=f"text/html; charset={declared}"))
        assert body.facts["charset"] == encoding


@pytest.mark.parametrize(
    ("bad", "of", "problem"),
    [(0, 100, None), (1, 100, None), (2, 199, "undecodable"), (2, 200, None), (2, 201, None)],
)
def test_at_most_one_character_in_a_hundred_may_be_undecodable(
    bad: int, of: int, problem: str | None
) -> None:
    content = "ж".encode() * (of - bad) + b"\xff" * bad
    page = _page(http(content))
    assert page.problem == problem
    assert page.facts.get("undecoded", 0) == bad
    assert (page.text is None) == (problem is not None)


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffd")),
    st.sampled_from(["utf-8", "UTF8", "unicode-1-1-utf-8"]),
)
def test_utf_8_is_decoded_unchanged(text: str, label: str) -> None:
    decoded = decode_text(text.encode(), label)
    assert (decoded.encoding, decoded.bad) == ("utf-8", 0)
    assert decoded.utf8 == text.removeprefix("\ufeff").encode()


@given(st.binary(max_size=200), st.none() | st.sampled_from(["utf-8", "big5", "utf-16", "", "?"]))
def test_any_bytes_can_be_decoded(content: bytes, label: str | None) -> None:
    decoded = decode_text(content, label)
    assert decoded.utf8 == decoded.text.encode()  # no surrogates
    assert decoded.bad == decoded.text.count("\ufffd")
    assert "".encode(decoded.encoding) in (b"", b"\xff\xfe", b"\xfe\xff")
