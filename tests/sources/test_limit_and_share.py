"""A part of a source: spread over its files, the same each time, without the rest."""

import gzip
import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.sources import Source, Split
from etl.sources.limit_and_share import take_part
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.sources.spread import spread


def lines(count: int) -> str:
    return "".join(json.dumps({"text": f"text {number:04}"}) + "\n" for number in range(count))


def addresses(source: Source) -> list[tuple[str, int]]:
    tables = [table for split in list_splits(source) for table in read_split(split, source)]
    rows = pa.concat_tables(tables).select(["source", "row"]).to_pylist()
    return [(row["source"].rpartition("/")[2], row["row"]) for row in rows]


def test_a_limit_is_spread_over_all_files(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_text(lines(50))
    source = Source(path=str(tmp_path), limit=10)
    expected = [("a.jsonl", 0), ("a.jsonl", 1), ("a.jsonl", 2)]
    expected += [("b.jsonl", 0), ("b.jsonl", 1), ("b.jsonl", 2)]
    expected += [("c.jsonl", 0), ("c.jsonl", 1), ("d.jsonl", 0), ("d.jsonl", 1)]
    assert addresses(source) == addresses(source) == expected
    assert len({file for file, _ in addresses(Source(path=str(tmp_path), limit=2))}) == 2


def test_a_share_is_the_start_of_each_file(tmp_path: Path) -> None:
    for name, count in (("a", 1000), ("b", 100), ("c", 1)):
        (tmp_path / f"{name}.jsonl").write_text(lines(count))
    rows = addresses(Source(path=str(tmp_path), share=0.1, split_bytes=2000))
    counts = {name: sum(file == f"{name}.jsonl" for file, _ in rows) for name in "abc"}
    assert counts == {"a": 100, "b": 10, "c": 1}
    assert [row for file, row in rows if file == "b.jsonl"] == [*range(counts["b"])]


def test_a_share_of_compressed_lines_is_estimated(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines(1000).encode()))
    rows = addresses(Source(path=str(tmp_path), share=0.1))
    assert rows == addresses(Source(path=str(tmp_path), share=0.1))
    assert {file for file, _ in rows} == {"a.jsonl.gz", "b.jsonl.gz"}
    assert 0 < len(rows) < 1000


def test_a_share_of_parquet_does_not_count_other_columns(tmp_path: Path) -> None:
    texts = [f"text {number:03}" * 20 for number in range(400)]
    others = [f"{number:05}" * 200 for number in range(400)]
    table = pa.table({"text": texts, "html": others})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    rows = addresses(Source(path=str(tmp_path), share=0.1))
    assert 38 <= len(rows) <= 42


def test_row_groups_are_parts_of_a_file(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {number}" * 20 for number in range(400)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    source = Source(path=str(tmp_path), limit=8, split_bytes=1000)
    assert [row for _, row in addresses(source)] == [0, 1, 100, 101, 200, 201, 300, 301]


def test_the_rest_is_not_read(tmp_path: Path) -> None:
    content = b"".join(gzip.compress(lines(4000).encode(), 0) for _ in range(20))
    (tmp_path / "cut.jsonl.gz").write_bytes(content[: len(content) // 2])
    source = Source(path=str(tmp_path), limit=3)
    assert [row for _, row in addresses(source)] == [0, 1, 2], "the damage behind is not seen"


def test_a_part_has_another_identity() -> None:
    whole = Source(path="a.jsonl").identity()
    assert Source(path="a.jsonl", limit=5).identity() != whole
    assert Source(path="a.jsonl", share=0.5).identity() != whole
    with pytest.raises(RecipeError, match="set limit or share, not both"):
        Source(path="a.jsonl", limit=5, share=0.5)


@given(
    sizes=st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=6),
    max_rows=st.none() | st.integers(1, 20),
    max_text_bytes=st.none() | st.integers(1, 100),
)
def test_taking_a_part_does_not_depend_on_batches(
    sizes: list[list[int]], max_rows: int | None, max_text_bytes: int | None
) -> None:
    split = Split(
        uri="a",
        size=0,
        fingerprint="",
        format="text",
        max_rows=max_rows,
        max_text_bytes=max_text_bytes,
    )
    tables = iter(
        [pa.table({"text": pa.array(["x" * n for n in part], pa.string())}) for part in sizes]
    )
    taken = [len(text) for table in take_part(tables, split) for text in table["text"].to_pylist()]
    expected: list[int] = []
    for size in (size for part in sizes for size in part):
        if len(expected) == max_rows or (
            max_text_bytes is not None and sum(expected) >= max_text_bytes
        ):
            break
        expected.append(size)
    assert taken == expected


@given(st.integers(0, 500), st.integers(1, 20))
def test_spread_keeps_equal_distances(number: int, count: int) -> None:
    chosen = spread(range(number), count)
    assert len(chosen) <= count
    assert len(chosen) >= min(number, (count + 1) // 2)
    distances = {after - before for before, after in itertools.pairwise(chosen)}
    assert len(distances) <= 1
    assert chosen[:1] == [*range(min(number, 1))]
