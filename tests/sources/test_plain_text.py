"""Text files: each is one document, read completely or rejected."""

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources import Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split


def _rows(path: Path, **settings) -> list[dict]:
    source = Source(path=str(path), **settings)
    return [
        r for split in list_splits(source) for t in read_split(split, source) for r in t.to_pylist()
    ]


def _read(tmp_path: Path, content: bytes, name: str = "a.txt", **settings) -> list[str]:
    (tmp_path / name).write_bytes(content)
    return [row["reason"] or row["text"] for row in _rows(tmp_path / name, **settings)]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_file_is_one_document(tmp_path_factory, text: str) -> None:
    folder = tmp_path_factory.mktemp("text")
    for name, compress in (("a.txt", bytes), ("a.txt.gz", gzip.compress)):
        texts = _read(folder, compress(text.encode()), name)
        expected = text.removeprefix("\ufeff")
        assert texts == [expected if expected.strip() else "source.empty_text"]


def test_many_files_are_many_documents(tmp_path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"line\r\n\x85{number}\n", newline="")
    (tmp_path / "5.TXT.zst").write_bytes(zstandard.compress(b"compressed"))
    rows = _rows(tmp_path)
    assert [row["text"] for row in rows] == [
        *(f"line\r\n\x85{n}\n" for n in range(5)),
        "compressed",
    ]
    assert {row["row"] for row in rows} == {0}
    assert {(row["id"], row["url"], row["metadata"]) for row in rows} == {(None, None, None)}


def test_html_files_are_decoded_as_they_declare(tmp_path) -> None:
    page = "<meta charset=koi8-r><p>Привет"
    (tmp_path / "a.HTML").write_bytes(page.encode("koi8-r"))
    (tmp_path / "b.htm.gz").write_bytes(gzip.compress("\ufeff<p>ä".encode()))
    (tmp_path / "c.xhtml").write_bytes(b"<p>" + b"\xc3\xa4" * 9 + b"\xff" * 3)
    (tmp_path / "d.txt").write_text("<p>")
    rows = [(row["reason"] or row["text"], row["media_type"]) for row in _rows(tmp_path)]
    assert rows == [
        (page, "text/html"),
        ("<p>ä", "text/html"),
        ("source.undecodable", None),
        ("<p>", None),
    ]


@pytest.mark.parametrize(("size", "outcome"), [(9, None), (10, None), (11, "source.too_large")])
def test_a_file_over_the_limit_is_rejected(tmp_path, size: int, outcome: str | None) -> None:
    text = "ä" * (size // 2) + "x" * (size % 2)
    assert _read(tmp_path, text.encode(), max_text_bytes=10) == [outcome or text]


def test_a_decompression_bomb_is_not_read_beyond_the_limit(tmp_path) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    assert _read(tmp_path, bomb, "a.txt.gz", max_text_bytes=1000) == ["source.too_large"]


def test_a_file_that_is_not_utf_8_is_rejected(tmp_path) -> None:
    assert _read(tmp_path, "ä".encode("latin-1")) == ["source.invalid_utf8"]


def test_a_truncated_compressed_file_is_refused(tmp_path) -> None:
    with pytest.raises(SourceError, match="damaged or truncated"):
        _read(tmp_path, gzip.compress(b"words " * 1000)[:-9], "a.txt.gz")
