"""Data files are read with checksums verified, and their errors name the file."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import StorageError, TableError
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.data_file_reader import fill_columns, open_data_file, read_columns, read_row_groups
from etl.parquet.layout import Layout
from etl.parquet.parquet_file import open_parquet, parquet_writer

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("words", pa.list_(pa.string())),
    ]
)
ADDED = pa.schema([*SCHEMA, pa.field("lang", pa.string())])
ROWS = pa.table(
    {
        "row": range(100),
        "text": [f"text {number:03}" for number in range(100)],
        "words": [["a"] * (number % 3) for number in range(100)],
    },
    schema=SCHEMA,
)
LAYOUT = Layout(
    statistics=("row",),
    bulk="text",
    row_group_bytes=200,
    compression="none",
    compression_level=None,
)


def write(folder: Path) -> DataFile:
    """Write the rows to a data file of several row groups."""
    writer = DataFileWriter(folder.as_uri(), SCHEMA, LAYOUT, name="a" * 32)
    writer.append(ROWS)
    (file,) = writer.close()
    return file


def flip(path: Path, value: bytes) -> None:
    """Change a stored value, but not to a value that could not be stored."""
    content = path.read_bytes()
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, value[:-1] + b"?"))


def _batches(url: str, path: str) -> list[pa.RecordBatch]:
    with open_data_file(url, path, ["row", "text"]) as file:
        return [*file.batches(7)]


def _row_group(url: str, path: str) -> pa.Table:
    with open_data_file(url, path, ["row"]) as file:
        return file.row_group(file.num_row_groups - 1, ["text"])


READS: list[Callable[[str, str], object]] = [
    lambda url, path: read_columns(url, path, ["text"]),
    lambda url, path: read_columns(url, {"path": path, "rows": 100}, ADDED),
    lambda url, path: [*read_row_groups(url, path)],
    _batches,
    _row_group,
]


@pytest.mark.parametrize("read", READS)
def test_a_changed_value_is_found_by_its_checksum(
    tmp_path: Path, read: Callable[[str, str], object]
) -> None:
    file = write(tmp_path)
    read(tmp_path.as_uri(), file.path)
    flip(tmp_path / file.path, b"text 099")
    with pytest.raises(
        TableError, match=r"a data file cannot be read(.|\n)*CRC(.|\n)*verify"
    ) as caught:
        read(tmp_path.as_uri(), file.path)
    assert caught.value.where == f"{tmp_path.as_uri()}/{file.path}"


def test_any_file_is_read_and_written_with_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pa.OSFile(str(path), "wb") as output, parquet_writer(output, SCHEMA) as writer:
        writer.write_table(ROWS)
    with pa.OSFile(str(path), "rb") as source:
        footer = open_parquet(source).metadata
        assert open_parquet(source).read() == ROWS
    content = bytearray(path.read_bytes())
    chunk = footer.row_group(0).column(1)
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    with pa.OSFile(str(path), "rb") as source, pytest.raises(OSError, match="CRC"):
        open_parquet(source).read()


def test_a_damaged_footer_and_a_missing_file_have_our_errors(tmp_path: Path) -> None:
    file = write(tmp_path)
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TableError, match="a data file cannot be read"):
        read_columns(tmp_path.as_uri(), file.path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        read_columns(tmp_path.as_uri(), file.path)


def test_a_missing_column_is_an_error_or_null(tmp_path: Path) -> None:
    file, url = write(tmp_path), tmp_path.as_uri()
    with pytest.raises(TableError, match="the data file has no column 'lang'"):
        read_columns(url, file.path, ["row", "lang"])
    required = pa.schema([pa.field("lang", pa.string(), nullable=False)])
    with pytest.raises(TableError, match="the data file has no column 'lang'"):
        read_columns(url, file.path, required)
    expected = ROWS.append_column(ADDED.field("lang"), pa.nulls(100, pa.string()))
    assert read_columns(url, file.path, ADDED) == expected
    assert pa.concat_tables(read_row_groups(url, file.path, ADDED)) == expected
    with open_data_file(url, file.path, ADDED) as opened:
        assert pa.Table.from_batches(opened.batches(9)) == expected
    assert fill_columns(ROWS, ADDED) == expected


@given(st.integers(-5, 105), st.integers(-5, 105))
def test_a_row_group_that_may_not_hold_a_range_has_no_such_rows(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    folder = tmp_path_factory.mktemp("table")
    with open_data_file(folder.as_uri(), write(folder).path, ["row"]) as file:
        assert file.num_row_groups > 1
        assert file.bounds(0, "words") is None
        assert file.may_hold(0, "words", "b", "b")
        for group in range(file.num_row_groups):
            rows = file.row_group(group)["row"].to_pylist()
            assert file.bounds(group, "row") == (min(rows), max(rows))
            has_any = any(low <= row <= high for row in rows)
            assert file.may_hold(group, "row", low, high) or not has_any
            assert has_any or not file.may_hold(group, "row", low, high)
