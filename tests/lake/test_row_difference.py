"""A table is brought to the rows that it should have, by strikes and by rows that live again."""

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.delta.deletion_vectors import read_struck
from etl.errors import ConflictError
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.row_difference import RowDifference, find_difference
from etl.lake.table_digest import file_digest, list_files, table_digest
from etl.parquet.data_file import DataFileWriter
from etl.parquet.data_file_reader import read_columns
from etl.parquet.layout import Layout
from etl.parquet.row_digests import add_digests, from_hex
from tests.helpers.paths import NewPlace
from tests.helpers.strikes import strike_by_other

SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("cut", pa.int64()),
        pa.field("kind", pa.string(), nullable=False),
    ]
)
LAYOUT = Layout(partition_by=("kind",), statistics=("source", "row"), lookup=("source",))

Row = tuple[str, int, int | None, str]


def ledger_of(folder: UPath) -> Ledger:
    ledger = Ledger(str(folder), fingerprint="a" * 64)
    if ledger.table is None:
        ledger.create(SCHEMA, LAYOUT)
    return ledger


def rows_of(rows: Iterable[Row], columns: Iterable[str] = SCHEMA.names) -> pa.Table:
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA
    )
    return table.select([*columns])


def entry(ledger: Ledger, unit: str, rows: Iterable[Row]) -> LedgerEntry:
    """Write rows to the data files of a new unit."""
    files = []
    for kind in sorted({row[3] for row in rows}):
        of_kind = rows_of(row for row in rows if row[3] == kind)
        writer = DataFileWriter(
            ledger.url, SCHEMA, LAYOUT, name=ledger.key(unit), partition={"kind": kind}
        )
        writer.append(of_kind)
        files += writer.close()
    return LedgerEntry(ledger.key(unit), files)


def add(ledger: Ledger, unit: str, rows: Iterable[Row]) -> None:
    assert ledger.commit([entry(ledger, unit, [*rows])], lambda _, __: None)


def strike(ledger: Ledger, difference: RowDifference, added: Iterable[LedgerEntry] = ()) -> None:
    ledger.strike(difference.struck, lambda _, __: None, add=[*added])


def live(ledger: Ledger) -> list[Row]:
    """Return the live rows, read without the product's reader of live rows."""
    assert ledger.table is not None
    found: list[Row] = []
    for file in ledger.table.files("path", "vector", "physical_rows", "rows", "partition.kind"):
        struck = {*read_struck(ledger.url, file).tolist()}
        stored = read_columns(ledger.url, file["path"], ["source", "row", "cut"]).to_pylist()
        found += [
            (row["source"], row["row"], row["cut"], file["partition.kind"])
            for position, row in enumerate(stored)
            if position not in struck
        ]
        assert len(stored) - len(struck) == file["rows"]
    return sorted(found, key=str)


def digests(ledger: Ledger) -> tuple[int, int]:
    """Return the digest of the table by its log, and by its rows."""
    assert ledger.table is not None
    files = [{**file, "digest": None} for file in list_files(ledger.table)]
    read = add_digests(file_digest(ledger.table, file) for file in files)
    assert all(file["digest"] for file in list_files(ledger.table))  # none is read
    return table_digest(ledger.table), read


def test_rows_leave_and_come_back(tmp_path: UPath) -> None:
    ledger = ledger_of(tmp_path / "t")
    rows: list[Row] = [("a", 0, None, "x"), ("a", 1, 7, "x"), ("a", 2, None, "y"), ("b", 0, 1, "x")]
    add(ledger, "one", rows)
    assert ledger.table is not None
    without = find_difference(ledger.table, rows_of([rows[0], rows[2]]), {"a"})
    assert (without.num_struck, without.num_unstruck, without.missing.num_rows) == (1, 0, 0)
    strike(ledger, without)
    assert live(ledger) == sorted([rows[0], rows[2], rows[3]], key=str)
    back = find_difference(ledger.table, rows_of(rows[:3]), {"a"})
    assert (back.num_struck, back.num_unstruck) == (0, 1)
    strike(ledger, back)
    assert live(ledger) == sorted(rows, key=str)
    assert find_difference(ledger.table, rows_of(rows[:3]), {"a"}).is_empty
    assert all(file["vector"] is None for file in ledger.table.files("path", "vector"))
    assert ledger.foreign_changes() is None


def test_a_row_with_another_value_is_another_row(tmp_path: UPath) -> None:
    ledger = ledger_of(tmp_path / "t")
    add(ledger, "one", [("a", 0, None, "x"), ("a", 1, None, "x")])
    wanted: list[Row] = [("a", 0, 5, "x"), ("a", 1, None, "x")]
    assert ledger.table is not None
    difference = find_difference(ledger.table, rows_of(wanted), {"a"})
    assert difference.missing.to_pylist() == [{"source": "a", "row": 0, "cut": 5, "kind": "x"}]
    strike(ledger, difference, [entry(ledger, "two", wanted[:1])])
    assert live(ledger) == sorted(wanted, key=str)
    # By address alone, either of the two rows will do: the one that lives goes on living.
    by_address = rows_of(wanted, ["source", "row"])
    assert find_difference(ledger.table, by_address, {"a"}).is_empty


def test_a_strike_fails_after_another_commit(tmp_path: UPath) -> None:
    ledger = ledger_of(tmp_path / "t")
    add(ledger, "one", [("a", 0, None, "x"), ("a", 1, None, "x")])
    assert ledger.table is not None
    difference = find_difference(ledger.table, rows_of([("a", 0, None, "x")]), {"a"})
    add(ledger_of(tmp_path / "t"), "two", [("b", 0, None, "x")])
    with pytest.raises(ConflictError):
        strike(ledger, difference)
    ledger.refresh()
    strike(ledger, difference)
    assert live(ledger) == [("a", 0, None, "x"), ("b", 0, None, "x")]


def test_other_programs_may_copy_the_tags_of_a_file(tmp_path: UPath) -> None:
    ledger = ledger_of(tmp_path / "t")
    add(ledger, "one", [("a", 0, None, "x"), ("a", 1, None, "x")])
    assert ledger.table is not None
    [file] = ledger.table.files("path", "digest")
    table = strike_by_other(ledger.url, {file["path"]: [0]})
    assert [each["digest"] for each in table.files("digest")] == [file["digest"]]
    struck = ledger_of(UPath(ledger.url))
    by_log, by_rows = digests(struck)
    assert by_log == by_rows != from_hex(file["digest"])


ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from("abc"), st.integers(0, 4), st.sampled_from([None, 0, 1]), st.sampled_from("xy")
)
"""Few different rows, so that equal ones are added, struck and wanted again."""

STEP = st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.sets(ROWS), st.booleans())


@given(units=st.lists(st.sets(ROWS, min_size=1), max_size=4), steps=st.lists(STEP, max_size=5))
def test_any_target_is_reached(
    units: list[set[Row]], steps: list[tuple], new_place: NewPlace
) -> None:
    ledger = ledger_of(new_place("t"))
    held: set[Row] = set()
    for number, rows in enumerate(units):  # a commit of a run adds no row that lives already
        if rows - held:
            add(ledger, f"unit {number}", rows - held)
        held |= rows
    for number, (scope, wanted, may_add) in enumerate(steps):
        assert ledger.table is not None
        target = {row for row in wanted if row[0] in scope}
        before = {*live(ledger)}
        difference = find_difference(ledger.table, rows_of(target), scope)
        missing = {tuple(row.values()) for row in difference.missing.to_pylist()}
        assert missing <= target
        extends = may_add and bool(missing)
        added = [entry(ledger, f"step {number}", missing)] if extends else []
        strike(ledger, difference, added)
        expected = {row for row in before if row[0] not in scope} | target
        expected -= set() if extends else missing
        assert live(ledger) == sorted(expected, key=str)
        assert difference.num_struck == len(before - expected)
        assert difference.num_unstruck == len(expected - before - (missing if extends else set()))
        again = find_difference(ledger.table, rows_of(target), scope)
        assert not again.struck
        assert ledger.foreign_changes() is None
        by_log, by_rows = digests(ledger)
        assert by_log == by_rows
        assert live(ledger_of(UPath(ledger.url))) == live(ledger)
