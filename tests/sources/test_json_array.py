"""JSON arrays: their elements are rows, whatever the layout, and a bad element costs no other one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etl.sources import Source
from etl.sources.formats.json_array import Element, read_elements
from etl.sources.inspect import inspect_source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split


def _rows(path: Path, **settings: Any) -> list[tuple[int, str]]:
    source = Source(path=str(path), **settings)
    return [
        (row["row"], row["reason"] or row["text"])
        for split in list_splits(source)
        for table in read_split(split, source)
        for row in table.to_pylist()
    ]


def _outcome(tmp_path: Path, content: str, name: str = "a.json", **settings: Any) -> list[str]:
    (tmp_path / name).write_text(content, "utf-8", "surrogatepass")
    rows = _rows(tmp_path / name, **settings)
    assert [row for row, _ in rows] == list(range(len(rows)))
    return [outcome for _, outcome in rows]


RECORDS = [
    {"text": f'text {n} of “ä” \\ " \n漢', "more": {"list": [n, [], {}]}} for n in range(300)
]
TEXTS = [record["text"] for record in RECORDS]


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a.json.gz", "a.json.zst"])
def test_the_elements_of_an_array_are_rows(tmp_path: Path, name: str, indent: int | None) -> None:
    content = json.dumps(RECORDS, indent=indent, ensure_ascii=indent == 0).encode()
    if name.endswith("gz"):  # several members
        content = gzip.compress(content[:5000]) + gzip.compress(content[5000:])
    elif name.endswith("zst"):
        content = zstandard.compress(content[:5000]) + zstandard.compress(content[5000:])
    (tmp_path / name).write_bytes(b"" if "." not in name else content)
    for settings in ({}, {"split_bytes": 400}):
        assert _rows(tmp_path / name, **settings) == list(enumerate(TEXTS))


@pytest.mark.parametrize("start", ["", "\ufeff", " \n\t"])
def test_blanks_and_a_byte_order_mark_may_surround_an_array(tmp_path: Path, start: str) -> None:
    assert _outcome(tmp_path, start + '[{"text": "a"} , {"text": "b"}\n]\n \n') == ["a", "b"]
    assert _outcome(tmp_path, start + "[ ]") == []


@pytest.mark.parametrize(
    ("content", "outcomes"),
    [
        (
            '[{"text": "a"}, 1, "x", null, [], {"text": 1}, {}, {"text": "b"}]',
            "a malformed malformed malformed malformed malformed no_text b",
        ),
        ('[{"text": "a"}, {"text": "b" "c"}, {"text": "d"}]', "a malformed d"),
        ('[{"text": "a"} {"text": "b"}, {"text": "d"}]', "malformed d"),
        ('[{"text": "a"},, {"text": "d"},]', "a malformed d"),
        ('[{"text": "a"}, {"text": [1}, {"text": "d"}]', "a malformed d"),
        ('[\n{"text": "a"},\n{"text": "b},\n{"text": "d"}\n]', "a malformed"),
        ('[\n{\n"text": "b,\n"id": 1\n},\n{\n"text": "d"\n}\n]', "malformed d"),
        ('[{"text": "a"}, {"text": "\ud800"}, {"text": "d"}]', "a invalid_utf8 d"),
        ('[{"text": "a"}, {"text": "b', "a malformed malformed"),
        ('[{"text": "a"},', "a malformed"),
        ('[{"text": "a"}] [', "a malformed"),
        ('[{"text": "a"}, {"text": "b"}]\n{"text": "c"}', "malformed c"),  # lines
        ("[[[[[" * 20_000, "malformed malformed"),
    ],
)
def test_a_bad_element_is_a_row_with_a_reason(tmp_path: Path, content: str, outcomes: str) -> None:
    found = [outcome.removeprefix("source.") for outcome in _outcome(tmp_path, content)]
    assert found == outcomes.split()


def test_an_element_over_the_limit_is_rejected(tmp_path: Path) -> None:
    long = {"text": "x" * (3 << 20), "more": [{"text": "inner"}] * 99}
    content = json.dumps([{"text": "a"}, long, {"text": "b"}, {"text": "y" * 2000}, {"text": "c"}])
    outcomes = _outcome(tmp_path, content, max_text_bytes=1000)
    assert outcomes == ["a", "source.too_large", "b", "source.too_large", "c"]
    values = json.dumps([{"text": "a"}, {"text": "b", "more": [[]] * 2_000_000}, {"text": "c"}])
    assert _outcome(tmp_path, values) == ["a", "source.too_large", "c"]


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=9) | st.sampled_from(['"', "\\", "],", "{", "\n"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.lists(_VALUES, max_size=8), st.sampled_from([None, 0, 2]), st.integers(1, 30), st.booleans()
)
def test_any_array_is_read_from_any_chunks(values, indent, size: int, ascii_only: bool) -> None:
    content = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )
    chunks = [content[n : n + size] for n in range(0, len(content), size)]
    elements = [*read_elements(chunks, max_bytes=10_000)]
    assert all(isinstance(each, Element) and each.problem is None for each in elements)
    assert [each.value for each in elements if isinstance(each, Element)] == values


@given(
    st.lists(st.sampled_from([*'[]{},"\\\n :1a', '{"text": "x"}']), max_size=30),
    st.integers(1, 9),
)
def test_any_content_is_read_to_its_end_from_any_chunks(parts: list[str], size: int) -> None:
    content = ("[" + "".join(parts)).encode()
    chunks = [content[n : n + size] for n in range(0, len(content), size)]
    whole = [*read_elements([content], max_bytes=50)]
    assert [*read_elements(chunks, max_bytes=50)] == whole


def test_a_share_of_an_array_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RECORDS, indent=1))
    rows = _rows(tmp_path / "a.json", share=0.1)
    assert rows == list(enumerate(TEXTS))[: len(rows)]
    assert 10 < len(rows) < 60


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "unknown"])
def test_the_columns_of_an_array_are_found(tmp_path: Path, name: str) -> None:
    content = json.dumps(
        [{"body": "A text of words.", "link": "https://a.org"}] * 9, indent=1
    ).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    facts = inspect_source([str(tmp_path)])
    assert (facts.source.columns.text, facts.source.columns.url) == ("body", "link")
    assert len(facts.documents) == 9
