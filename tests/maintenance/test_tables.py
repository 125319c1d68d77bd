"""A table is defined once: a further table spec is covered by every command that goes over all tables."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from etl import schemas
from etl.audit.lake_report import report
from etl.audit.lineage_graph import history
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.lake import releases
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.table_specs import SPECS, TableSpec
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from etl.recipe.recipe import Recipe
from tests.helpers.damage import commit_damage
from tests.helpers.paths import at

SCHEMA = pa.schema({"source": pa.string(), "row": pa.int64()})
SCORES = TableSpec(
    name="scores",
    schema=lambda _: SCHEMA,
    layout=Layout(statistics=("source", "row")),
    made_from=("documents",),
)


def write_file(table: Table, name: str) -> DataFile:
    writer = DataFileWriter(table.url, SCHEMA, SCORES.layout, name=name * 32)
    writer.append(pa.table({"source": [name], "row": [0]}, schema=SCHEMA))
    (file,) = writer.close()
    return file


@pytest.fixture
def scores(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table ``scores`` of a lake, with one row, after its spec was added."""
    monkeypatch.setitem(SPECS, SCORES.name, SCORES)
    monkeypatch.setattr(schemas, "TABLES", (*schemas.TABLES, SCORES.name))
    ledger = Ledger(f"{recipe.lake}/scores", fingerprint="f" * 64)
    ledger.create(SCHEMA, SCORES.layout)
    assert ledger.table is not None
    file = write_file(ledger.table, "a")
    ledger.commit([LedgerEntry("a" * 32, [file])], lambda _, __: None)
    return ledger.table


def test_specs_and_names_agree() -> None:
    assert tuple(SPECS) == schemas.TABLES
    assert {*schemas.UNRELEASED_TABLES} < {*schemas.TABLES}
    for index, spec in enumerate(SPECS.values()):
        assert {*spec.made_from} <= {*list(SPECS)[:index]}, "tables are listed after their inputs"


def test_a_further_table_is_reported(recipe: Recipe, scores: Table) -> None:
    (table,) = (table for table in report(str(recipe.lake)).tables if table.name == "scores")
    assert (table.version, table.files, table.rows) == (1, 1, 1)
    assert [version.version for version in history(scores.url)] == [1, 0]


def test_a_further_table_is_verified(recipe: Recipe, scores: Table) -> None:
    assert verify(str(recipe.lake)) == []
    (path,) = scores.data_files()["path"].to_pylist()
    (at(scores.url) / path).unlink()
    (problem,) = verify(str(recipe.lake))
    assert str(problem) == f"scores/{path}: the file is missing"
    done = repair(str(recipe.lake), drop=True)
    assert ([left.problem for left in done.left], done.dropped) == ([problem], {})
    (at(scores.url) / "_delta_log" / f"{1:020}.json").write_text("{")
    (problem,) = verify(str(recipe.lake))
    assert str(problem).startswith("scores: the log entry of version 1 is not valid JSON")


def test_a_release_keeps_a_further_table_from_a_vacuum(recipe: Recipe, scores: Table) -> None:
    lake = str(recipe.lake)
    assert releases.create_release(lake, "first").versions["scores"] == 1
    old = scores.data_files()["path"].to_pylist()
    commit_damage(scores, [write_file(scores, "b")], remove=old)
    orphan = write_file(scores, "c")
    unneeded = vacuum(lake, retain=timedelta(0)).files
    assert [(file.table, file.file) for file in unneeded] == [("scores", orphan.path)]
    releases.remove_release(lake, "first")
    unneeded = vacuum(lake, retain=timedelta(0), delete=True).files
    assert {file.file for file in unneeded} == {orphan.path, *old}
    assert {path.name for path in at(scores.url).glob("*.parquet")}.isdisjoint(map(name_of, old))


def name_of(path: str) -> str:
    return Path(path).name
