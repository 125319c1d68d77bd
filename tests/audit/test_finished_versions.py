"""A table that is restored from a backup or lost is not mistaken for one whose last run was interrupted."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import DamagedLogError
from etl.job.run import run
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.lakes import with_copied_lake
from tests.helpers.paths import NewPlace
from tests.helpers.recipes import small_recipe

pytestmark = pytest.mark.local_only  # folders are copied by hand

TABLES = ("documents", "texts", "duplicates", "keys", "tokens")


@pytest.fixture(scope="module")
def saved(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake of two runs, and beside it a backup of its folder from between them."""
    folder = new_place("saved")
    recipe = small_recipe(folder / "crawl", folder / "lake", tiny_tokenizer)
    write_jsonl(folder / "crawl" / "a.jsonl", records(0, 30))
    assert run(recipe, cluster=client).ok
    shutil.copytree(str(recipe.lake), str(folder / "backup"))
    write_jsonl(folder / "crawl" / "b.jsonl", records(20, 50))
    assert run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def grown(saved: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake, and of the backup."""
    shutil.copytree(Path(saved.lake).with_name("backup"), str(place / "backup"))
    return with_copied_lake(saved, place)


def roll_back(path: Path) -> None:
    """Replace a folder of the lake by that of the backup."""
    shutil.rmtree(path)
    shutil.copytree(path.parent.with_name("backup") / path.name, path)


def lose_newest(table: Path) -> None:
    max((table / "_delta_log").glob("[0-9]*.json")).unlink()


QUICK = (
    ("documents", roll_back),
    ("texts", lose_newest),
    ("duplicates", shutil.rmtree),
    ("keys", roll_back),
    ("keys", lose_newest),
    ("tokens", lose_newest),
    ("tokens", shutil.rmtree),
)
"""Each table and each damage; `make test-slow` runs all pairs."""


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(name, damage, marks=[pytest.mark.slow] * ((name, damage) not in QUICK))
        for name in TABLES
        for damage in (roll_back, lose_newest, shutil.rmtree)
    ],
)
def test_a_table_that_has_lost_versions_is_found_and_repaired(
    client: Client, grown: Recipe, name: str, damage: Callable[[Path], None]
) -> None:
    lake = str(grown.lake)
    before = rows_by_table(grown)
    newest = Table.open(grown.table_url(name)).version
    damage(Path(lake) / name)
    assert {problem.table for problem in verify(lake, quick=True)} == {name}
    if name != "keys":  # a run makes it again
        with pytest.raises(DamagedLogError, match=f"a job has ended with version {newest}"):
            run(grown, cluster=client)
        with pytest.raises(DamagedLogError, match="a job has ended"):
            vacuum(lake)
    assert repair(lake, drop=True).logs == [name]
    assert Table.open(grown.table_url(name)).version > newest, "no version is committed twice"
    assert run(grown, cluster=client).ok
    assert verify(lake) == []
    assert rows_by_table(grown) == before


def test_an_interrupted_run_is_not_a_problem(client: Client, grown: Recipe) -> None:
    """The second run has not ended, and the newest commit of it is lost."""
    lake = Path(grown.lake)
    before = rows_by_table(grown)
    roll_back(lake / "finished")
    lose_newest(lake / "tokens")
    assert verify(str(lake)) == []
    assert run(grown, cluster=client).tokens
    assert rows_by_table(grown) == before
    assert verify(str(lake)) == []


def test_a_lake_that_has_lost_all_tables_starts_again(client: Client, grown: Recipe) -> None:
    before = rows_by_table(grown)
    for name in TABLES:
        shutil.rmtree(Path(grown.lake) / name)
    with pytest.raises(DamagedLogError, match="the table is missing"):
        run(grown, cluster=client)
    repair(str(grown.lake), drop=True)
    assert run(grown, cluster=client).ok
    assert {name: len(rows) for name, rows in rows_by_table(grown).items()} == {
        name: len(rows) for name, rows in before.items()
    }
    assert verify(str(grown.lake)) == []


@pytest.mark.parametrize("damage", ["file", "copy", "both"])
def test_a_damaged_file_of_versions_is_repaired(client: Client, grown: Recipe, damage: str) -> None:
    folder = Path(grown.lake) / "finished"
    before = (folder / "versions.json").read_bytes()
    for name, path in (("file", "versions.json"), ("copy", "_copies/versions.json")):
        if damage in (name, "both"):
            (folder / path).write_bytes(b"{}")
    assert {problem.table for problem in verify(str(grown.lake))} == {"finished"}
    assert repair(str(grown.lake), drop=True).left == []
    assert verify(str(grown.lake)) == []
    assert (folder / "versions.json").read_bytes() == before
