"""CSV and TSV: quoting, bad records, and headers."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources import Columns, Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split


def _read(tmp_path: Path, content: bytes, name: str = "a.csv", **settings) -> list[dict[str, Any]]:
    path = tmp_path / name
    path.write_bytes(content)
    source = Source(path=str(path), **settings)
    tables = [table for split in list_splits(source) for table in read_split(split, source)]
    return [row for table in tables for row in table.to_pylist()]


def _outcome(tmp_path: Path, content: bytes, **settings) -> list[tuple[int, str]]:
    rows = _read(tmp_path, content, **settings)
    return [(row["row"], row["reason"] or row["text"]) for row in rows]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv"])
def test_records_become_rows(tmp_path, name: str) -> None:
    content = '\ufeffkey,body,lang\r\n1,"two\r\nlines, ""quoted""",de\r\n\r\n2,a\u2028b,'.encode()
    if name == "a.tsv":
        content = content.replace(b",", b"\t")
    if name.endswith("gz"):
        content = gzip.compress(content)
    columns = Columns(text="body", id="key")
    rows = _read(tmp_path, content, name, columns=columns, metadata="all")
    comma = "\t" if name == "a.tsv" else ","
    assert [(row["row"], row["id"], row["text"], row["metadata"]) for row in rows] == [
        (0, "1", f'two\r\nlines{comma} "quoted"', '{"lang":"de"}'),
        (1, "2", "a\u2028b", '{"lang":""}'),
    ]
    assert {row["source"] for row in rows} == {f"file://{tmp_path}/{name}"}


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (b'1,"a"b', "source.malformed"),
        (b"1", "source.malformed"),
        (b"1,a,b", "source.malformed"),
        (b"1,", "source.empty_text"),
        (b'1," \n "', "source.empty_text"),
        (b"1,\xff", "source.invalid_utf8"),
        (b"\xff,a", "a"),
        (b"1,123456789", "source.too_large"),
        (b"1,12345678", "12345678"),
        (b"1,a\x00b", "a\x00b"),
        (b"1,a\rb", "source.malformed"),
    ],
)
def test_a_bad_record_does_not_affect_its_neighbours(tmp_path, record: bytes, outcome: str) -> None:
    content = b"id,text\n0,good\n" + record + b"\n2,good\n"
    rows = _outcome(tmp_path, content, max_text_bytes=8)
    assert rows == [(0, "good"), (1, outcome), (2, "good")]


def test_the_metadata_of_a_bad_record_has_the_error_and_the_record(tmp_path) -> None:
    rows = _read(tmp_path, b'id,text\n1\n2,"open\nto the end,,\n')
    assert [json.loads(row["metadata"]) for row in rows] == [
        {"error": "the number of fields is 1, but the header has 2", "raw": "1\n"},
        {"error": "unexpected end of data", "raw": '2,"open\n'},
        {"error": "the number of fields is 3, but the header has 2", "raw": "to the end,,\n"},
    ]


@pytest.mark.parametrize("lines", [3, 3000])
@pytest.mark.parametrize("end", [b"", b'"b"\n', b'a"b"\n'])
def test_an_unclosed_quote_costs_one_line(tmp_path, lines: int, end: bytes) -> None:
    """Whether the file ends, another quote follows, or the record becomes too large."""
    content = b'text\na\n"open\n' + (b"x" * 999 + b"\n") * lines + end
    rows = _outcome(tmp_path, content, max_text_bytes=1000)
    reason = "source.too_large" if lines == 3000 else "source.malformed"
    last = {b"": [], b'"b"\n': ["b"]}.get(end, ['a"b"'])
    outcome = ["a", reason, *["x" * 999] * lines, *last]
    assert rows == list(enumerate(outcome))


def test_errors_inside_an_unclosed_quote_are_reported_one_by_one(tmp_path) -> None:
    content = b"text,id\n" + b'"a,1\nb,2\n' * 500 + b"c,3\n"
    rows = _outcome(tmp_path, content)
    assert rows == list(enumerate(["source.malformed", "b"] * 500 + ["c"]))


def test_long_fields_are_read(tmp_path) -> None:
    text = "x" * 1_000_000
    assert _outcome(tmp_path, f"text\n{text}\n".encode()) == [(0, text)]


@pytest.mark.parametrize("content", [b"", b"text\n", b"\n\n"])
def test_a_file_without_records_has_no_rows(tmp_path, content: bytes) -> None:
    assert _read(tmp_path, content) == []


def test_the_error_for_a_missing_column_lists_the_existing_ones(tmp_path) -> None:
    with pytest.raises(
        SourceError, match=r"no column 'text'\n  hint: did you mean 'txt'.*txt, url"
    ):
        _read(tmp_path, b"txt,url\na,b\n")


def test_a_file_with_a_malformed_header_is_refused(tmp_path) -> None:
    with pytest.raises(SourceError, match="the header is malformed"):
        _read(tmp_path, b'"a"b,text\n1,a\n')


def test_the_error_for_a_damaged_stream_has_the_number_of_readable_records(tmp_path) -> None:
    content = gzip.compress(b"text\n" + b"words of text\n" * 100_000)
    with pytest.raises(SourceError, match=r"gzip stream is damaged.*; 100000 records"):
        _read(tmp_path, content[:-9], "a.csv.gz")


_FIELD = st.text(st.sampled_from('a ,"\n\rä漢'), max_size=6)


@given(st.lists(st.tuples(_FIELD, _FIELD), max_size=8))
def test_records_written_by_the_csv_module_are_read_unchanged(
    tmp_path_factory, records: list[Any]
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *records])
    folder = tmp_path_factory.mktemp("csv")
    rows = _read(folder, out.getvalue().encode(), columns=Columns(id="id"))
    assert [row["id"] for row in rows] == [key for key, _ in records]
    assert [row["text"] for row in rows] == [t if t.strip() else None for _, t in records]
