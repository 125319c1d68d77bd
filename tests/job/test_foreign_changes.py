"""Other programs change a lake's tables: the next run notices, and `etl repair` undoes it."""

import shutil
from collections.abc import Callable, Iterator

import deltalake
import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.paths import at


def delta(recipe: Recipe, name: str) -> deltalake.DeltaTable:
    url = recipe.table_url(name)
    return deltalake.DeltaTable(
        url.removeprefix("file://"), storage_options=storage.delta_options(url)
    )


def restore(table: deltalake.DeltaTable) -> None:
    table.restore(table.version() - 2)  # the last commit of documents has no rows


def delete_a_file(table: deltalake.DeltaTable) -> None:
    """Delete all rows of one input file, which are whole data files."""
    source = table.to_pyarrow_table(columns=["source"])["source"][0].as_py()
    table.delete(f"source = '{source}'")


def delete_rows(table: deltalake.DeltaTable) -> None:
    table.delete("row = 1")


def compact(table: deltalake.DeltaTable) -> None:
    table.optimize.compact()


def compact_and_vacuum(table: deltalake.DeltaTable) -> None:
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def append(table: deltalake.DeltaTable) -> None:
    rows = pa.table(table.to_pyarrow_table()).slice(0, 1)
    options = table._storage_options
    deltalake.write_deltalake(table.table_uri, rows, mode="append", storage_options=options)


def overwrite(table: deltalake.DeltaTable) -> None:
    rows = pa.table(table.to_pyarrow_table())
    options = table._storage_options
    deltalake.write_deltalake(table.table_uri, rows, mode="overwrite", storage_options=options)


CHANGES = (
    restore,
    delete_a_file,
    delete_rows,
    compact,
    compact_and_vacuum,
    append,
    overwrite,
)


OFTEN = [
    ("documents", compact_and_vacuum),
    ("duplicates", delete_rows),
    ("tokens", append),
]
"""Tables and changes that `make test` tries; `make test-slow` tries all."""


@pytest.fixture
def grown(client: Client, recipe: Recipe, place: UPath) -> Iterator[Recipe]:
    """A lake that two runs have filled, so that each table has several data files and versions."""
    folder = place / "grown"
    source = recipe.source.model_copy(update={"path": str(folder)})
    recipe = recipe.model_copy(update={"source": source})
    write_parquet(folder / "a.parquet", records(0, 40), group=20)
    run(recipe, cluster=client)
    write_parquet(folder / "b.parquet", records(40, 120), group=20)
    write_parquet(folder / "c.parquet", records(20, 60), group=20)
    run(recipe, cluster=client)
    yield recipe
    shutil.rmtree(storage.local_path(str(recipe.lake)), ignore_errors=True)


@pytest.mark.local_only
@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param(
            name,
            change,
            marks=() if (name, change) in OFTEN else pytest.mark.slow,
        )
        for name in ("documents", "duplicates", "tokens")
        for change in CHANGES
    ],
)
def test_a_change_is_refused_and_undone_on_request(
    client: Client, grown: Recipe, name: str, change: Callable[[deltalake.DeltaTable], None]
) -> None:
    before = rows_by_table(grown)
    version = Table.open(grown.table_url(name)).version
    change(delta(grown, name))
    with pytest.raises(MismatchError, match=r"another program(.|\n)*etl repair"):
        run(grown, cluster=client)
    assert verify(str(grown.lake)) != []
    shown = repair(str(grown.lake))
    assert shown.restored.get(name) or shown.dropped.get(name)
    assert Table.open(grown.table_url(name)).version > version
    assert repair(str(grown.lake), drop=True).left == []
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before
    assert verify(str(grown.lake)) == []
    assert not make_plan(grown).has_work()


@pytest.mark.local_only
def test_changes_of_all_tables_are_undone_together(client: Client, grown: Recipe) -> None:
    before = rows_by_table(grown)
    for name in grown.steps:
        restore(delta(grown, name))
    assert repair(str(grown.lake), drop=True).left == []
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before


@pytest.mark.local_only
def test_a_change_during_a_run_ends_it(
    client: Client, grown: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last table is changed after the last commit of the run: even then it must not report success."""
    write_parquet(at(grown.source.paths[0]) / "d.parquet", records(200, 220), group=20)
    monkeypatch.setattr(
        "etl.job.run_steps.tokenize_units",
        lambda context, table: (tokenize(context, table), delete_a_file(delta(grown, "tokens"))),
    )
    from etl.job.tokenize_step import tokenize_units as tokenize

    with pytest.raises(MismatchError, match="another program: DELETE"):
        run(grown, cluster=client)
    monkeypatch.undo()
    assert repair(str(grown.lake), drop=True).left == []
    assert run(grown, cluster=client).ok
    assert verify(str(grown.lake)) == []


@pytest.mark.local_only
def test_commits_that_change_no_data_are_accepted(client: Client, grown: Recipe) -> None:
    for name in grown.steps:
        delta(grown, name).alter.set_table_properties({"delta.checkpointInterval": "20"})
        delta(grown, name).vacuum(0, dry_run=False, enforce_retention_duration=False)
    write_parquet(at(grown.source.paths[0]) / "d.parquet", records(200, 220), group=20)
    assert run(grown, cluster=client).ok
    assert verify(str(grown.lake)) == []
    assert not make_plan(grown).has_work()


@pytest.mark.local_only
def test_changes_before_a_rebuild_are_not_undone(client: Client, grown: Recipe) -> None:
    compact_and_vacuum(delta(grown, "tokens"))
    assert run(grown, cluster=client, rebuild=True).ok
    before = rows_by_table(grown)
    delete_a_file(delta(grown, "tokens"))
    done = repair(str(grown.lake), drop=True)
    assert (done.left, done.dropped) == ([], {})
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before


@pytest.mark.local_only
def test_a_table_with_other_columns_is_refused(client: Client, grown: Recipe) -> None:
    table = delta(grown, "tokens")
    rows = pa.table(table.to_pyarrow_table()).drop_columns(["id"])
    deltalake.write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(MismatchError, match="another program"):
        run(grown, cluster=client)
    assert repair(str(grown.lake), drop=True).left == []
    with pytest.raises(MismatchError, match="the column 'id'"):
        run(grown, cluster=client)
    assert run(grown, cluster=client, rebuild=True).ok
    assert verify(str(grown.lake)) == []
