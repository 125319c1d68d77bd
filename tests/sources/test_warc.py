"""WARC and WET: documents and damaged stretches become rows, and reading continues after damage."""

import gzip
import json
import random
import signal
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from etl import schemas, storage
from etl.errors import SourceError
from etl.sources import Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from tests.helpers.warc_archives import PACKINGS, PAGE, conversion, http, pack, record, response


@pytest.fixture(autouse=True)
def timeout() -> Iterator[None]:
    """Fail a test after 300 s: a reader must not loop forever on any file."""

    def stop(number: int, _: object) -> None:
        raise TimeoutError(f"signal {number}: the test took more than 300 s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _rows(path: Path | str, **given_settings) -> list[dict[str, Any]]:
    source = Source(path=str(path), **given_settings)
    tables = [table for split in list_splits(source) for table in read_split(split, source)]
    assert all(table.schema.equals(schemas.RAW) for table in tables)
    rows = [row for table in tables for row in table.to_pylist()]
    assert all(before["row"] < row["row"] for before, row in pairwise(rows))
    assert all((row["text"] is None) == (row["reason"] is not None) for row in rows)
    return rows


def _read(tmp_path: Path, content: bytes, name: str = "a.warc", **given_settings):
    path = tmp_path / name
    path.write_bytes(content)
    return _rows(path, **given_settings)


def _outcome(tmp_path: Path, content: bytes, **given_settings) -> list[str]:
    """The text or reason of each row."""
    return [row["reason"] or row["text"] for row in _read(tmp_path, content, **given_settings)]


def _texts(*numbers: int) -> list[str]:
    return [f"text {number}" for number in numbers]


def _wet(*numbers: int) -> list[bytes]:
    return [conversion(number, f"text {number}") for number in numbers]


def test_documents_become_rows_and_other_records_do_not(tmp_path) -> None:
    records = [
        record("warcinfo", 0, b"software: none", Content_Type="application/warc-fields"),
        record("request", 1, b"GET / HTTP/1.1\r\n\r\n", Content_Type="application/http"),
        response(2),
        record("metadata", 3, b"fetchTimeMs: 1", Content_Type="application/warc-fields"),
        record("revisit", 4, b"", Content_Type="application/http; msgtype=response"),
        record("resource", 5, b"plain words", Content_Type="text/plain"),
        conversion(6, "Wörter", WARC_Identified_Content_Language="deu,eng"),
    ]
    rows = _read(tmp_path, b"".join(records), metadata="all")
    documents: list[tuple[int, str, dict[str, Any]]] = [
        (2, PAGE.decode(), {"record": "response", "content_type": "text/html", "status": 200}),
        (5, "plain words", {"record": "resource", "content_type": "text/plain"}),
        (
            6,
            "Wörter",
            {"record": "conversion", "content_type": "text/plain", "languages": "deu,eng"},
        ),
    ]
    common = {"charset": "utf-8", "date": "2026-10-01T00:00:00Z"}
    assert rows == [
        {
            "id": f"<urn:uuid:{number}>",
            "source": f"file://{tmp_path}/a.warc",
            "row": b"".join(records).index(records[number]),
            "text": text,
            "url": f"https://example.org/{number}",
            "metadata": json.dumps({**common, **facts}, sort_keys=True, separators=(",", ":")),
            "media_type": facts["content_type"],
            "reason": None,
        }
        for number, text, facts in documents
    ]


def test_metadata_has_the_named_facts(tmp_path) -> None:
    content = response(1)
    assert _read(tmp_path, content)[0]["metadata"] is None
    [row] = _read(tmp_path, content, metadata=("status", "languages"))
    assert row["metadata"] == '{"status":200}'


@pytest.mark.parametrize("how", PACKINGS)
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst", "a.warc.wet.gz", "a.wat"])
def test_the_compression_is_detected_from_the_content(tmp_path, how: str, name: str) -> None:
    content = pack(_wet(*range(30)), how)
    rows = _read(tmp_path, content, name)
    assert [row["text"] for row in rows] == _texts(*range(30))


def test_a_url_in_angle_brackets_and_a_header_field_on_several_lines_are_read(tmp_path) -> None:
    content = record("conversion", 1, b"text", WARC_Target_URI="<https://a/>", X="one\r\n  two")
    [row] = _read(tmp_path, content)
    assert (row["url"], row["text"]) == ("https://a/", "text")


# Damage


def test_a_damaged_member_does_not_affect_the_others(tmp_path) -> None:
    for compress in (gzip.compress, zstandard.compress):
        members = [compress(each) for each in _wet(0, 1, 2)]
        broken = bytearray(members[1])
        broken[len(broken) // 2] ^= 0xFF
        for middle in (bytes(broken), members[1][:-9], members[1][:30], b"junk" * 9):
            content = members[0] + middle + members[2]
            assert _outcome(tmp_path, content) == ["text 0", "source.damaged", "text 2"]


def test_a_wrong_checksum_is_damage(tmp_path) -> None:
    members = [gzip.compress(each) for each in _wet(0, 1, 2)]
    broken = bytearray(members[1])
    broken[-6] ^= 0xFF
    content = members[0] + bytes(broken) + members[2]
    assert _outcome(tmp_path, content) == ["text 0", "source.damaged", "text 2"]


@pytest.mark.parametrize("intact", [20, 900])
def test_the_content_before_damage_in_a_large_member_is_read(tmp_path, intact: int) -> None:
    noise = random.Random(7)
    texts = [noise.randbytes(100).hex() for _ in range(1000)]
    compressor = zlib.compressobj(wbits=31)
    parts = [
        compressor.compress(conversion(n, text)) + compressor.flush(zlib.Z_SYNC_FLUSH)
        for n, text in enumerate(texts)
    ]
    content = bytearray(b"".join([*parts, compressor.flush()]))
    content[len(b"".join(parts[:intact]))] = 0xFF  # an invalid block type
    *recovered, last = _outcome(tmp_path, bytes(content))
    assert last == "source.damaged"
    assert texts[: intact - 10] == recovered[: intact - 10]
    assert len(recovered) <= intact


@pytest.mark.parametrize("how", PACKINGS)
@pytest.mark.parametrize("cut", [3, 20])
def test_a_truncated_file_ends_with_a_damaged_row(tmp_path, how: str, cut: int) -> None:
    content = pack([conversion(n, f"text {n}" * 9) for n in range(3)], how)
    rows = _read(tmp_path, content[:-cut])
    if how == "plain" and cut == 3:  # only blank lines are missing
        assert [row["reason"] for row in rows] == [None, None, None]
        return
    assert [row["reason"] for row in rows] == [None, None, "source.damaged"]
    assert rows[2]["metadata"] is not None


@pytest.mark.parametrize("how", ["plain", "gzip", "one gzip", "zstd"])
@pytest.mark.parametrize(
    "length", [0, 3, 11, 300, "7x", "-1", "", "٣", "9" * 30, None, "1 2"], ids=str
)
def test_a_wrong_length_damages_only_its_record(tmp_path, how: str, length: Any) -> None:
    bad = record("conversion", 1, b"text 1", Content_Length=length)
    content = pack([*_wet(0), bad, *_wet(2, 3)], how)
    assert _outcome(tmp_path, content) == ["text 0", "source.damaged", *_texts(2, 3)]


@pytest.mark.parametrize("junk", [b"junk", b"\nWARC/", b"WARC/x\r\n\r\n", b"x" * 200_000])
def test_records_after_junk_are_read(tmp_path, junk: bytes) -> None:
    first, second = _wet(0, 1)
    outcome = _outcome(tmp_path, first + b"\r\n\r\n" + second + b"\r\n")
    assert outcome == _texts(0, 1)  # white space is allowed
    outcome = _outcome(tmp_path, first + junk + b"\r\n" + second)
    # The length of the record before the junk cannot be verified.
    assert outcome[-1:] == ["text 1"]
    assert set(outcome[:-1]) == {"source.damaged"}


def test_a_damaged_record_has_the_id_and_url_of_its_header(tmp_path) -> None:
    [row] = _read(tmp_path, conversion(7, "text " * 100)[:-300])
    assert (row["id"], row["url"]) == ("<urn:uuid:7>", "https://example.org/7")
    metadata = json.loads(row["metadata"])
    assert metadata["error"] == "only 204 of 500 bytes are present"
    assert "WARC-Type: conversion" in metadata["raw"]


def test_a_truncated_header_is_damage(tmp_path) -> None:
    records = _wet(0, 1)
    for size in (3, 5, 12, 100):
        outcome = _outcome(tmp_path, records[0] + records[1][:size])
        assert outcome == ["text 0", "source.damaged"]


def test_padding_after_the_last_member_is_ignored(tmp_path) -> None:
    assert _outcome(tmp_path, pack(_wet(0, 1), "gzip") + b"\0" * 512) == _texts(0, 1)


def test_a_file_that_is_not_warc_is_refused(tmp_path) -> None:
    arc = b"filedesc://a.arc 0.0.0.0 20260101000000 text/plain 76\n1 0 A\nURL IP-address\n\n" * 9
    for content in (arc, gzip.compress(arc), b"PK\x03\x04" + bytes(99), b"x", b"\x1f\x8b\x08"):
        with pytest.raises(SourceError, match="not a WARC file") as caught:
            _read(tmp_path, content)
        assert "convert ARC files" in str(caught.value.hint)
    assert _read(tmp_path, b"") == []
    assert _read(tmp_path, gzip.compress(b"")) == []


_TOO_LARGE = zstandard.compress(bytes((16 << 20) + 1))


@pytest.mark.parametrize(
    "content",
    [b"\x28\xb5\x2f\xfd" + b"\xff" * 12, b"\x37\xa4\x30\xec" + b"junk" * 5, _TOO_LARGE],
    ids=["not zstd", "not a dictionary", "too large"],
)
def test_an_unusable_dictionary_is_refused(tmp_path, content: bytes) -> None:
    frame = b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content
    with pytest.raises(SourceError, match=r"a\.warc: the zstd dictionary cannot be used"):
        _read(tmp_path, frame + zstandard.compress(_wet(0)[0]))


def test_a_record_over_the_limit_is_rejected(tmp_path) -> None:
    """The limit is ``2 * max_text_bytes`` plus 1 MiB."""
    limit = 2 * 1000 + (1 << 20)
    for size, outcome in ((limit, "source.too_large"), (limit + 1, "source.too_large")):
        long = conversion(1, "x" * size)
        for how in ("plain", "gzip"):
            content = pack([*_wet(0), long, *_wet(2)], how)
            rows = _read(tmp_path, content, max_text_bytes=1000)
            assert [row["reason"] or row["text"] for row in rows] == ["text 0", outcome, "text 2"]
            assert (rows[1]["metadata"] is not None) == (size > limit)  # rejected as a record
    boundary = conversion(1, "x" * 1000) + conversion(2, "x" * 1001)
    assert _outcome(tmp_path, boundary, max_text_bytes=1000) == ["x" * 1000, "source.too_large"]
    truncated = conversion(1, "x", length=limit + 1)
    assert _outcome(tmp_path, truncated, max_text_bytes=1000) == ["source.damaged"]


_TOO_LONG = 539_000_000
"""A length above the limit of every record."""


@pytest.mark.parametrize("how", ["plain", "gzip", "one gzip", "zstd"])
@pytest.mark.parametrize("bad", [{0}, {9}, {9, 10, 29}, {*range(1, 30)}], ids=len)
@pytest.mark.parametrize("length", [1_300_000, _TOO_LONG])
def test_a_length_over_the_limit_does_not_swallow_records(
    tmp_path, how: str, bad: set[int], length: int
) -> None:
    """Neither if the file ends before the claimed end, nor if the end is inside another record."""
    noise = random.Random(0)
    texts = [noise.randbytes(50_000).hex() for _ in range(30)]
    records = [
        conversion(n, text, Content_Length=length if n in bad else len(text))
        for n, text in enumerate(texts)
    ]
    assert length > 2 * 100_000 + (1 << 20)
    outcome = _outcome(tmp_path, pack(records, how), max_text_bytes=100_000)
    assert outcome == ["source.damaged" if n in bad else text for n, text in enumerate(texts)]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_member_starts_a_record_though_no_line_feed_precedes_it(tmp_path, compress) -> None:
    for length in (300, _TOO_LONG):
        bad = conversion(1, "text", Content_Length=length).rstrip(b"\r\n")
        content = b"".join(map(compress, [*_wet(0), bad, *_wet(2)]))
        assert _outcome(tmp_path, content) == ["text 0", "source.damaged", "text 2"]


@pytest.mark.parametrize("how", ["plain", "gzip", "one gzip", "zstd"])
def test_headers_inside_a_record_over_the_limit_are_not_records(tmp_path, how: str) -> None:
    """A record that is as long as it claims is one row, even if it contains an archive."""
    archive = b"\r\n\r\n".join(_wet(*range(7_000))).decode()
    assert len(archive) > 2 * 1000 + (1 << 20)
    content = pack([*_wet(0), conversion(1, archive), *_wet(2)], how)
    outcome = _outcome(tmp_path, content, max_text_bytes=1000)
    assert outcome == ["text 0", "source.too_large", "text 2"]


def test_a_long_record_in_many_members_is_skipped(tmp_path) -> None:
    """As `bgzip` writes them: the members do not align with records."""
    content = b"".join([*_wet(0), conversion(1, "x" * (2 << 20)), *_wet(2)])
    blocks = [content[n : n + 60_000] for n in range(0, len(content), 60_000)]
    outcome = _outcome(tmp_path, b"".join(map(gzip.compress, blocks)), max_text_bytes=1000)
    assert outcome == ["text 0", "source.too_large", "text 2"]


def test_a_body_over_the_limit_after_decompression_is_rejected(tmp_path) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    content = response(1, bomb, Content_Encoding="gzip") + response(2)
    outcome = _outcome(tmp_path, content, max_text_bytes=1000)
    assert outcome == ["source.too_large", PAGE.decode()]


# Floods, segments and missing types


def _flood(line: bytes) -> bytes:
    return b"".join([*_wet(0), line * (500_000 // len(line)), *_wet(2)])


@pytest.mark.parametrize(
    "line",
    [
        b"WARC/1.0\n",
        b"WARC/1.0\r\n",
        b"WARC/1.0\r\nWARC-Type: response\r\n",
        b"WARC/1.0\r\n\r\n",
        b"WARC/1.0\r\nWARC-Type: response\r\n\r\n",
        b"WARC/1.0\r\nX: 1\r\n",
    ],
)
@pytest.mark.parametrize("how", ["plain", "one gzip"])
def test_a_flood_of_first_lines_is_one_damaged_stretch(tmp_path, line: bytes, how: str) -> None:
    for content in (_flood(line), _flood(line).replace(_wet(2)[0], b"")):
        outcome = _outcome(tmp_path, pack([content], how))
        assert outcome == ["text 0", "source.damaged", "text 2"][: len(outcome)]
        assert len(outcome) >= 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_segments_of_a_record_are_rejected(tmp_path: Path, number: int) -> None:
    fields = {"WARC_Segment_Number": number}
    if number == 1:
        segment = response(1).replace(b"WARC-Type", b"WARC-Segment-Number: 1\r\nWARC-Type")
    else:
        segment = record("continuation", 1, b"the rest of a page", **fields)
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join([*_wet(0), segment, *_wet(2)]))
    rows = _rows(path)
    assert [row["reason"] or row["text"] for row in rows] == [
        "text 0",
        "source.segmented",
        "text 2",
    ]
    assert f"segment {number} of a longer one" in rows[1]["metadata"]
    assert rows[1]["url"] == "https://example.org/1"


@pytest.mark.parametrize(
    "content_type", [None, "", "text/html", "application/http; msgtype=response"]
)
def test_an_http_header_is_never_text(tmp_path: Path, content_type: str | None) -> None:
    block = http(PAGE)
    content = record("response", 1, block, Content_Type=content_type)
    assert _outcome(tmp_path, content) == [PAGE.decode()]
    bitmap = record("response", 1, http(b"BM" + bytes(200)), Content_Type=content_type)
    assert _outcome(tmp_path, bitmap) == ["source.not_text"]


def test_a_body_that_ends_early_is_text_with_a_note(tmp_path: Path) -> None:
    body = b"%x\r\n" % len(PAGE) + PAGE[:-10]
    path = tmp_path / "a.warc"
    path.write_bytes(response(1, body, Transfer_Encoding="chunked"))
    (row,) = _rows(path, metadata=("damage",))
    assert row["text"] == PAGE[:-10].decode()
    assert json.loads(row["metadata"]) == {"damage": "chunked: the body ends inside a chunk"}


# Properties

_BLOCKS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
    | st.sampled_from(
        ["a\r\n\r\nWARC/1.0\r\nWARC-Type: conversion\r\n", "\r\n\r\n", "\x1f\x8b\x08"]
    ),
    max_size=6,
)


@given(_BLOCKS, st.sampled_from(["plain", "gzip", "one gzip", "zstd"]))
def test_every_record_is_read_unchanged(tmp_path_factory, texts, how) -> None:
    path = tmp_path_factory.mktemp("warc") / "a.warc"
    path.write_bytes(pack([conversion(n, text) for n, text in enumerate(texts)], how))
    bom = "\ufeff"
    expected = [text.removeprefix(bom) for text in texts]
    rows = _rows(path)
    assert [row["text"] for row in rows] == [text if text.strip() else None for text in expected]


@settings(max_examples=100)
@given(
    st.sampled_from(["plain", "gzip", "one gzip", "zstd"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=8)), max_size=3),
    st.floats(0, 1),
)
def test_damage_never_crashes_or_changes_a_text(tmp_path_factory, how, edits, cut) -> None:
    texts = [f"text {n} " * (1 + 40 * n) for n in range(5)]
    content = bytearray(pack([conversion(n, text) for n, text in enumerate(texts)], how))
    del content[int(cut * len(content)) + 1 :]
    for fraction, piece in edits:
        offset = int(fraction * len(content))
        content[offset : offset + len(piece)] = piece
    path = tmp_path_factory.mktemp("warc") / "a.warc"
    path.write_bytes(bytes(content))
    try:
        rows = _rows(path)
    except SourceError:  # no record remains
        rows = []
    if how in ("plain", "one gzip"):  # no checksum, or only one at the end: a text may change
        return
    texts_read = {row["id"]: row["text"] for row in rows if row["reason"] is None}
    assert texts_read.items() <= {f"<urn:uuid:{n}>": text for n, text in enumerate(texts)}.items()


@given(st.sampled_from([gzip.compress, zstandard.compress]), st.integers(0, 900))
def test_the_records_before_a_cut_are_read(tmp_path_factory, compress, cut: int) -> None:
    members = [compress(each) for each in _wet(0, 1, 2)]
    intact = [n for n in range(3) if len(b"".join(members[: n + 1])) <= cut]
    remaining = cut - len(b"".join(members[: len(intact)]))
    path = tmp_path_factory.mktemp("warc") / "a.warc"
    path.write_bytes(b"".join(members)[:cut])
    expected = _texts(*intact) + ["source.damaged"] * (remaining > 0 and len(intact) < 3)
    try:
        assert [row["reason"] or row["text"] for row in _rows(path)] == expected
    except SourceError:
        assert expected == ["source.damaged"]


@pytest.mark.slow
def test_warc_files_in_an_object_store_are_read(s3: str) -> None:
    content = pack(_wet(*range(50)), "gzip")
    broken = content[: len(content) // 2] + b"junk" + content[len(content) // 2 + 4 :]
    for name, each in (("a.warc.gz", content), ("b.warc.wet.gz", broken)):
        with storage.open_output(f"{s3}/crawl/{name}") as file:
            file.write(each)
    assert [row["text"] for row in _rows(f"{s3}/crawl/a.warc.gz")] == _texts(*range(50))
    reasons = Counter(row["reason"] for row in _rows(f"{s3}/crawl/b.warc.wet.gz"))
    assert reasons["source.damaged"] == 1
    assert reasons[None] >= 48


# Archives of other projects

_NOT_WARC = "not a WARC file"
_EXPECTED: dict[str, dict[str, int] | str] = {
    "dolma/sample-0000.warc.gz": {"kept": 24},
    "dolma/sample-0001.warc.gz": {"kept": 17},
    "chatnoir-resiliparse/block-sized-records.warc": {},
    "chatnoir-resiliparse/block-sized-records.warc.gz": {},
    "chatnoir-resiliparse/clipped.warc.gz": {"damaged": 1},
    "chatnoir-resiliparse/clueweb-quirk.warc.gz": {"kept": 29},
    "chatnoir-resiliparse/warcfile.warc": {"kept": 16},
    "chatnoir-resiliparse/warcfile.warc.gz": {"kept": 16},
    "ia-web-commons/IAH-20080430204825-00000-blackbook-truncated.arc": _NOT_WARC,
    "ia-web-commons/IAH-urls-wget.warc.gz": {"http_status": 9, "kept": 7, "not_text": 3},
    "ia-web-commons/IAH-urls-wget.warc": {"http_status": 9, "kept": 7, "not_text": 3},
    "ia-web-commons/mutliple-headers.warc": {"kept": 1},
    "ia-web-commons/html-lang-attribute.warc": {"kept": 5},
    "ia-web-commons/link-extraction-test.warc": {"kept": 9},
    "ia-web-commons/meta-itemprop.warc": {"kept": 1},
    "ia-web-commons/text-extraction-test.warc": {"kept": 1, "not_text": 1},
    "ia-web-commons/title-extraction-embedded-SVG.warc": {"kept": 1},
    "whirlwind-python/whirlwind.warc": {"kept": 1},
    "whirlwind-python/whirlwind.warc.gz": {"kept": 1},
    "whirlwind-python/whirlwind.warc.wat": {},
    "whirlwind-python/whirlwind.warc.wat.gz": {},
    "whirlwind-python/whirlwind.warc.wet": {"kept": 1},
    "whirlwind-python/whirlwind.warc.wet.gz": {"kept": 1},
    "jwarc/cc.warc.gz": {"kept": 1},
    "jwarc/gzip_extra_sl.warc.gz": {},
    "warc-specifications/hello-world.warc": {"kept": 3},
    "warc-specifications/hello-world.warc.gz": {"kept": 3},
    "warc-specifications/20130729-heritrix-original.warc.gz": {"kept": 1},
    "warc-specifications/20130729-heritrix-revisit-with-http-headers.warc.gz": {},
    "warc-specifications/20141124-heritrix-server-not-modified.warc.gz": {},
    "warc-specifications/20141129-heritrix-original.warc.gz": {"kept": 1},
    "warc-specifications/20141129-heritrix-revisit-with-http-headers-and-new-warc-headers.warc.gz": {},
    "pywb/invalid_example_1.wacz": _NOT_WARC,
    "pywb/valid_example_1.wacz": _NOT_WARC,
    "pywb/bad.arc": _NOT_WARC,
    "pywb/dupes.warc.gz": {"http_status": 1, "kept": 1, "not_text": 1},
    "pywb/example-extra.warc": {"kept": 1, "malformed": 1},
    "pywb/example-url-agnostic-orig.warc.gz": {"kept": 1},
    "pywb/example-url-agnostic-revisit.warc.gz": {},
    "pywb/example-wget-1-14.warc.gz": {"kept": 4},
    "pywb/example-wpull.warc.gz": {"kept": 2},
    "pywb/example.arc": _NOT_WARC,
    "pywb/example.arc.gz": _NOT_WARC,
    "pywb/example.warc": {"damaged": 1, "http_status": 1, "kept": 1},
    "pywb/example.warc.gz": {"http_status": 1, "kept": 1},
    "pywb/example2.warc.gz": {"kept": 1},
    "pywb/httpbin-resource.warc.gz": {"not_text": 1},
    "pywb/iana.warc.gz": {"http_status": 4, "kept": 16, "not_text": 28},
    "pywb/missing-status-text.warc": {"http_status": 1},
    "pywb/post-test.warc.gz": {"not_text": 3},
    "warcio/bad.arc": _NOT_WARC,
    "warcio/example-bad-non-chunked.warc.gz": {"kept": 1},
    "warcio/example-digest.warc": {},
    "warcio/example-iana.org-chunked.warc": {"kept": 1},
    "warcio/example-resource.warc.gz": {"kept": 1},
    "warcio/example-space-in-target-uri.warc.gz": {"not_text": 1},
    "warcio/example-space-in-url.arc": _NOT_WARC,
    "warcio/example-trunc.warc": {"kept": 1},
    "warcio/example-wget-bad-target-uri.warc.gz": {"kept": 3},
    "warcio/example-wrong-chunks.warc.gz": {"kept": 1},
    "warcio/example.arc": _NOT_WARC,
    "warcio/example.arc.gz": _NOT_WARC,
    "warcio/example.warc": {"kept": 1},
    "warcio/example.warc.gz": {"kept": 1},
    "warcio/post-test.warc.gz": {"not_text": 3},
}
"""Documents of each ``project/file`` by outcome; many files are damaged on purpose."""


def test_archives_of_other_projects_are_read(data) -> None:
    outcomes: dict[str, dict[str, int] | str] = {}
    for path in sorted((data / "raw" / "warc").rglob("*.*")):
        if not path.is_file():
            continue
        project = path.relative_to(data / "raw" / "warc").parts[0].partition("+")[2]
        try:
            rows = _rows(path, format="warc", metadata="all")
        except SourceError as error:
            outcomes[f"{project}/{path.name}"] = (
                _NOT_WARC if _NOT_WARC in error.what else error.what
            )
            continue
        reasons = Counter((row["reason"] or "source.kept").partition(".")[2] for row in rows)
        outcomes[f"{project}/{path.name}"] = dict(reasons)
    assert outcomes == _EXPECTED


def test_pages_of_a_crawl_are_read(data) -> None:
    pages = _rows(data / "web" / "mdn-pages.warc.gz", metadata=("charset", "undecoded"))
    texts = _rows(data / "web" / "mdn-pages.warc.wet.gz")
    assert len(pages) == len(texts) == 2040
    assert {row["reason"] for row in pages + texts} == {None}
    metadata = Counter(row["metadata"] for row in pages)
    assert metadata.pop('{"charset":"utf-8"}') == 2037  # three pages contain U+FFFD
    assert metadata.total() == 3
    assert [row["url"] for row in pages] == [row["url"] for row in texts]


def test_a_record_whose_url_is_not_utf8_is_rejected(tmp_path) -> None:
    content = b"".join([response(1), response(2).replace(b"example.org/2", b"example.org/\xff")])
    good, bad = _read(tmp_path, content)
    assert (good["url"], good["reason"]) == ("https://example.org/1", None)
    assert (bad["url"], bad["reason"]) == (None, "source.invalid_utf8")
    assert "byte 0xff at character 20 of the url" in json.loads(bad["metadata"])["error"]
