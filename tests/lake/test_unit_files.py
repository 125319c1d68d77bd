"""Data files with the rows of many units of work: what readers, runs and repairs make of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.audit.duplicates.duplicate_report import duplicates
from etl.audit.lake_comparison import compare_lakes
from etl.audit.lake_report import report
from etl.audit.trace import trace
from etl.audit.tune.tune import tune
from etl.audit.verify.verify import verify
from etl.delta.live_rows import live_rows, read_live_row_groups, read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.exports.documents import export_documents
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.open_ledger import open_ledger
from etl.lake.unit_files import unit_files, unit_keys
from etl.lake.work_units import kept_units
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.damage import delete, flip, paths
from tests.helpers.lake_rows import rows, rows_by_table
from tests.helpers.paths import NewPlace, at, copy
from tests.helpers.recipes import small_recipe

SMALL = Layout(row_group_rows=7, statistics=("row",))


@given(
    size=st.integers(1, 40),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    struck=st.sets(st.integers(0, 39)),
    batch=st.integers(1, 9),
)
def test_a_part_of_a_file_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    ends: tuple[int, int],
    struck: set[int],
    batch: int,
) -> None:
    url = str(tmp_path_factory.mktemp("table"))
    schema = pa.schema({"row": pa.int64()})
    writer = DataFileWriter(url, schema, SMALL, name="a" * 32)
    writer.append(pa.table({"row": range(size)}))
    (written,) = writer.close()
    table = Table.create(url, schema, SMALL, transactions={}).commit([written], transactions={})
    gone = sorted(each for each in struck if each < size)
    table = table.commit(table.strike({written.path: gone}), transactions={}, remove=[written.path])
    (entry,) = table.data_files().to_pylist()
    part = min(*ends, size), min(max(*ends), size)
    wanted = [row for row in range(*part) if row not in gone]
    file = LogicalFile.of({**entry, "part": part})
    assert read_live_rows(url, file)["row"].to_pylist() == wanted
    groups = read_live_row_groups(url, file)
    assert [row for group in groups for row in group["row"].to_pylist()] == wanted
    with live_rows(url, file) as opened:
        assert [row for b in opened.batches(batch) for row in b["row"].to_pylist()] == wanted
        every = range(opened.num_row_groups)
        assert [r for each in every for r in opened.row_group(each)["row"].to_pylist()] == wanted
        assert [p for each in every for p in opened.positions(each).tolist()] == wanted


@pytest.fixture(scope="module")
def plain(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake of ten small files in two arrivals; tests change copies of it."""
    folder = new_place("many")
    recipe = small_recipe(folder / "crawl", folder / "lake", tiny_tokenizer, split_bytes=8192)
    for first in (0, 60):
        for start in range(first, first + 60, 12):
            write_jsonl(folder / "crawl" / f"{start:03}.jsonl", records(start, start + 12))
        assert run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def lakes(client: Client, plain: Recipe, place: UPath) -> tuple[Recipe, Recipe]:
    """Two lakes with the same rows of copied files, of which the second is optimized."""
    source = plain.source.model_copy(update={"path": str(place / "crawl")})
    first = plain.model_copy(update={"source": source, "lake": str(place / "plain")})
    _read_in_two_arrivals([first], plain, client)
    second = first.model_copy(update={"lake": str(copy(first.lake, place / "optimized"))})
    optimize(str(second.lake))
    return first, second


@pytest.fixture
def packed_lakes(client: Client, plain: Recipe, place: UPath) -> tuple[Recipe, Recipe]:
    """Two lakes with the same rows of copied files, of which the second has read them in packs."""
    source = plain.source.model_copy(update={"path": str(place / "crawl")})
    first = plain.model_copy(update={"source": source, "lake": str(place / "plain")})
    source = source.model_copy(update={"split_bytes": 1 << 20})
    second = first.model_copy(update={"source": source, "lake": str(place / "packed")})
    _read_in_two_arrivals([first, second], plain, client)
    return first, second


def _read_in_two_arrivals(recipes: Sequence[Recipe], plain: Recipe, client: Client) -> None:
    crawl = at(recipes[0].source.path)
    files = sorted(at(plain.source.path).iterdir())
    for part in (files[:5], files[5:]):
        for file in part:
            (crawl / file.name).parent.mkdir(parents=True, exist_ok=True)
            (crawl / file.name).write_bytes(file.read_bytes())
        for recipe in recipes:
            assert run(recipe, cluster=client).ok


def shared_files(recipe: Recipe, name: str) -> list[dict[str, Any]]:
    files = Table.open(recipe.table_url(name)).data_files().to_pylist()
    return [file for file in files if len(unit_keys(file)) > 1]


def check_same(lakes: tuple[Recipe, Recipe]) -> None:
    """Check that two lakes have the same rows, are sound, and have nothing left to do."""
    first, second = lakes
    assert rows_by_table(second) == rows_by_table(first)
    assert compare_lakes(str(first.lake), str(second.lake)).is_same
    for recipe in lakes:
        assert verify(str(recipe.lake)) == []
        assert not make_plan(recipe).has_work()


def test_small_files_of_all_tables_are_merged(lakes: tuple[Recipe, Recipe]) -> None:
    _, recipe = lakes
    counts = {name: len(paths(recipe, name)) for name in recipe.steps}
    assert counts == {"documents": 2, "texts": 1, "duplicates": 1, "tokens": 1}
    check_same(lakes)


def test_units_stay_what_they_were(lakes: tuple[Recipe, Recipe]) -> None:
    before, after = ([*kept_units(Table.open(each.table_url("texts")))] for each in lakes)
    assert len(before) == 10
    for first, second in zip(before, after, strict=True):
        names = ("key", "source", "rows", "first_row", "last_row")
        assert [getattr(first, n) for n in names] == [getattr(second, n) for n in names]
        assert [file.part is not None for file in second.files] == [True]


def test_audits_find_the_rows(lakes: tuple[Recipe, Recipe]) -> None:
    first, second = (str(recipe.lake) for recipe in lakes)
    assert report(second).sources == report(first).sources
    settings = ["gopher_quality.min_words=60"]
    assert tune(second, settings).sources == tune(first, settings).sources
    assert duplicates(second).largest == duplicates(first).largest
    for row in rows(first, "documents")[::7]:
        (before,), (after,) = (trace(lake, id=str(row["id"])) for lake in (first, second))
        assert (after.outcome, after.text, after.signals) == (
            before.outcome,
            before.text,
            before.signals,
        )
        assert after.document.commit is not None
        assert after.document.commit.recipe == "web"
    exported = [export_documents(lake, f"{lake}-out").documents for lake in (first, second)]
    assert exported[0] == exported[1] == len(rows(first, "tokens"))


def add_files(crawl: UPath) -> dict[str, bool]:
    write_jsonl(crawl / "005.jsonl", records(200, 206))
    write_jsonl(crawl / "999.jsonl", records(60, 63))
    return {}


def change_a_file(crawl: UPath) -> dict[str, bool]:
    write_jsonl(crawl / "012.jsonl", records(300, 304))
    return {"replace_changed": True}


def change_one_and_delete_others(crawl: UPath) -> dict[str, bool]:
    """The rows of files that are gone stay, also in data files with rows of the changed one."""
    write_jsonl(crawl / "012.jsonl", records(300, 304))
    for name in ("024", "036", "048", "072"):
        (crawl / f"{name}.jsonl").unlink()
    return {"replace_changed": True}


def drop_missing(crawl: UPath) -> dict[str, bool]:
    (crawl / "000.jsonl").unlink()
    (crawl / "084.jsonl").unlink()
    return {"drop_missing": True, "replace_changed": True}


def move_a_file(crawl: UPath) -> dict[str, bool]:
    moved = crawl / "moved" / "012.jsonl"
    moved.parent.mkdir()
    moved.write_bytes((crawl / "012.jsonl").read_bytes())
    (crawl / "012.jsonl").unlink()
    return {}


def rebuild(crawl: UPath) -> dict[str, bool]:
    return {"rebuild": True}


CHANGES = (
    add_files,
    change_a_file,
    change_one_and_delete_others,
    drop_missing,
    move_a_file,
    rebuild,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_run_continues(
    client: Client,
    lakes: tuple[Recipe, Recipe],
    place: UPath,
    change: Callable[[UPath], dict[str, bool]],
) -> None:
    options = change(place / "crawl")
    for recipe in lakes:
        assert run(recipe, cluster=client, **options).ok
    check_same(lakes)
    optimize(str(lakes[1].lake))
    check_same(lakes)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_run_continues_in_a_lake_of_packs(
    client: Client,
    packed_lakes: tuple[Recipe, Recipe],
    place: UPath,
    change: Callable[[UPath], dict[str, bool]],
) -> None:
    assert len(paths(packed_lakes[1], "texts")) == 2  # one for each arrival
    test_a_run_continues(client, packed_lakes, place, change)


def test_later_steps_are_done_again_from_shared_files(
    client: Client, lakes: tuple[Recipe, Recipe]
) -> None:
    archived = [
        recipe.model_copy(
            update={
                "stages": (*recipe.stages[:2], recipe.stages[2].model_copy(update={"eos": False}))
            }
        )
        for recipe in lakes
    ]
    for recipe in archived:
        assert run(recipe, cluster=client, rebuild=True).ok
    check_same((archived[0], archived[1]))


@pytest.mark.parametrize("table", ["documents", "texts", "tokens"])
@pytest.mark.parametrize("damage", [flip, delete])
def test_damaged_shared_files_are_repaired(
    client: Client, lakes: tuple[Recipe, Recipe], table: str, damage: Callable[[UPath], None]
) -> None:
    recipe = lakes[1]
    damage(paths(recipe, table)[0])
    assert verify(str(recipe.lake))
    assert repair(str(recipe.lake), drop=True).left == []
    assert run(recipe, cluster=client).ok
    check_same(lakes)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["documents", "texts", "tokens"])
@pytest.mark.parametrize("damage", [flip, delete])
def test_damaged_files_of_packs_are_repaired(
    client: Client, packed_lakes: tuple[Recipe, Recipe], table: str, damage: Callable[[UPath], None]
) -> None:
    test_damaged_shared_files_are_repaired(client, packed_lakes, table, damage)


@pytest.mark.parametrize("damage", [flip, delete])
def test_a_repair_keeps_the_texts_of_other_units(
    client: Client, plain: Recipe, place: UPath, damage: Callable[[UPath], None]
) -> None:
    """Two of five units have rejected documents, all in one file; the texts of all five are in another."""
    source = plain.source.model_copy(update={"path": str(place / "crawl")})
    first = plain.model_copy(update={"source": source, "lake": str(place / "plain")})
    for start, stop in ((4, 6), (6, 10), (11, 15), (16, 20), (25, 29)):
        write_jsonl(place / "crawl" / f"{start:03}.jsonl", records(start, stop))
    assert run(first, cluster=client).ok
    second = first.model_copy(update={"lake": str(copy(first.lake, place / "optimized"))})
    optimize(str(second.lake))
    (texts,) = shared_files(second, "texts")
    (rejected,) = (f for f in shared_files(second, "documents") if "rejected" in f["path"])
    lost = {*unit_keys(rejected)}
    assert (len(unit_keys(texts)), len(lost)) == (5, 2)
    damage(at(second.table_url("documents")) / rejected["path"])
    before = files_below(second)
    assert repair(str(second.lake)).has_changes
    assert files_below(second) == before
    assert repair(str(second.lake), drop=True).left == []
    assert verify(str(second.lake)) == []
    (rest,) = shared_files(second, "texts")
    assert rest["path"] != texts["path"]
    assert unit_keys(rest) == [key for key in unit_keys(texts) if key not in lost]
    assert run(second, cluster=client).ok
    check_same((first, second))


def files_below(recipe: Recipe) -> set[str]:
    """Return the files in a lake, without those of its jobs."""
    lake = at(recipe.lake)
    return {
        str(file) for name in recipe.steps for file in (lake / name).rglob("*") if file.is_file()
    }


def test_a_list_of_units_that_is_wrong_is_found(lakes: tuple[Recipe, Recipe]) -> None:
    recipe = lakes[1]
    (entry,) = shared_files(recipe, "texts")
    table = Table.open(recipe.table_url("texts"))
    (file,) = table.strike({entry["path"]: ()})
    units = json.loads(entry["units"])
    units[0][2], units[1][2] = units[0][2] + 1, units[1][2] - 1
    table.commit([replace(file, units=json.dumps(units))], transactions={})
    problems = verify(str(recipe.lake))
    assert any("that its log gives to others" in problem.what for problem in problems), problems


def test_struck_rows_of_shared_files_are_counted_by_unit(lakes: tuple[Recipe, Recipe]) -> None:
    recipe = lakes[1]
    (entry,) = shared_files(recipe, "texts")
    ledger = open_ledger(Table.open(recipe.table_url("texts")))
    struck = [0, 1, 7, entry["rows"] - 1]
    ledger.strike({entry["path"]: struck}, lambda _, __: None)
    table = Table.open(recipe.table_url("texts"))
    files = [*unit_files(table)]
    assert sum(file["rows"] for file in files) == entry["rows"] - len(struck)
    for file in files:
        held = read_live_rows(table.url, file, ["source", "row"])
        assert held.num_rows == file["rows"]
        assert {*held["source"].to_pylist()} <= {file["min.source"]}
    before = len(files)
    optimize(str(recipe.lake))
    assert len([*unit_files(Table.open(table.url))]) == before
