"""Bodies of responses: each coding that a body has is undone as far as it is readable, and no other."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etl.sources.formats.http_response import parse_response
from etl.sources.layers.bodies import Body, decode_body
from etl.sources.layers.chunked_transfer import undo_chunks

TEXT = " ".join(f"Ferry {hash((n, 1))} crossed the wide river." for n in range(10_000)).encode()
_LIMIT = 1 << 20


def _raw_deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def _chunked(
    content: bytes, size: int = 997, extension: bytes = b"", end: bytes = b"0\r\n\r\n"
) -> bytes:
    parts = [content[n : n + size] for n in range(0, len(content), size)]
    chunks = (b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
    return b"".join(chunks) + end


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate without a header": _raw_deflate,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "chunked": _chunked,
    "chunked with extensions": lambda content: _chunked(content, extension=b' ; id="7"'),
    "chunked with trailers": lambda content: _chunked(content, end=b"0\r\nX: 1\r\nY: 2\r\n\r\n"),
    "chunked in one": lambda content: _chunked(content, len(content) or 1),
    "chunked with bare line feeds": lambda content: _chunked(content).replace(b"\r\n", b"\n"),
}


def _coding(name: str) -> str:
    return name.partition(" ")[0]


_NAMES = st.lists(st.sampled_from(sorted(PACK)), max_size=3)


@given(_NAMES, st.sampled_from([b"", TEXT[:9000], b"<p>short</p>", "漢字のページ".encode() * 9]))
def test_any_codings_are_undone(names: list[str], content: bytes) -> None:
    body = content
    for name in names:
        if name == "chunked with bare line feeds" and b"\r\n" in body:
            name = "chunked"  # noqa: PLW2901 - the helper replaces those of the body too
        body = PACK[name](body)
    if not content and not all(name == "chunked" for name in names):
        return  # an empty member is not distinguishable from none
    assert decode_body(body, [_coding(name) for name in names], _LIMIT) == Body(content)


@given(_NAMES, st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_bodies_that_are_stored_decoded_stay_as_they_are(names: list[str], content: bytes) -> None:
    if not content.startswith((b"\x1f\x8b", b"\x28\xb5")) and b"\r" not in content:
        assert (
            decode_body(b"<p>" + content, [*map(_coding, names)], _LIMIT).content
            == b"<p>" + content
        )


@pytest.mark.parametrize("name", sorted(PACK))
def test_a_cut_body_is_readable_up_to_its_end(name: str) -> None:
    """All of the content that is there is returned, with the reason why it ends."""
    packed = PACK[name](TEXT)
    sizes = []
    for cut in range(len(packed) - 1, 0, -len(packed) // 20):
        body = decode_body(packed[:cut], [_coding(name)], _LIMIT)
        if body.damage:
            assert TEXT.startswith(body.content)
            sizes.append(len(body.content))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0.7 * len(TEXT)
    assert len(sizes) > 10


@pytest.mark.parametrize("name", ["gzip", "deflate", "deflate without a header", "br", "zstd"])
def test_a_compressed_body_in_cut_chunks_is_readable(name: str) -> None:
    body = _chunked(PACK[name](TEXT), 2000)[:-300]
    content, damage = decode_body(body, [_coding(name), "chunked"], _LIMIT)
    assert TEXT.startswith(content)
    assert len(content) > len(TEXT) // 2
    assert damage[0].startswith("chunked: the body ends inside a chunk")


def test_what_follows_a_compressed_body_is_ignored() -> None:
    for name in ("gzip", "deflate", "deflate without a header", "br", "zstd"):
        for rest in (b"\r\n", b"\0" * 99, b"trailing text"):
            assert decode_body(PACK[name](TEXT) + rest, [_coding(name)], _LIMIT) == Body(TEXT)
    assert decode_body(gzip.compress(TEXT) + gzip.compress(b"more"), ["gzip"], _LIMIT) == Body(
        TEXT + b"more"
    )


@pytest.mark.parametrize(
    "names", [[], ["utf-8"], ["identity", "br"], ["deflate"], ["gzip", "gzip"]]
)
def test_a_body_that_starts_like_gzip_is_decompressed_whatever_is_declared(names) -> None:
    assert decode_body(gzip.compress(TEXT), names, _LIMIT) == Body(TEXT)


@pytest.mark.parametrize(
    "name",
    [
        "gzip",
        "deflate",
        "deflate without a header",
        pytest.param("br", marks=pytest.mark.slow),  # to compress it takes 6 s
        "zstd",
    ],
)
def test_a_bomb_ends_at_the_limit(name: str) -> None:
    body = PACK[name](bytes(200 << 20))
    content, _ = decode_body(body, [_coding(name)] * 3, 1000)
    assert 1000 < len(content) <= 40 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"fa0",
        b"fade\nto black",
        b"0\nis the first number",
        b"1\r\n00:00:01,000 --> 00:00:02,000\r\nA subtitle",
        b"5\r\nmore than five bytes",
    ],
)
def test_a_body_without_chunks_is_recognized(body: bytes) -> None:
    assert undo_chunks(body) is None


@pytest.mark.parametrize(
    ("body", "content", "why"),
    [
        (b"3\r\nabc\r\n", b"abc", "ends before the last chunk"),
        (b"3\r\nabc", b"abc", "ends before the last chunk"),
        (b"3\r\nabc\r\n4\r\nde", b"abcde", "ends inside a chunk"),
        (b"3\r\nabc\r\n4", b"abc", "no chunk starts at byte 8"),
        (b"3\r\nabc\r\n<p>", b"abc", "no chunk starts at byte 8"),
        (b"3\r\nabc\r\n2\r\ndefg\r\n0\r\n\r\n", b"abcde", "does not have its size"),
        (b"0003\r\nabc\r\n000\r\n\r\n", b"abc", None),
        (b"3   \r\nabc\r\n0;x\r\n", b"abc", None),
        (b"0\r\n\r\n", b"", None),
    ],
)
def test_chunks_end_where_they_are_damaged(body: bytes, content: bytes, why: str | None) -> None:
    result = undo_chunks(body)
    assert result is not None
    assert result[0] == content
    assert (result[1] is None) == (why is None)
    assert (why or "") in (result[1] or "")


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Encoding: gzip, br",
        "Content-Encoding: gzip\r\nContent-Encoding: br",
        "content-encoding : GZIP ,\r\n br",
        "Transfer-Encoding: br\r\nContent-Encoding: x-gzip",
        "Content-Encoding: identity, gzip, , br",
    ],
)
def test_all_lines_and_values_of_the_fields_count(lines: str) -> None:
    body = brotli.compress(gzip.compress(TEXT))
    block = f"HTTP/1.1 200 OK\r\n{lines}\r\nContent-Type: a/B;\r\n c\r\n\r\n".encode() + body
    response = parse_response(block, _LIMIT)
    assert (response.status, response.content_type, response.body) == (200, "a/b; c", TEXT)


def test_too_many_codings_are_refused() -> None:
    for count, refused in ((5, False), (6, True)):
        codings = ", ".join(["gzip"] * count)
        block = f"HTTP/1.1 200 OK\r\nContent-Encoding: {codings}\r\n\r\nx".encode()
        assert (parse_response(block, _LIMIT).error is not None) == refused
