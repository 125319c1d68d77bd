"""Tables with struck rows that another program has changed: its commits, and then ours."""

from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from upath import UPath

from etl import storage
from etl.delta.deletion_vectors import FOLDER
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from tests.helpers.paths import at, copy
from tests.helpers.struck_chain import SCHEMA, Chain


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    chain = Chain(at(tmp_path_factory.mktemp("chain") / "t"), seed=3)
    chain.change_twenty_times()
    return chain


def open_delta_rs(table: Table) -> deltalake.DeltaTable:
    options = storage.delta_options(table.url)
    return deltalake.DeltaTable(table.url, storage_options=options)


def numbers_in(table: Table) -> list[int]:
    """Return the live numbers of a table, ascending."""
    files = table.files("path", "vector", "physical_rows")
    parts = [read_live_rows(table.url, file, ["number"])["number"] for file in files]
    return sorted(number for part in parts for number in part.to_pylist())


def by_delta_rs(table: Table) -> list[int]:
    rows = pa.table(open_delta_rs(table).scan(columns=["number"]))
    return sorted(rows["number"].to_pylist())


def append(table: deltalake.DeltaTable) -> None:
    rows = pa.table([[-7], ["a"], ["kept"]], schema=SCHEMA)
    deltalake.write_deltalake(table, rows, mode="append")


def vacuum(table: deltalake.DeltaTable, *, full: bool) -> None:
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


CHANGES: dict[str, Callable[[deltalake.DeltaTable], object]] = {
    "delete": lambda table: table.delete("number % 7 = 0"),
    "update": lambda table: table.update({"number": "number * -1"}, predicate="number % 7 = 0"),
    "append": append,
    "compact": lambda table: table.optimize.compact(),
    "checkpoint": lambda table: table.create_checkpoint(),
    "vacuum": lambda table: vacuum(table, full=False),
    "full vacuum": lambda table: vacuum(table, full=True),
}


def expected(change: str, numbers: list[int]) -> list[int]:
    if change == "delete":
        return [number for number in numbers if number % 7 != 0]
    if change == "update":
        return sorted(-number if number % 7 == 0 else number for number in numbers)
    return [-7, *numbers] if change == "append" else numbers


@pytest.mark.parametrize("change", CHANGES)
def test_rows_stay_struck_after_changes_of_delta_rs(
    chain: Chain, place: UPath, change: str
) -> None:
    table = Table.open(str(copy(chain.table.url, place / "t")))
    vectors = sorted(file.name for file in (place / "t" / FOLDER).iterdir())
    CHANGES[change](open_delta_rs(table))
    table = Table.open(table.url)
    right = expected(change, sorted(chain.live_rows()["number"].to_pylist()))
    assert numbers_in(table) == right
    assert sorted(file.name for file in (place / "t" / FOLDER).iterdir()) == vectors
    path = next(str(file["path"]) for file in table.files("path", "rows") if file["rows"])
    struck = table.strike({path: []})
    table = table.commit(struck, remove=[path], transactions={})
    assert numbers_in(table) == by_delta_rs(table)
    assert set(right) <= set(numbers_in(table))


def test_a_file_that_is_struck_as_before_stays(tmp_path: Path) -> None:
    """Readers take a file for removed if an entry both removes it and adds it as it is."""
    chain = Chain(at(tmp_path / "t"), seed=4)
    paths = [str(file["path"]) for file in chain.table.files("path")]
    table = chain.table.commit(
        chain.table.strike(dict.fromkeys(paths, ())), remove=paths, transactions={}
    )
    numbers = chain.live_rows()["number"].to_pylist()
    assert numbers_in(Table.open(table.url)) == by_delta_rs(table) == sorted(numbers)
