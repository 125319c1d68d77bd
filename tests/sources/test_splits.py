"""Settings of a source, the files that it matches, and how they are cut into splits."""

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from etl import sources
from etl.errors import SourceError, StorageError
from etl.sources import Columns, Source
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records


def _make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b'{"text": "a"}\n')


def _names(folder: Path, *paths: str, **settings) -> list[str]:
    source = Source(path=[f"{folder}/{path}" for path in paths], **settings)
    return [split.uri.removeprefix(f"file://{folder}/") for split in list_splits(source)]


def test_the_public_names_are_sorted() -> None:
    assert sources.__all__ == sorted(sources.__all__)
    assert all(hasattr(sources, name) for name in sources.__all__)


def test_a_source_can_be_loaded_from_yaml_and_json() -> None:
    written = {
        "path": ["a", "b"],
        "columns": {"text": "content", "id": "doc_id"},
        "metadata": ["lang"],
    }
    source = Source.model_validate(written)
    assert source.path == ("a", "b")
    assert source.metadata == ("lang",)
    assert source.columns == Columns(text="content", id="doc_id")
    assert Source.model_validate(source.model_dump(mode="json")) == source
    assert Source.model_validate_json(source.model_dump_json()) == source
    assert Source(path=Path("/a")).path == "/a"
    assert hash(source) == hash(source.model_copy())


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": []},
        {"path": ""},
        {"path": 5},
        {"path": ["a", None]},
        {"path": "a", "format": "xml"},
        {"path": "a", "colums": {}},
        {"path": "a", "columns": {"txt": "a"}},
        {"path": "a", "columns": {"text": None}},
        {"path": "a", "columns": {"text": 5}},
        {"path": "a", "metadata": "some"},
        {"path": "a", "split_bytes": 0},
        {"path": "a", "split_bytes": "1"},
        {"path": "a", "max_text_bytes": -1},
        {"path": "a", "version": -1},
        {"path": "a", "version": 3, "format": "csv"},
    ],
    ids=str,
)
def test_invalid_settings_of_a_source_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Source.model_validate(wrong)


def test_the_identity_excludes_paths_version_and_split_size() -> None:
    one = Source(path="a", version=1, split_bytes=1)
    other = Source(path=["b", "c"], version=2)
    assert one.identity() == other.identity()
    assert json.dumps(one.identity())
    for change in (
        {"format": "csv"},
        {"columns": {"text": "b"}},
        {"metadata": "all"},
        {"max_text_bytes": 1},
    ):
        assert Source(path="a", **change).identity() != one.identity()


def test_files_are_listed_once_in_the_order_of_the_paths(tmp_path) -> None:
    _make(tmp_path, "b/1.jsonl", "b/0.jsonl", "a/2.jsonl", "a/_SUCCESS", "a/.x.jsonl")
    assert _names(tmp_path, "b", "a/*", "**/*.jsonl") == ["b/0.jsonl", "b/1.jsonl", "a/2.jsonl"]


def test_a_whole_file_is_one_small_picklable_split(tmp_path) -> None:
    _make(tmp_path, "a.jsonl.gz")
    [split] = list_splits(Source(path=str(tmp_path)))
    assert (split.uri, split.size, split.bytes) == (f"file://{tmp_path}/a.jsonl.gz", 14, 14)
    assert (split.format, split.compression, split.first_row) == ("jsonl", "gzip", 0)
    assert split.is_whole
    assert split.fingerprint
    assert pickle.loads(pickle.dumps(split)) == split
    assert len(pickle.dumps(split)) < 500
    assert {split: 1}[split] == 1


def test_plain_json_lines_are_cut_and_compressed_ones_are_not(tmp_path) -> None:
    _make(tmp_path, "a.jsonl", "b.jsonl.zst", "c.csv")
    splits = list(list_splits(Source(path=str(tmp_path), split_bytes=6)))
    assert [(s.uri[-5:], s.start, s.stop, s.first_row, s.bytes) for s in splits] == [
        ("jsonl", 0, 6, 0, 6),
        ("jsonl", 6, 12, None, 6),
        ("jsonl", 12, None, None, 2),
        ("l.zst", 0, None, 0, 14),
        ("c.csv", 0, None, 0, 14),
    ]


def test_numbering_requires_the_first_piece(tmp_path) -> None:
    _make(tmp_path, "a.jsonl", "b.jsonl")
    splits = list(list_splits(Source(path=str(tmp_path), split_bytes=7)))
    counts = [count_records(split) for split in splits]
    assert counts == [1, 0, 1, 0]
    assert [split.first_row for split in number_splits(splits, counts)] == [0, 1, 0, 1]
    with pytest.raises(AssertionError, match="first piece"):
        list(number_splits(splits[1:], counts[1:]))


def test_the_extension_determines_the_format_unless_it_is_set(tmp_path) -> None:
    names = ["a.parquet", "b.NDJSON.gz", "c.json", "d.tsv.zst", "e.ipc", "f.feather", "g.arrow"]
    _make(tmp_path, *names)
    formats = [split.format for split in list_splits(Source(path=str(tmp_path)))]
    assert formats == ["parquet", "jsonl", "jsonl", "csv", "arrow", "arrow", "arrow"]
    formats = [split.format for split in list_splits(Source(path=str(tmp_path), format="jsonl"))]
    assert formats == ["jsonl"] * 7


def test_a_file_with_an_unknown_extension_is_refused(tmp_path) -> None:
    _make(tmp_path, "a.jsonl", "README.md")
    with pytest.raises(
        SourceError, match=r"README.md: the format of the file cannot be determined.*\n.*hint"
    ):
        list_splits(Source(path=str(tmp_path)))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("data/pages.jsonl", "did you mean 'page.jsonl'"),
        ("dada/*.jsonl", "did you mean 'data'"),
        ("data/*.parquet", "known names: page.jsonl"),
        ("data/[a.jsonl", "known names: page.jsonl"),
        ("data/page.jsonl/more", "did you mean|known names"),
        ("empty", "the folder has no files"),
    ],
)
def test_a_path_without_files_is_refused_with_a_hint(tmp_path, path: str, hint: str) -> None:
    _make(tmp_path, "data/page.jsonl", "empty/_x.jsonl")
    with pytest.raises(SourceError, match=rf"no files found\n  hint: .*({hint})"):
        _names(tmp_path, "data/*.jsonl", path)


def test_a_version_is_refused_without_a_delta_table(tmp_path) -> None:
    _make(tmp_path, "a.jsonl")
    with pytest.raises(SourceError, match="not a Delta table"):
        list_splits(Source(path=str(tmp_path), version=1))


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(StorageError, match="no filesystem for nothing://"):
        list_splits(Source(path="nothing://a"))


def test_small_parquet_files_are_not_opened(tmp_path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nonsense")
    assert len(list(list_splits(Source(path=str(tmp_path))))) == 1


def test_many_files_keep_their_order(tmp_path) -> None:
    table = pa.table({"text": ["a"] * 4})
    for index in range(40):
        pq.write_table(table, tmp_path / f"{index:03}.parquet", row_group_size=2)
    splits = list(list_splits(Source(path=str(tmp_path), split_bytes=1)))
    assert [(split.uri[-11:-8], split.start) for split in splits] == [
        (f"{index:03}", start) for index in range(40) for start in (0, 1)
    ]
