"""Live rows are those that no vector strikes, however a data file is read."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.delta.live_rows import (
    live_rows,
    read_live_row_groups,
    read_live_rows,
    read_live_rows_with,
)
from etl.delta.table import Table
from etl.errors import TableError
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from tests.helpers.paths import NewPlace

SCHEMA = pa.schema({"row": pa.int64(), "text": pa.string()})


def make(place: object, rows: int, group_rows: int) -> Table:
    """Make a table of one data file with so many rows in each row group."""
    layout = Layout(statistics=("row",), bulk="text", row_group_bytes=10 * group_rows)
    table = Table.create(str(place), SCHEMA, layout)
    writer = DataFileWriter(table.url, SCHEMA, layout, name="a")
    writer.append(pa.table({"row": range(rows), "text": ["x" * 10] * rows}))
    return table.commit(writer.close(), transactions={})


def strike(table: Table, positions: set[int]) -> tuple[Table, dict[str, Any]]:
    (file,) = table.files("path")
    files = table.strike({file["path"]: positions})
    table = table.commit(files, remove=[file["path"]], transactions={})
    (entry,) = table.files("path", "vector")
    return table, entry


@given(st.data(), st.integers(1, 40), st.integers(1, 12), st.integers(1, 50))
def test_live_rows_are_the_same_in_any_parts(
    new_place: NewPlace, data: st.DataObject, rows: int, group_rows: int, batch_rows: int
) -> None:
    positions = data.draw(st.sets(st.integers(0, rows - 1)))
    table, entry = strike(make(new_place("t"), rows, group_rows), positions)
    expected = [row for row in range(rows) if row not in positions]
    assert read_live_rows(table.url, entry)["row"].to_pylist() == expected
    assert read_live_rows(table.url, entry, ["row"])["row"].to_pylist() == expected
    groups = [part["row"].to_pylist() for part in read_live_row_groups(table.url, entry, SCHEMA)]
    assert [row for group in groups for row in group] == expected
    with live_rows(table.url, entry, ["text"]) as opened:
        assert len(groups) == opened.num_row_groups
        parts = [opened.row_group(i, ["row"])["row"].to_pylist() for i in range(len(groups))]
        assert parts == groups
    with live_rows(table.url, entry, SCHEMA) as opened:
        batches = list(opened.batches(batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    assert [row for batch in batches for row in batch["row"].to_pylist()] == expected


@given(st.data(), st.integers(1, 40), st.integers(1, 12))
def test_rows_are_found_by_a_value(
    new_place: NewPlace, data: st.DataObject, rows: int, group_rows: int
) -> None:
    positions = data.draw(st.sets(st.integers(0, rows - 1)))
    wanted = data.draw(st.sets(st.integers(0, rows)))
    table, entry = strike(make(new_place("t"), rows, group_rows), positions)
    values = pa.array(sorted(wanted), pa.int64())
    parts = [*read_live_rows_with(table.url, entry, "row", values, ["text", "row"])]
    assert all(part.num_rows and part.column_names == ["text", "row"] for part in parts)
    found = [row for part in parts for row in part["row"].to_pylist()]
    assert found == sorted(wanted & {*range(rows)} - positions)


def test_rows_without_columns_are_counted(place: UPath) -> None:
    table, entry = strike(make(place, 20, 6), {0, 7, 19})
    assert read_live_rows(table.url, entry, []).num_rows == 17
    assert [part.num_rows for part in read_live_row_groups(table.url, entry, [])] == [5, 5, 6, 1]
    with live_rows(table.url, entry, []) as opened:
        assert sum(batch.num_rows for batch in opened.batches(4)) == 17


def test_an_entry_without_its_vector_is_refused(place: UPath) -> None:
    table, entry = strike(make(place, 3, 3), {1})
    with pytest.raises(KeyError, match="vector"):
        read_live_rows(table.url, {"path": entry["path"]})


def test_rows_are_not_read_without_their_vector(place: UPath) -> None:
    table, entry = strike(make(place, 3, 3), {1})
    (stored,) = (place / "_dv").iterdir()
    stored.unlink()
    with pytest.raises(TableError, match=r"deletion_vector_.*\.bin is missing"):
        read_live_rows(table.url, entry)
