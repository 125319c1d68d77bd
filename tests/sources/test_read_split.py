"""Reading a split: bounded batches, bounded memory, changed files, any filesystem."""

import json
import os
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import schemas, storage
from etl.errors import SourceError
from etl.sources import Source
from etl.sources.batches import bound_batches
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from etl.sources.records import MAX_ROWS, make_raw_table, to_json


def _texts(source: Source) -> list[str]:
    splits = list(list_splits(source))
    splits = list(
        number_splits(splits, [count_records(s) if not s.is_whole else None for s in splits])
    )
    return [
        t
        for split in splits
        for batch in read_split(split, source)
        for t in batch["text"].to_pylist()
    ]


def _write_lines(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


_ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.text(max_size=9)), st.integers(0, 3)), max_size=12
)


@given(st.lists(_ROWS, max_size=4), st.integers(1, 30))
def test_batches_are_bounded_and_have_all_rows(parts: list[Any], batch_bytes: int) -> None:
    tables = [
        make_raw_table(
            "file:///a",
            {
                "row": pa.array(range(len(part)), pa.int64()),
                "text": pa.array([text for text, _ in part], pa.string()),
                "metadata": pa.array(["m" * size for _, size in part], pa.string()),
            },
        )
        for part in parts
    ]
    batches = list(bound_batches(tables, batch_bytes))
    assert [row for batch in batches for row in batch.to_pylist()] == [
        row for part in tables for row in part.to_pylist()
    ]
    for batch in batches:
        size = sum(
            len((r["text"] or "").encode() + r["metadata"].encode()) for r in batch.to_pylist()
        )
        assert len(batch) == 1 or size <= batch_bytes
        assert all(column.num_chunks == 1 for column in batch.columns)


def test_batches_have_a_maximum_number_of_rows(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["a"] * (2 * MAX_ROWS + 5)))
    [split] = list_splits(source)
    assert [len(batch) for batch in read_split(split, source)] == [MAX_ROWS, MAX_ROWS, 5]


def test_a_batch_may_have_exactly_the_maximum_size(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["a" * 5] * 5))
    [split] = list_splits(source)
    assert [len(batch) for batch in read_split(split, source, batch_bytes=10)] == [2, 2, 1]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_large_document_is_alone_in_its_batch(tmp_path, name: str) -> None:
    texts = ["a" * 10, "b" * 5000, "c" * 10, "d" * 10]
    path = tmp_path / name
    if name == "a.jsonl":
        _write_lines(path, texts)
    else:
        pq.write_table(pa.table({"text": texts}), path)
    source = Source(path=str(path))
    [split] = list_splits(source)
    batches = [batch["text"].to_pylist() for batch in read_split(split, source, batch_bytes=100)]
    assert batches == [texts[:1], texts[1:2], texts[2:]]


_pools: list[pa.MemoryPool] = []  # a pool must outlive the Arrow buffers allocated from it


@contextmanager
def _arrow_memory() -> Iterator[pa.MemoryPool]:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_one_large_row_group_is_read_in_little_memory(tmp_path) -> None:
    letters = random.Random(0)
    texts = [letters.randbytes(4000).hex() for _ in range(8000)]  # 64 MB
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    source = Source(path=str(tmp_path / "a.parquet"), split_bytes=1 << 30)
    [split] = list_splits(source)
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 1
    with _arrow_memory() as pool:
        assert sum(len(batch) for batch in read_split(split, source, batch_bytes=2 << 20)) == 8000
        assert pool.max_memory() < 24 << 20


def test_long_texts_behind_a_small_dictionary_do_not_add_up(tmp_path) -> None:
    texts = pa.array(["x" * 50_000] * 4000)  # 200 MB, in a file of a few KB
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    source = Source(path=str(tmp_path / "a.parquet"))
    [split] = list_splits(source)
    with _arrow_memory() as pool:
        assert len(next(read_split(split, source, batch_bytes=2 << 20))) == (2 << 20) // 50_000
        assert pool.max_memory() < 128 << 20


def test_row_groups_that_take_much_memory_are_read_one_by_one(tmp_path) -> None:
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"text": pa.string()})) as writer:
        for letter in "abcde":  # 72 MB each
            indices = pa.array(np.zeros(120, np.int32))
            texts = pa.DictionaryArray.from_arrays(indices, pa.array([letter * 600_000]))
            writer.write_table(pa.table({"text": texts.cast(pa.string())}))
    source = Source(path=str(tmp_path / "a.parquet"))
    [split] = list_splits(source)
    rows, letters = [], []
    with _arrow_memory() as pool:
        for table in read_split(split, source):
            rows += table["row"].to_pylist()
            letters += pc.utf8_slice_codeunits(table["text"], 0, 1).to_pylist()
        assert pool.max_memory() < 512 << 20
    assert rows == [*range(600)]
    assert letters == [letter for letter in "abcde" for _ in range(120)]


def test_a_large_file_of_lines_is_read_in_little_memory(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["x" * 10_000] * 3000))
    assert _peak_memory(source) < 12 << 20


def test_texts_that_are_too_large_take_little_memory(tmp_path) -> None:
    texts = ["x" * 10_000] * 3000 + ["y" * 12_000_000]
    path = _write_lines(tmp_path / "a.jsonl", texts)
    source = Source(path=path, max_text_bytes=1000, split_bytes=1 << 30)
    assert _peak_memory(source) < 12 << 20


def _peak_memory(source: Source) -> int:
    """The peak memory of Python and Arrow together, in bytes."""
    [split] = list_splits(source)
    tracemalloc.start()
    with _arrow_memory() as pool:
        for _ in read_split(split, source, batch_bytes=2 << 20):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return int(peak + pool.max_memory())


def test_a_file_that_changed_after_listing_is_refused(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["one"] * 9), split_bytes=30)
    splits = list(list_splits(source))
    _write_lines(tmp_path / "a.jsonl", ["one"] * 10)
    for action in (
        lambda: list[Any](read_split(splits[0], source)),
        lambda: count_records(splits[1]),
    ):
        with pytest.raises(
            SourceError, match=r"has changed since it was listed \(144 bytes then, 160 now\)"
        ):
            action()
    (tmp_path / "a.jsonl").unlink()
    for action in (
        lambda: list[Any](read_split(splits[0], source)),
        lambda: count_records(splits[1]),
    ):
        with pytest.raises(SourceError, match=r"a.jsonl: the file no longer exists"):
            action()


def test_a_file_rewritten_with_the_same_size_is_refused(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["one"]))
    [split] = list_splits(source)
    _write_lines(tmp_path / "a.jsonl", ["two"])
    os.utime(tmp_path / "a.jsonl", ns=(1, 1_000_000_000))
    with pytest.raises(SourceError, match="has changed"):
        list(read_split(split, source))


def test_other_content_of_the_same_size_and_time_is_refused(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["one"] * 9))
    before = (tmp_path / "a.jsonl").stat()
    [split] = list_splits(source)
    _write_lines(tmp_path / "a.jsonl", ["two"] * 9)
    os.utime(tmp_path / "a.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(SourceError, match="has changed since it was listed"):
        list(read_split(split, source))


def test_the_inode_on_another_machine_is_no_change(tmp_path) -> None:
    _write_lines(tmp_path / "a.jsonl", ["one"])
    info = storage.file_info(f"file://{tmp_path}/a.jsonl")
    assert info is not None
    times, _, inode = info.fingerprint.rpartition("-")
    assert info.is_as_listed(f"{times}-{int(inode) + 1}")
    assert not info.is_as_listed(f"1{times}-{inode}")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path) -> None:
    source = Source(path=_write_lines(tmp_path / "a.jsonl", ["one"] * 2 * MAX_ROWS))
    [split] = list_splits(source)
    batches = read_split(split, source)
    next(batches)
    _write_lines(tmp_path / "a.jsonl", ["two"] * 2 * MAX_ROWS)
    os.utime(tmp_path / "a.jsonl", ns=(1, 1_000_000_000))
    with pytest.raises(SourceError, match="has changed"):
        list(batches)


@pytest.mark.parametrize("content", [b"", b"PAR1 not Parquet PAR1"])
def test_a_change_explains_the_error_that_it_causes(tmp_path, content: bytes) -> None:
    table = pa.table({"text": [random.Random(n).randbytes(40_000).hex() for n in range(40)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    source = Source(path=str(tmp_path / "a.parquet"))
    [split] = list_splits(source)
    batches = read_split(split, source, batch_bytes=200_000)
    next(batches)
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"has changed since it was listed") as changed:
        list(batches)
    assert isinstance(changed.value.__cause__, pa.ArrowException | OSError)


def test_other_filesystems_are_supported() -> None:
    memory = fsspec.filesystem("memory")
    lines = b"".join(b'{"text": "%d"}\n' % number for number in range(100))
    memory.pipe("/pages/a.jsonl", lines)
    with storage.open_output("memory://pages/b.parquet") as file:
        pq.write_table(pa.table({"text": ["100", "101"]}), file, row_group_size=1)
    try:
        assert _texts(Source(path="memory://pages", split_bytes=70)) == [str(i) for i in range(102)]
    finally:
        memory.rm("/pages", recursive=True)


def test_sources_in_an_object_store_are_read(s3: str) -> None:
    texts = [f"{number} " * 50 for number in range(1000)]
    with storage.open_output(f"{s3}/pages/a.jsonl") as file:
        file.write("".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
    with storage.open_output(f"{s3}/pages/b.parquet") as file:
        pq.write_table(pa.table({"text": texts}), file, row_group_size=300)
    source = Source(path=f"{s3}/pages/*", split_bytes=10_000)
    assert len(list(list_splits(source))) > 5
    assert _texts(source) == texts * 2
    [split, *_] = list_splits(source)
    with storage.open_output(f"{s3}/pages/a.jsonl") as file:
        file.write(b"x" * split.size)
    with pytest.raises(SourceError, match="has changed"):
        list(read_split(split, source))
    with pytest.raises(SourceError, match="no files found"):
        list_splits(Source(path=f"{s3}/none"))


def test_values_that_json_lacks_become_strings() -> None:
    value = {"b": [float("inf"), {"c": float("nan")}], "a": {1}, "ü": "\u2028"}
    assert to_json(value) == '{"a":"{1}","b":["inf",{"c":"nan"}],"ü":"\u2028"}'


def test_a_table_has_the_schema_raw() -> None:
    result = make_raw_table("file:///a", {"row": pa.array([5]), "text": pa.array(["a"])})
    assert result.schema.equals(schemas.RAW)
    assert result.to_pylist()[0]["source"] == "file:///a"
