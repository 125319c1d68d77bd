"""Lookups that skip files and row groups return the same rows as a full scan."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.audit.row_lookup import find_rows, read_first_rows
from etl.audit.value_counts import count_values
from etl.delta.table import Table
from etl.errors import TableError
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout

SCHEMA = pa.schema(
    [("id", pa.string()), ("row", pa.int64()), ("text", pa.string()), ("side", pa.string())]
)
LAYOUT = Layout(
    partition_by=("side",), statistics=("id", "row"), dictionary=(), bulk="text", row_group_bytes=8
)
VALUES = st.fixed_dictionaries(
    {
        "id": st.none() | st.sampled_from(["a", "b", "c", "é", "z" * 600]),
        "row": st.none() | st.integers(-3, 3),
        "text": st.sampled_from(["", "x", "yy", "long enough"]),
        "side": st.sampled_from(["left", "right"]),
    }
)
FILES = st.lists(st.lists(VALUES, min_size=1, max_size=12), max_size=4)


def write(folder: Path, files: list[list[dict[str, Any]]]) -> tuple[Table, list[dict[str, Any]]]:
    """Write a file per list and side; return the table and its rows in the order of its files."""
    table = Table.create(str(folder), SCHEMA, LAYOUT)
    written: dict[str, list[dict[str, Any]]] = {}
    for number, rows in enumerate(files):
        for side in ("left", "right"):
            part = [row for row in rows if row["side"] == side]
            writer = DataFileWriter(
                table.url, SCHEMA, LAYOUT, name=f"{number:032}", partition={"side": side}
            )
            for row in part:  # one by one, to fill several row groups
                writer.append(pa.Table.from_pylist([row], SCHEMA))
            fragments = writer.close()
            if fragments:
                written[fragments[0].path] = part
                table = table.commit(fragments, transactions={})
    return table, [row for path in sorted(written) for row in written[path]]


@settings(max_examples=30)
@given(FILES, st.sampled_from(["a", "é", "q", "z" * 600]), st.integers(-4, 4))
def test_find_equals_a_full_scan(files: list[list[dict[str, Any]]], id_: str, row: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, rows = write(Path(folder) / "table", files)
        queries: list[dict[str, str | int]] = [{"id": id_}, {"row": row}, {"id": id_, "row": row}]
        for wanted in queries:
            matches = list(find_rows(table, wanted))
            expected = [r for r in rows if all(r[name] == value for name, value in wanted.items())]
            assert sorted(map(repr, (match.values for match in matches))) == sorted(
                repr({name: r[name] for name in SCHEMA.names}) for r in expected
            )
            for match in matches:  # its number is its row in the file
                path = Path(folder) / "table" / match.path
                in_file = pa.parquet.read_table(path, partitioning=None).slice(match.number, 1)
                assert in_file.to_pylist()[0].items() <= match.values.items()


@settings(max_examples=15)
@given(FILES, st.integers(0, 20))
def test_head_and_tally_equal_a_full_scan(files: list[list[dict[str, Any]]], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, rows = write(Path(folder) / "table", files)
        assert read_first_rows(table, limit).to_pylist() == rows[:limit]
        assert read_first_rows(table, limit, ["side", "id"]).to_pylist() == [
            {"side": row["side"], "id": row["id"]} for row in rows[:limit]
        ]
        assert count_values(table, "id", table.data_files()) == Counter(row["id"] for row in rows)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    table, _ = write(tmp_path / "table", [])
    with pytest.raises(TableError, match="no column 'txt'"):
        read_first_rows(table, 1, ["txt"])
