"""Parquet, Arrow IPC and Delta: columns of any type, pieces of any size."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, ipc

from etl import schemas
from etl.errors import SourceError
from etl.sources import Columns, Source
from etl.sources.formats.columnar import convert_batch
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


def _write(table: pa.Table, path: Path) -> str:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, compression="lz4")
    else:  # a stream, the format that Hugging Face's datasets writes
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    return str(path)


_NAMES = ["a.parquet", "a.feather", "a.arrow"]


@pytest.mark.parametrize("name", _NAMES)
def test_records_become_rows(tmp_path, name: str) -> None:
    table = pa.table(
        {
            "when": pa.array([datetime(2024, 1, 2, tzinfo=UTC), None]),
            "body": ["one", "zwölf"],
            "key": [7, None],
            "link": ["http://a", None],
            "score": [0.5, float("nan")],
            "tags": [["a"], None],
            "price": [Decimal("1.50"), None],
            "raw": [b"\xff", b"ok"],
        }
    )
    path = _write(table, tmp_path / name)
    source = Source(path=path, columns=Columns(text="body", id="key", url="link"), metadata="all")
    rows = _rows(source)
    assert [json.loads(row.pop("metadata")) for row in rows] == [
        {
            "price": "1.50",
            "raw": "ff",
            "score": 0.5,
            "tags": ["a"],
            "when": "2024-01-02 00:00:00.000000Z",
        },
        {"price": None, "raw": "6f6b", "score": "nan", "tags": None, "when": None},
    ]
    uri = f"file://{path}"
    others = {"media_type": None, "reason": None}
    assert rows == [
        {"id": "7", "source": uri, "row": 0, "text": "one", "url": "http://a", **others},
        {"id": None, "source": uri, "row": 1, "text": "zwölf", "url": None, **others},
    ]


@pytest.mark.parametrize("name", _NAMES)
def test_bad_texts_are_rows_with_a_reason(tmp_path, name: str) -> None:
    texts = [b"good", None, b"", b" \n", b"ab\xffc", b"123456789", b"12345678"]
    path = _write(pa.table({"text": pa.array(texts), "n": range(7)}), tmp_path / name)
    rows = _rows(Source(path=path, metadata=("n",), max_text_bytes=8))
    assert [row["reason"] or row["text"] for row in rows] == [
        "good",
        "source.null_text",
        "source.empty_text",
        "source.empty_text",
        "source.invalid_utf8",
        "source.too_large",
        "12345678",
    ]
    assert [row["text"] for row in rows[1:6]] == [None] * 5
    assert json.loads(rows[4]["metadata"]) == {
        "error": "byte 0xff at character 2 is not UTF-8",
        "raw": "ab\ufffdc",
    }
    assert rows[3]["metadata"] == '{"n":3}'


@pytest.mark.parametrize("name", _NAMES)
def test_a_text_that_is_not_unicode_does_not_affect_others(tmp_path, name: str) -> None:
    path = _write(pa.table({"text": [b"good", b"b\xffd"]}), tmp_path / name)
    rows = _rows(Source(path=path))
    assert [(row["text"], row["reason"]) for row in rows] == [
        ("good", None),
        (None, "source.invalid_utf8"),
    ]


_TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]


@pytest.mark.parametrize("kind", _TEXT_TYPES, ids=str)
@pytest.mark.parametrize("name", _NAMES)
def test_text_columns_of_any_type_are_read(tmp_path, name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        texts = pa.array(["ä", "b", None, "ä"], kind.value_type).dictionary_encode().cast(kind)
    else:
        texts = pa.array(["ä", "b", None, "ä"]).cast(kind)
    path = _write(pa.table({"text": texts, "url": texts}), tmp_path / name)
    for batch_bytes in (1, 1 << 20):
        rows = _rows(Source(path=path, columns=Columns(url="url")), batch_bytes)
        assert [row["text"] for row in rows] == ["ä", "b", None, "ä"]
        assert [row["url"] for row in rows] == ["ä", "b", None, "ä"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.large_binary()], ids=str)
def test_texts_of_any_type_that_are_too_large_are_rejected(tmp_path, kind: pa.DataType) -> None:
    path = _write(pa.table({"text": pa.array(["a", "b" * 9]).cast(kind)}), tmp_path / "a.feather")
    rows = _rows(Source(path=path, max_text_bytes=8))
    assert [row["reason"] for row in rows] == [None, "source.too_large"]


def test_a_slice_at_an_offset_beyond_32_bits_is_read(tmp_path) -> None:
    """The offsets point into a sparse file of 3 GB."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pa.memory_map(str(path)) as file:
        offsets = np.array([0, 5 << 29, (5 << 29) + 2, (5 << 29) + 5], np.int64)
        buffers = pa.py_buffer(offsets.tobytes()), file.read_buffer(3 << 30)
        texts = pa.LargeStringArray.from_buffers(3, *buffers).slice(1)
        batch = pa.record_batch({"text": texts})
        [split] = list_splits(Source(path=str(path), format="arrow", split_bytes=4 << 30))
        table = convert_batch(batch, split, Source(path=str(path)), 1)
    assert table["text"].to_pylist() == ["\0\0", "\0\0\0"]
    assert table["row"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1, None], pa.uint64()), ["1", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([date(2024, 1, 2), None]), ["2024-01-02", None]),
        (pa.array([b"\x00\xff", None], pa.binary(2)), ["00ff", None]),
        (pa.array([b"a\xff", None]), ["61ff", None]),
        (pa.array([[1, 2], None]), ["[1,2]", None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_ids_of_any_type_become_strings(tmp_path, values: pa.Array, texts: list[Any]) -> None:
    path = _write(pa.table({"text": ["a", "b"], "id": values}), tmp_path / "a.parquet")
    rows = _rows(Source(path=path, columns=Columns(id="id")))
    assert [row["id"] for row in rows] == texts


@pytest.mark.parametrize("name", _NAMES)
def test_a_repeated_column_is_refused_only_if_it_is_needed(tmp_path, name: str) -> None:
    table = pa.table([["a"], ["b"], ["c"]], ["text", "id", "id"])
    path = _write(table, tmp_path / name)
    assert [row["text"] for row in _rows(Source(path=path))] == ["a"]
    with pytest.raises(SourceError, match="the file has more than one column 'id'"):
        _rows(Source(path=path, columns=Columns(id="id")))


@pytest.mark.parametrize("name", _NAMES)
def test_the_error_for_a_missing_column_lists_the_existing_ones(tmp_path, name: str) -> None:
    path = _write(pa.table({"content": ["a"], "texts": ["b"]}), tmp_path / name)
    with pytest.raises(SourceError) as caught:
        _rows(Source(path=path))
    assert str(caught.value) == (
        f"file://{path}: the file has no column 'text'\n"
        "  hint: did you mean 'texts'? known names: content, texts"
    )
    for source in (
        Source(path=path, columns=Columns(text="content", url="link")),
        Source(path=path, columns=Columns(text="content"), metadata=("link",)),
    ):
        with pytest.raises(SourceError, match="no column 'link'"):
            _rows(source)


@pytest.mark.parametrize("name", _NAMES)
def test_a_text_column_of_numbers_is_refused(tmp_path, name: str) -> None:
    path = _write(pa.table({"text": [1]}), tmp_path / name)
    with pytest.raises(SourceError, match="column 'text' has type int64, not text"):
        _rows(Source(path=path))


@pytest.mark.parametrize("name", _NAMES)
def test_a_file_without_rows_and_one_without_texts_are_read(tmp_path, name: str) -> None:
    empty = pa.table({"text": pa.array([], pa.string())})
    assert _rows(Source(path=_write(empty, tmp_path / name))) == []
    nulls = pa.table({"text": pa.nulls(2)})
    rows = _rows(Source(path=_write(nulls, tmp_path / f"nulls-{name}")))
    assert [row["reason"] for row in rows] == ["source.null_text"] * 2


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, b"PAR1" + b"\0" * 99 + b"PAR1"])
@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_an_invalid_file_is_listed_but_cannot_be_read(tmp_path, name, content, split_bytes) -> None:
    (tmp_path / name).write_bytes(content)
    source = Source(path=str(tmp_path / name), split_bytes=split_bytes)
    [split] = list_splits(source)
    with pytest.raises(SourceError, match=rf"{name}: cannot be read as (parquet|arrow)"):
        list(read_split(split, source))


@pytest.mark.parametrize("name", _NAMES)
def test_a_truncated_file_is_refused(tmp_path, name: str) -> None:
    path = tmp_path / name
    _write(pa.table({"text": ["some words"] * 10_000}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match="cannot be read as"):
        _rows(Source(path=str(path)))


_TEXTS = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ä" * 9, "x" * 60])), max_size=30)


@given(_TEXTS, st.integers(1, 9), st.integers(1, 4000), st.integers(1, 200))
def test_cutting_a_file_does_not_change_its_rows(
    tmp_path_factory, texts, group, split_bytes, batch_bytes
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    table = pa.table({"text": pa.array(texts, pa.string())})
    pq.write_table(table, folder / "a.parquet", row_group_size=group)
    feather.write_feather(table, folder / "a.feather", chunksize=group, compression="zstd")
    for path in (folder / "a.parquet", folder / "a.feather"):
        source = Source(path=str(path), split_bytes=split_bytes)
        rows = _rows(source, batch_bytes)
        assert [row["row"] for row in rows] == list(range(len(texts)))
        assert [row["text"] for row in rows] == [text or None for text in texts]
        splits = list(list_splits(source))
        assert abs(sum(split.bytes for split in splits) - path.stat().st_size) <= len(splits)


def test_a_large_file_is_cut_into_pieces_of_about_the_requested_size(tmp_path) -> None:
    table = pa.table({"text": [f"{i:05}" * 500 for i in range(2000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100, compression="none")
    size = (tmp_path / "a.parquet").stat().st_size
    splits = list(list_splits(Source(path=str(tmp_path), split_bytes=size // 4)))
    assert [(split.start, split.stop, split.first_row) for split in splits] == [
        (0, 5, 0),
        (5, 10, 500),
        (10, 15, 1000),
        (15, None, 1500),
    ]


_GROUPS = st.lists(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from(["a", "ä" * 9, "x" * 600]),
            st.none() | st.lists(st.none() | st.sampled_from(["one", "two"]), max_size=3),
        ),
        max_size=4,
    ),
    max_size=30,
)


@given(_GROUPS, st.sampled_from([1, 900, 1 << 20]), st.sampled_from([1, 3000, 1 << 20]))
def test_small_row_groups_have_the_rows_of_the_file(
    tmp_path_factory, groups, split_bytes, batch_bytes
) -> None:
    path = tmp_path_factory.mktemp("groups") / "a.parquet"
    schema = pa.schema({"text": pa.string(), "tags": pa.list_(pa.string())})
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            texts, tags = [text for text, _ in rows], [each for _, each in rows]
            writer.write_table(pa.table({"text": texts, "tags": tags}, schema))
    source = Source(path=str(path), split_bytes=split_bytes, metadata="all")
    found = _rows(source, batch_bytes)
    assert [row["row"] for row in found] == list(range(sum(map(len, groups))))
    assert [(row["text"], json.loads(row["metadata"])["tags"]) for row in found] == [
        row for rows in groups for row in rows
    ]


# Delta


def _delta(path: Path, table: pa.Table, **options) -> None:
    deltalake.write_deltalake(str(path), table, **options)


def test_a_delta_table_is_read_at_a_version(tmp_path) -> None:
    lake = tmp_path / "lake"
    _delta(
        lake, pa.table({"text": ["one"], "lang": ["d/e ü"], "n": [1]}), partition_by=["lang", "n"]
    )
    _delta(lake, pa.table({"text": ["two"], "lang": [None], "n": [2]}), mode="append")
    columns = Columns(id="lang")
    newest = _rows(Source(path=str(lake), columns=columns, metadata="all"))
    values = sorted((row["text"], row["id"], row["metadata"], row["row"]) for row in newest)
    assert values == [("one", "d/e ü", '{"n":1}', 0), ("two", None, '{"n":2}', 0)]
    assert all(row["source"].startswith(f"file://{lake}/lang=") for row in newest)
    old = _rows(Source(path=str(lake), format="delta", version=0))
    assert [row["text"] for row in old] == ["one"]


def test_a_column_that_an_older_data_file_lacks_is_null(tmp_path) -> None:
    lake = tmp_path / "lake"
    _delta(lake, pa.table({"text": ["one"]}))
    _delta(lake, pa.table({"text": ["two"], "id": ["k"]}), mode="append", schema_mode="merge")
    rows = _rows(Source(path=str(lake), columns=Columns(id="id")))
    assert sorted((row["text"], row["id"]) for row in rows) == [("one", None), ("two", "k")]


def test_a_large_data_file_is_cut(tmp_path) -> None:
    lake = tmp_path / "lake"
    properties = deltalake.WriterProperties(max_row_group_size=10)
    _delta(lake, pa.table({"text": [str(i) for i in range(30)]}), writer_properties=properties)
    source = Source(path=str(lake), split_bytes=1)
    assert len(list(list_splits(source))) == 3
    rows = _rows(source)
    assert [(row["row"], row["text"]) for row in rows] == [(i, str(i)) for i in range(30)]


def test_a_missing_column_version_or_table_is_refused(tmp_path) -> None:
    lake = tmp_path / "lake"
    _delta(lake, pa.table({"content": ["one"]}))
    with pytest.raises(SourceError, match=r"no column 'text'\n  hint: .*known names: content"):
        list_splits(Source(path=str(lake)))
    with pytest.raises(SourceError, match="no version 7"):
        list_splits(Source(path=str(lake), version=7, columns=Columns(text="content")))
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match="no Delta table"):
        list_splits(Source(path=str(tmp_path / "folder"), format="delta"))


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_table_with_an_unsupported_feature_is_refused(tmp_path, feature: str) -> None:
    schema = {"type": "struct", "fields": [_field("text")]}
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
        },
        {
            "metaData": {
                "id": "x",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {"delta.columnMapping.mode": "name"},
            }
        },
    ]
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(SourceError, match=rf"unsupported Delta features .*{feature}"):
        list_splits(Source(path=str(tmp_path)))


def _field(name: str) -> dict[str, Any]:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "column-1"}
    return {"name": name, "type": "string", "nullable": True, "metadata": metadata}


@pytest.mark.parametrize("name", ["docs/docs-00000.parquet", "bench/dracor-de-00000.parquet"])
def test_real_files_are_read_unchanged(data, name: str) -> None:
    path = data / name
    source = Source(path=str(path), columns=Columns(id="id"), split_bytes=4 << 20)
    splits = list(list_splits(source))
    tables = [table for split in splits for table in read_split(split, source, batch_bytes=2 << 20)]
    assert max(table["text"].nbytes for table in tables if len(table) > 1) < 3 << 20
    table = pa.concat_tables(tables)
    expected = pq.read_table(path, columns=["id", "text"])
    assert table["id"].equals(expected["id"])
    assert table["text"].equals(expected["text"])
    assert np.array_equal(table["row"].to_numpy(), np.arange(len(expected)))
