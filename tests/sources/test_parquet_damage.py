"""Parquet: pages that differ from their checksums or from the footer are located and reported."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources import Columns, Source
from etl.sources.formats import FORMATS
from etl.sources.inspect import inspect_source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from tests.helpers import parquet_bytes as raw


def _write(path: Path, rows: int, group: int, **options: Any) -> str:
    texts = [f"document {number:06} of a harbour" for number in range(rows)]
    table = pa.table({"id": pa.array(range(rows)), "text": texts})
    pq.write_table(table, path, row_group_size=group, write_page_checksum=True, **options)
    return str(path)


def _flip_bit(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def _read(source: Source) -> tuple[list[int], str]:
    """The numbers of the rows before the error in a file, and the error."""
    [split] = list_splits(source)
    rows: list[int] = []
    with suppress(pa.ArrowInvalid):
        for table in FORMATS[split.format].read(split, source, batch_bytes=16 << 20):
            rows += table["row"].to_pylist()
    try:
        assert rows == [row for t in read_split(split, source) for row in t["row"].to_pylist()]
    except SourceError as error:
        return rows, str(error)
    return rows, ""


@pytest.mark.parametrize("group", [1, 7, 1000])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_flipped_bit_is_located(
    tmp_path, group: int, dictionary: bool, version: str, compression: str
) -> None:
    path = tmp_path / "a.parquet"
    _write(
        path,
        1000,
        group,
        use_dictionary=dictionary,
        data_page_version=version,
        compression=compression,
    )
    index = 500 // group
    chunk = pq.read_metadata(path).row_group(index).column(1)
    start = chunk.dictionary_page_offset if dictionary else chunk.data_page_offset
    _flip_bit(path, start + chunk.total_compressed_size - 1)
    rows, error = _read(Source(path=str(path), columns=Columns(id="id")))
    page = 1 if dictionary else 0
    assert f"row group {index}: column 'text': page {page} is damaged: its checksum is" in error
    assert rows == list(range(index * group))


def test_damage_of_a_column_that_is_not_read_is_no_error(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    _write(path, 1000, 1000, use_dictionary=False, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    _flip_bit(path, chunk.data_page_offset + chunk.total_compressed_size // 2)
    assert _read(Source(path=str(path))) == ([*range(1000)], "")
    assert "column 'id'" in _read(Source(path=str(path), metadata="all"))[1]


def test_pages_of_a_large_row_group_are_verified_one_after_the_other(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"row {number} " * 800 for number in range(5000)]  # 40 MB
    pq.write_table(
        pa.table({"text": texts}),
        path,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    _flip_bit(path, path.read_bytes().index(b"row 4500"))
    rows, error = _read(Source(path=str(path)))
    assert re.search(r"row group 0: column 'text': page \d+ is damaged", error)
    assert 3000 < len(rows) <= 4500
    assert rows == [*range(len(rows))]


def test_a_delta_source_is_verified(tmp_path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1], "text": ["a"]}))
    [path] = tmp_path.glob("*.parquet")
    size = path.stat().st_size
    _write(path, 9, 9, compression="none", use_dictionary=False)
    [log] = tmp_path.glob("_delta_log/*.json")
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{path.stat().st_size}'))
    _flip_bit(path, path.read_bytes().index(b"document 000005"))
    rows, error = _read(Source(path=str(tmp_path)))
    assert rows == []
    assert "cannot be read as delta (row group 0: column 'text': page 0 is damaged" in error


def test_inspecting_files_verifies_them(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    _write(path, 9, 9, compression="none", use_dictionary=False)
    _flip_bit(path, path.read_bytes().index(b"document 000005"))
    with pytest.raises(SourceError, match="CRC checksum verification failed"):
        inspect_source([str(path)])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_the_rows_before_a_damaged_row_group_are_read(tmp_path_factory, sizes, data) -> None:
    path = tmp_path_factory.mktemp("damage") / "a.parquet"
    schema = pa.schema({"text": pa.string(), "tags": pa.list_(pa.string())})
    with pq.ParquetWriter(path, schema, write_page_checksum=True, compression="none") as writer:
        for index, size in enumerate(sizes):
            texts, tags = [f"row {index}"] * size, [["a", f"b{index}"]] * size
            writer.write_table(pa.table({"text": texts, "tags": tags}, schema))
    assert _read(Source(path=str(path), metadata="all")) == ([*range(sum(sizes))], "")
    index = data.draw(st.integers(0, len(sizes) - 1))
    column = data.draw(st.integers(0, 1))
    chunk = pq.read_metadata(path).row_group(index).column(column)
    _flip_bit(path, chunk.data_page_offset - 1)  # the last byte of the dictionary
    rows, error = _read(Source(path=str(path), metadata="all"))
    name = ("text", "tags.list.element")[column]
    assert f"row group {index}: column '{name}': page 0 is damaged" in error
    assert rows == [*range(sum(sizes[:index]))]


_ROOT, _TEXT = raw.element(b"schema", children=1), raw.element(b"text")


@pytest.mark.parametrize(
    ("values", "rows", "message"),
    [
        (1, 1, ""),
        (1, 2, "its pages have 1 values, but the footer claims 2"),
        (2, 1, "its pages have 2 values, but the footer claims 1"),
    ],
)
def test_pages_have_as_many_values_as_the_footer_claims(tmp_path, values, rows, message) -> None:
    page = raw.data_page(b"\1\0\0\0a" * values, values=values)
    (tmp_path / "a.parquet").write_bytes(raw.file_of([_ROOT, _TEXT], page, rows=rows))
    error = _read(Source(path=str(tmp_path / "a.parquet")))[1]
    assert message in error
    assert bool(message) == bool(error)
