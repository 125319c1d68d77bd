"""Runs over a Delta table that is compacted, changed, restored and vacuumed between runs."""

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.trace import trace
from etl.audit.trace_records import TracedTable
from etl.audit.verify.verify import verify
from etl.cli.commands.trace import lines
from etl.delta.table import Table
from etl.errors import MismatchError, SourceError
from etl.job import read_step
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.table_versions import history, live_inputs
from etl.maintenance.optimize import optimize
from etl.recipe.recipe import Recipe
from tests.helpers.delta_source import SourceTable
from tests.helpers.lake_rows import rows
from tests.helpers.paths import at


@pytest.fixture
def table(place: UPath) -> SourceTable:
    return SourceTable(place / "source")


@pytest.fixture
def recipe(place: UPath, table: SourceTable, tiny_tokenizer: Path) -> Recipe:
    return make_recipe(table, place / "lake", tiny_tokenizer)


def make_recipe(table: SourceTable, lake: UPath, tokenizer: Path) -> Recipe:
    return Recipe(
        name="tables",
        source={"path": table.url, "split_bytes": 1},
        lake=str(lake),
        stages=["dedup_exact", {"tokenize": str(tokenizer)}],
    )


def texts(recipe: Recipe) -> Counter[object]:
    return Counter(row["text"] for row in rows(recipe.lake, "texts"))


@pytest.mark.slow
def test_a_compacted_table_is_not_read_again(
    client: Client, recipe: Recipe, table: SourceTable
) -> None:
    for _ in range(3):
        table.append(2)
    assert run(recipe, cluster=client).rows == 6
    table.compact()
    assert not make_plan(recipe).has_work()
    table.vacuum()
    table.append(3)
    table.z_order()
    assert run(recipe, cluster=client).rows == 3
    assert texts(recipe) == table.texts()
    assert len(rows(recipe.lake, "tokens")) == 9
    assert not make_plan(recipe).has_work()


def test_a_run_keeps_the_moves_that_the_log_will_lose(
    client: Client, recipe: Recipe, table: SourceTable
) -> None:
    table.append(2)
    table.append(2)
    run(recipe, cluster=client)
    table.compact()
    assert run(recipe, cluster=client).rows == 0
    table.append(2)
    table.delete_log_entries()
    assert run(recipe, cluster=client).rows == 2
    assert texts(recipe) == table.texts()
    [moves] = (at(recipe.lake) / "source_moves").glob("*.json")
    moves.write_text("{")
    with pytest.raises(SourceError, match=r"is damaged.*\n  hint: `etl repair .* deletes it"):
        make_plan(recipe)


def test_the_lineage_has_the_version_of_each_input_file(
    client: Client, recipe: Recipe, table: SourceTable
) -> None:
    table.append(2)
    run(recipe, cluster=client)
    table.append(2)
    table.append(2)
    table.compact()
    run(recipe, cluster=client)
    inputs = live_inputs(history(recipe.table_url("documents"))).files()
    versions = {uri: file.version for uri, file in inputs.items()}
    assert Counter(versions.values()) == {0: 1, 2: 2}, "each was live at this version"
    for uri, version in versions.items():
        live = Table.open(table.url, version).data_files()["path"].to_pylist()
        assert uri.removeprefix(f"{table.url}/") in live


def test_a_trace_names_the_version_of_the_table_and_whether_the_file_is_stored(
    client: Client, recipe: Recipe, table: SourceTable
) -> None:
    table.append(1)
    table.append(1)
    run(recipe, cluster=client)
    table.compact()
    [source] = {str(row["source"]) for row in rows(recipe.lake, "documents")[:1]}
    for is_stored in (True, False):
        [traced] = trace(recipe.lake, source=source, row=0)
        assert traced.input is not None
        assert traced.input.version == 1
        assert traced.table == TracedTable(url=table.url, version=1, is_stored=is_stored)
        text = "\n".join(lines([traced]))
        assert f"from version 1 of {table.url}" in text
        assert ("no longer stored" in text) is not is_stored
        table.vacuum()


@pytest.mark.parametrize("change", ["delete", "update", "merge", "overwrite", "restore"])
def test_rows_removed_from_the_table_are_refused(
    client: Client, recipe: Recipe, table: SourceTable, change: str
) -> None:
    table.append(2)
    table.append(2)
    run(recipe, cluster=client)
    before = texts(recipe)
    table.compact()
    getattr(table, change)(*{"overwrite": (), "restore": (0,)}.get(change, ("text 1",)))
    with pytest.raises(MismatchError, match=r"were removed from the Delta table.*\n.*--replace-"):
        run(recipe, cluster=client)
    assert texts(recipe) == before


@pytest.mark.parametrize("change", ["delete", "update", "merge", "overwrite", "restore"])
def test_rows_removed_from_the_table_are_dropped_on_request(
    client: Client, recipe: Recipe, table: SourceTable, change: str
) -> None:
    table.append(2)
    table.append(2)
    run(recipe, cluster=client)
    table.compact()
    compacted = table.version
    getattr(table, change)(*{"overwrite": (), "restore": (0,)}.get(change, ("text 1",)))
    run(recipe, cluster=client, replace_changed=True)
    assert texts(recipe) == table.texts()
    assert len(rows(recipe.lake, "tokens")) == table.texts().total()
    assert not make_plan(recipe).has_work()
    table.restore(compacted)  # files whose rows were dropped are back
    run(recipe, cluster=client, replace_changed=True)
    assert texts(recipe) == table.texts()
    assert not make_plan(recipe).has_work()


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_a_run_that_died_before_its_texts_reads_files_that_were_compacted_since(
    client: Client,
    recipe: Recipe,
    table: SourceTable,
    monkeypatch: pytest.MonkeyPatch,
    is_vacuumed: bool,
) -> None:
    for _ in range(3):
        table.append(2)

    def die(*_: object) -> None:
        raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(read_step, "_commit_derived", die)
        with pytest.raises(RuntimeError, match="died"):
            run(recipe, cluster=client)
    assert rows(recipe.lake, "documents") != rows(recipe.lake, "texts") == []
    table.compact()
    if is_vacuumed:  # only the new file has the rows
        table.vacuum()
    report = run(recipe, cluster=client)
    assert texts(recipe) == table.texts()
    assert report.missing.without_texts == len(verify(str(recipe.lake))) * 2 == 6 * is_vacuumed
    run(recipe, cluster=client, drop_missing=True)
    assert texts(recipe) == table.texts()
    assert len(rows(recipe.lake, "documents")) == 6
    assert not make_plan(recipe).has_work()
    assert verify(str(recipe.lake)) == []


def test_the_texts_of_another_lake_are_a_source(
    client: Client, recipe: Recipe, table: SourceTable, place: UPath
) -> None:
    table.append(4)
    run(recipe, cluster=client)
    second = recipe.model_copy(
        update={
            "source": recipe.source.model_copy(update={"path": recipe.table_url("texts")}),
            "lake": str(place / "second"),
        }
    )
    run(second, cluster=client)
    table.append(2)
    table.compact()
    run(recipe, cluster=client)
    assert optimize(str(recipe.lake))
    assert run(second, cluster=client).rows == 2
    assert texts(second) == table.texts()


def test_the_documents_of_another_lake_have_no_texts(
    client: Client, recipe: Recipe, table: SourceTable, place: UPath
) -> None:
    table.append(1)
    run(recipe, cluster=client)
    source = recipe.source.model_copy(update={"path": recipe.table_url("documents")})
    second = recipe.model_copy(update={"source": source, "lake": str(place / "second")})
    with pytest.raises(SourceError, match="no column 'text'") as raised:
        make_plan(second)
    assert raised.value.hint is not None
    assert raised.value.hint.endswith(f"its texts are in {recipe.table_url('texts')}")


@pytest.mark.local_only
def test_a_table_that_was_moved_is_the_same_table(
    client: Client, recipe: Recipe, table: SourceTable, place: UPath
) -> None:
    for _ in range(3):
        table.append(2)
    run(recipe, cluster=client)
    shutil.move(storage.local_path(table.url), storage.local_path(f"{table.url}-moved"))
    moved = SourceTable(f"{table.url}-moved")
    source = recipe.source.model_copy(update={"path": moved.url})
    recipe = recipe.model_copy(update={"source": source})
    assert not make_plan(recipe).has_work()
    moved.append(1)
    run(recipe, cluster=client)  # whose record names the new place
    assert verify(str(recipe.lake), sources=True) == []
    moved.compact()
    moved.write(pa.table({"text": ["a new text"], "n": [1]}), mode="append")
    assert run(recipe, cluster=client).rows == 1
    assert texts(recipe) == moved.texts()
    moved.delete("a new text")
    with pytest.raises(MismatchError, match="were removed from the Delta table"):
        run(recipe, cluster=client)
    run(recipe, cluster=client, replace_changed=True)
    assert texts(recipe) == moved.texts()
    assert run(recipe, cluster=client).missing.count == 0
    assert verify(str(recipe.lake)) == []
