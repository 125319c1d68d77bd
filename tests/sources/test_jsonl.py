"""JSON Lines: a bad line is a row with a reason, and cutting a file does not change its rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from etl import schemas
from etl.errors import SourceError
from etl.sources import Columns, Source, Split
from etl.sources.formats import byte_lines, jsonl
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split


def _rows(source: Source, batch_bytes: int = 16 << 20) -> list[dict[str, Any]]:
    splits = list(list_splits(source))
    cut = any(split.first_row is None for split in splits)
    splits = list(
        number_splits(splits, [count_records(split) if cut else None for split in splits])
    )
    tables = [
        table for split in splits for table in read_split(split, source, batch_bytes=batch_bytes)
    ]
    assert all(table.schema.equals(schemas.RAW) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def _read(
    tmp_path: Path, content: bytes, name: str = "a.jsonl", **settings
) -> list[dict[str, Any]]:
    path = tmp_path / name
    path.write_bytes(content)
    return _rows(Source(path=str(path), **settings))


def _outcome(tmp_path: Path, content: bytes, **settings) -> list[tuple[int, str | None]]:
    """The number of each row, and its text or reason."""
    rows = _read(tmp_path, content, **settings)
    assert all((row["text"] is None) == (row["reason"] is not None) for row in rows)
    return [(row["row"], row["reason"] or row["text"]) for row in rows]


def test_records_become_rows(tmp_path) -> None:
    content = (
        b'{"body": "one", "key": 7, "link": "http://a", "score": 0.5, "tags": ["x", {"b": 1, "a": 2}]}\n'
        b'{"link": null, "key": "k", "body": "zw\xc3\xb6lf \\u00e4 \\ud83d\\ude00", "score": NaN}\n'
    )
    columns = Columns(text="body", id="key", url="link")
    rows = _read(tmp_path, content, columns=columns, metadata="all")
    uri = f"file://{tmp_path}/a.jsonl"
    assert rows == [
        {
            "id": "7",
            "source": uri,
            "row": 0,
            "text": "one",
            "url": "http://a",
            "metadata": '{"score":0.5,"tags":["x",{"a":2,"b":1}]}',
            "media_type": None,
            "reason": None,
        },
        {
            "id": "k",
            "source": uri,
            "row": 1,
            "text": "zwölf ä 😀",
            "url": None,
            "metadata": '{"score":"nan"}',
            "media_type": None,
            "reason": None,
        },
    ]


def test_metadata_has_the_named_keys_or_is_null(tmp_path) -> None:
    content = b'{"text": "a", "b": 1, "c": 2}\n{"text": "a", "c": 3}\n'
    rows = _read(tmp_path, content, metadata=("b", "none"))
    assert [row["metadata"] for row in rows] == ['{"b":1}', "{}"]
    assert [row["metadata"] for row in _read(tmp_path, content)] == [None, None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12345678901234567890123456789", "12345678901234567890123456789"),
        ('"007"', "007"),
        ("true", "true"),
        ("null", None),
        ("[1, 2]", "[1,2]"),
        ("1.0", "1.0"),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_an_id_of_any_type_becomes_text(tmp_path, value: str, text: str | None) -> None:
    content = b'{"text": "a", "id": %s}' % value.encode()
    assert _read(tmp_path, content, columns=Columns(id="id"))[0]["id"] == text


@pytest.mark.parametrize("value", ["1e16", "1e400", "NaN", "9007199254740993.0"])
def test_a_number_that_may_be_rounded_is_not_an_id(tmp_path, value: str) -> None:
    content = b'{"text": "a", "id": %s}' % value.encode()
    [row] = _read(tmp_path, content, columns=Columns(id="id"))
    assert row["reason"] == "source.malformed"
    assert "is not exact" in json.loads(row["metadata"])["error"]


@pytest.mark.parametrize("field", ["id", "url", "metadata"])
@pytest.mark.parametrize("value", [b"\xff", b"\\ud800"])
def test_a_record_with_a_string_that_is_not_unicode_is_rejected(tmp_path, field, value) -> None:
    key = "k" if field == "metadata" else field
    content = b'{"text": "a", "%s": "b%s"}\n{"text": "c"}' % (key.encode(), value)
    columns = Columns(id="id", url="url")
    rows = _read(tmp_path, content, columns=columns, metadata=("k",))
    assert [row["reason"] for row in rows] == ["source.invalid_utf8", None]
    assert [(row["id"], row["url"], row["text"]) for row in rows[:1]] == [(None, None, None)]
    assert f"of the {field} is not UTF-8" in json.loads(rows[0]["metadata"])["error"]


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (b'{"text": "a"', "source.malformed"),
        (b'{"text": "a"} {"text": "b"}', "source.malformed"),
        (b"[1, 2]", "source.malformed"),
        (b"nonsense", "source.malformed"),
        ("\u3000\x0b".encode(), "source.malformed"),
        (b'{"text": "raw\ttab"}', "source.malformed"),
        (b"[" * 100_000, "source.malformed"),
        (b'{"text": ' + b"9" * 5000 + b"}", "source.malformed"),
        (b'{"text": 5}', "source.malformed"),
        (b'{"text": NaN}', "source.malformed"),
        (b'{"text": {"nested": "a"}}', "source.malformed"),
        (b'\xef\xbb\xbf{"text": "mark in the middle"}', "source.malformed"),
        (b'{"Text": "a"}', "source.no_text"),
        (b"{}", "source.no_text"),
        (b'{"text": null}', "source.null_text"),
        (b'{"text": ""}', "source.empty_text"),
        ('{"text": " \\n\\u3000\u2028"}'.encode(), "source.empty_text"),
        (b'{"text": "\xff"}', "source.invalid_utf8"),
        (b'{"text": "\xed\xa0\x80"}', "source.invalid_utf8"),
        (b'{"text": "\\ud800"}', "source.invalid_utf8"),
        (b'{"text": "\\udc00\\ud800"}', "source.invalid_utf8"),
        (b'{"text": "123456789"}', "source.too_large"),
        ('{"text": "äöüßé"}'.encode(), "source.too_large"),
        (b'{"text": "12345678"}', "12345678"),
        (b'{"text": "a", "text": "b"}', "b"),
        (b'{"text": "a", "other": "\xff"}', "a"),
        (b'{"text": "\\u0000"}', "\x00"),
        ('{"text": "a\u2028\x85\x0b"}'.encode(), None),
        (b' \t{"text": "a"} \r', "a"),
    ],
)
def test_a_bad_line_does_not_affect_its_neighbours(
    tmp_path, line: bytes, outcome: str | None
) -> None:
    good = b'{"text": "good"}'
    rows = _outcome(tmp_path, b"\n".join((good, line, good)), max_text_bytes=8)
    if outcome is None:  # U+000B is a control character; U+2028 and U+0085 do not end a line
        outcome = "source.malformed"
    assert rows == [(0, "good"), (1, outcome), (2, "good")]


def test_the_metadata_of_a_bad_line_has_the_error_and_the_line(tmp_path) -> None:
    lines_ = [b'{"text": "a",}', b"x" * 5000, b'{"text": "abc\xffdef"}', b'{"body": "a"}', b'"a"']
    rows = _read(tmp_path, b"\n".join(lines_))
    errors = [json.loads(row["metadata"]) for row in rows]
    assert errors[0]["raw"] == '{"text": "a",}'
    assert "line 1 column 1" in errors[0]["error"]
    assert errors[1]["raw"] == "x" * 1000
    assert errors[2] == {"error": "byte 0xff at character 3 is not UTF-8", "raw": "abc\ufffddef"}
    assert errors[3]["error"] == "the object has no key 'text'"
    assert errors[4]["error"] == "expected a JSON object, found str"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"\n\n \t\r\n", []),
        (b'\n{"text": "a"}\n\n{"text": "b"}', [(1, "a"), (3, "b")]),
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', [(0, "a"), (1, "b")]),
        (b'\xef\xbb\xbf{"text": "a"}\n', [(0, "a")]),
    ],
)
def test_blank_lines_are_counted_but_are_not_rows(
    tmp_path, content: bytes, rows: list[Any]
) -> None:
    assert _outcome(tmp_path, content) == rows


def test_a_line_over_the_limit_is_rejected(tmp_path) -> None:
    long = b'{"text": "a", "more": "%s"}' % (b"x" * ((3 << 20) - 100))
    content = b"\n".join((b'{"text": "a"}', long, b'{"text": "b"}', long))
    rows = _outcome(tmp_path, content, max_text_bytes=1 << 20)
    assert rows == [(0, "a"), (1, "a"), (2, "b"), (3, "a")]  # the limit is 3 MiB
    rows = _outcome(tmp_path, content, max_text_bytes=1000)
    assert rows == [(0, "a"), (1, "source.too_large"), (2, "b"), (3, "source.too_large")]


_gzip = gzip.compress
_zstd = zstandard.compress
_TWO = (b'{"text": "a"}\n{"te', b'xt": "b"}\n')


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", _gzip(_TWO[0]) + _gzip(b"") + _gzip(_TWO[1])),
        ("a.json.zst", _zstd(_TWO[0]) + _zstd(_TWO[1])),
        ("A.NDJSON", b"".join(_TWO)),
    ],
    ids=["gzip", "zstd", "plain"],
)
def test_all_members_of_a_compressed_file_are_read(tmp_path, name: str, content: bytes) -> None:
    rows = _read(tmp_path, content, name, split_bytes=1 if name.endswith(("gz", "zst")) else 1000)
    assert [(row["row"], row["text"]) for row in rows] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_the_error_for_a_truncated_file_has_the_number_of_readable_records(
    tmp_path, name: str
) -> None:
    record = json.dumps({"text": "words of text " * 20}).encode() + b"\n"
    content = (_gzip if name.endswith("gz") else _zstd)(record * 10_000)
    with pytest.raises(SourceError) as caught:
        _read(tmp_path, content[:-10], name)
    kind = "gzip" if name.endswith("gz") else "zstd"
    assert f"{name}: the {kind} stream is damaged or truncated" in str(caught.value)
    records = int(caught.value.what.rsplit(";")[1].split()[0])
    assert 9_000 < records <= 10_000


def test_damage_after_valid_rows_is_reported(tmp_path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(_gzip(b'{"text": "a"}\n') + b"junk")
    source = Source(path=str(path))
    [split] = list_splits(source)
    with pytest.raises(SourceError, match="damaged"):
        list(read_split(split, source))


def test_a_file_that_is_not_gzip_is_refused(tmp_path) -> None:
    with pytest.raises(SourceError, match=r"no gzip member starts at byte 0.*; 0 records"):
        _read(tmp_path, b'{"text": "a"}\n', "a.jsonl.gz")
    assert _read(tmp_path, b"", "a.jsonl.gz") == []


# Cutting

_LINES = st.sampled_from(
    [
        b"",
        b" \r",
        b'{"text": "a"}',
        b'{"text": "\xc3\xa4\xe6\xbc\xa2"}\r',
        b"{",
        b'{"text": "\xff"}',
    ]
    + [b'{"text": "%s"}' % (b"x" * length) for length in (7, 40)]
)


@example([b"", b""], 1, 1)
@given(st.lists(_LINES, max_size=12), st.integers(1, 70), st.integers(1, 100))
def test_cutting_a_file_does_not_change_its_rows(
    tmp_path_factory, lines: list[Any], split_bytes, batch_bytes
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    whole = _rows(Source(path=str(path)))
    assert [row["row"] for row in whole] == [i for i, line in enumerate(lines) if line.strip()]
    assert _rows(Source(path=str(path), split_bytes=split_bytes), batch_bytes) == whole


@given(st.binary(max_size=40).map(lambda b: b.replace(b"a", b"\n")), st.integers(1, 9))
def test_a_line_belongs_to_the_piece_in_which_it_starts(content: bytes, step: int) -> None:
    starts = [0] + [i + 1 for i, byte in enumerate(content) if byte == 10]
    starts = [start for start in starts if start < len(content)]
    file = pa.BufferReader(content)
    for begin in range(0, len(content), step):
        stop = min(begin + step, len(content))
        split = Split(
            uri="", size=len(content), fingerprint="", format="jsonl", start=begin, stop=stop
        )
        assert byte_lines.count_lines(file, split) == sum(begin <= start < stop for start in starts)
        assert byte_lines.find_line_start(file, begin) == min(
            [s for s in starts if s >= begin] or [len(content)]
        )


@given(
    st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), min_size=1),
    st.integers(1, 20),
    st.integers(1, 12),
)
def test_blocks_have_whole_lines_and_shorten_long_ones(written, read_bytes, max_line_bytes) -> None:
    content = b"\n".join(written)
    chunks = [content[n : n + read_bytes] for n in range(0, len(content), read_bytes)]
    blocks = list(byte_lines.read_blocks(chunks, max_line_bytes=max_line_bytes, is_start=True))
    found = "".join(blocks).removeprefix("\ufeff").encode("utf-8", "surrogateescape").split(b"\n")
    expected = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert all(block.endswith("\n") for block in blocks[:-1])
    assert len(found) == len(expected)
    for read_line, line in zip(found, expected, strict=True):
        if len(line) <= max_line_bytes:
            assert read_line == line
        else:
            assert line.startswith(read_line[:max_line_bytes])
            assert max_line_bytes < len(read_line) <= max(max_line_bytes + read_bytes, len(line))


def test_a_byte_order_mark_is_removed_only_at_the_start() -> None:
    content = "\ufeff1\n\ufeff2\n".encode()
    for start, expected in ((0, ["1\n", "\ufeff2\n"]), (5, ["\ufeff2\n"])):
        chunks = [content[start:][:5], content[start:][5:]]
        blocks = byte_lines.read_blocks(chunks, max_line_bytes=9, is_start=start == 0)
        assert list(blocks) == expected


def test_a_piece_after_an_uncounted_one_is_refused(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' * 3)
    source = Source(path=str(path), split_bytes=14)
    first, second, third = number_splits(list(list_splits(source)), [1, None, 1])
    assert [s.first_row for s in (first, second, third)] == [0, 1, None]
    assert [row["row"] for table in read_split(second, source) for row in table.to_pylist()] == [1]
    with pytest.raises(SourceError, match="not been counted"):
        list(read_split(third, source))


@pytest.mark.parametrize("name", ["mdn-text-sample.jsonl.gz", "mdn-text-sample.jsonl.zst"])
def test_real_files_are_read_unchanged(data, name: str) -> None:
    path = data / "raw" / name
    if name.endswith("gz"):
        content = gzip.decompress(path.read_bytes())
    else:
        content = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    texts = [json.loads(line)["text"] for line in content.splitlines()]
    rows = _rows(Source(path=str(path)), batch_bytes=1 << 20)
    assert [row["text"] for row in rows] == [text if text.strip() else None for text in texts]
    assert [row["row"] for row in rows] == list(range(len(texts)))


_BLANKS = st.sampled_from(["", " ", "\t\r", "\r", "  "])
_SHORT = st.sampled_from(['{"text": "a"}', ' {"text": "b"}\r', "{", "[]"])


@given(st.lists(_BLANKS | _SHORT, min_size=1, max_size=30), st.booleans())
def test_lines_keep_their_numbers_among_many_blank_ones(lines: list[str], has_end: bool) -> None:
    block = "\n".join(lines) + "\n" * has_end
    if not block:  # there are no empty blocks
        return
    numbered, after = jsonl._number_lines(block, 7)
    filled = [(number, line) for number, line in numbered if line.strip()]
    expected = block.removesuffix("\n").split("\n")
    assert filled == [(n, line) for n, line in enumerate(expected, 7) if line.strip()]
    assert after == 7 + len(expected)
