"""Deletion vectors in the tables of a lake: undone if foreign, kept while needed, mended if lost."""

import os
from datetime import timedelta
from pathlib import Path

import deltalake
import pytest
from distributed import Client

from etl.audit.verify.verify import verify
from etl.delta.deletion_vectors import FOLDER, path_of
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import releases
from etl.lake.foreign_changes import live_files
from etl.lake.jobs import JobIdentity, hold_job
from etl.lake.open_ledger import open_ledger
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.undo_units import Undo
from etl.maintenance.vacuum import vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.damage import live
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.paths import at
from tests.helpers.strikes import strike_by_other, strike_by_us

NOTHING = timedelta(0)


def first_files(recipe: Recipe, name: str, count: int = 2) -> list[str]:
    return live(recipe, name)[:count]


def vector_files(recipe: Recipe, name: str) -> set[str]:
    return {path.name for path in at(f"{recipe.table_url(name)}/{FOLDER}").glob("*.bin")}


def age(lake: str | None) -> None:
    for path in Path(str(lake)).rglob("*"):
        os.utime(path, (0, 0))


@pytest.mark.parametrize("name", ["documents", "duplicates", "tokens"])
def test_rows_that_another_program_struck_are_restored(
    client: Client, recipe: Recipe, name: str
) -> None:
    before, paths = rows_by_table(recipe), first_files(recipe, name)
    strike_by_other(recipe.table_url(name), {path: [0] for path in paths})
    assert rows_by_table(recipe) != before
    with pytest.raises(MismatchError, match="written by another program: DELETE by Apache-Spark"):
        run(recipe, cluster=client)
    (problem,) = verify(recipe.lake)
    assert problem.is_foreign
    shown = repair(recipe.lake)
    assert shown.restored == {name: sorted(paths)}
    assert repair(recipe.lake, drop=True).left == []
    assert rows_by_table(recipe) == before
    assert verify(recipe.lake) == []
    assert not make_plan(recipe).has_work()


def test_undoing_a_foreign_strike_keeps_our_own(recipe: Recipe) -> None:
    url = recipe.table_url("tokens")
    first, second = first_files(recipe, "tokens")
    ours = live_files(strike_by_us(url, {first: [0, 1], second: [2]}))
    struck = strike_by_other(url, {first: [0, 1, 2], second: []})
    struck = strike_by_other(url, {second: [0]})
    assert len(live_files(struck) - ours) == 2
    with hold_job(JobIdentity(lake=str(recipe.lake), kind="repair")) as job:
        Undo(str(recipe.lake), [], is_foreign=True).commit(job)
    restored = Table.open(url)
    assert live_files(restored) == ours
    assert open_ledger(restored).foreign_changes() is None


@pytest.mark.local_only  # delta-rs changes the lake
def test_a_vector_that_a_foreign_vacuum_took_is_mended(client: Client, recipe: Recipe) -> None:
    before = rows_by_table(recipe)
    url = recipe.table_url("tokens")
    first, second = first_files(recipe, "tokens")
    strike_by_us(url, {first: [0]})
    strike_by_other(url, {first: [0, 1], second: [1]})
    table = deltalake.DeltaTable(url)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    for path in at(f"{url}/{FOLDER}").iterdir():
        path.unlink()  # some programs delete it
    result = repair(recipe.lake, drop=True)
    assert result.left == []
    assert first not in {file.path for file in live_files(Table.open(url))}
    assert verify(recipe.lake) == []
    assert run(recipe, cluster=client).ok
    assert rows_by_table(recipe) == before
    assert verify(recipe.lake) == []


@pytest.mark.parametrize("damage", ["lost", "flipped", "cut", "swapped"])
def test_a_damaged_vector_is_found_and_its_unit_done_again(
    client: Client, recipe: Recipe, damage: str
) -> None:
    before = rows_by_table(recipe)
    url = recipe.table_url("tokens")
    first, second = first_files(recipe, "tokens")
    strike_by_us(url, {first: [0]})
    table = strike_by_us(url, {second: [1]})
    vectors = {file.path: path_of(file.vector) for file in live_files(table) if file.vector}
    stored = at(f"{url}/{vectors[first]}")
    if damage == "lost":
        stored.unlink()
    elif damage == "flipped":
        content = stored.read_bytes()
        stored.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    elif damage == "cut":
        stored.write_bytes(stored.read_bytes()[:-30])
    else:
        other = at(f"{url}/{vectors[second]}")
        content = stored.read_bytes()
        stored.write_bytes(other.read_bytes())
        other.write_bytes(content)
    found = {problem.file for problem in verify(recipe.lake, quick=True)}
    assert found == ({first, second} if damage == "swapped" else {first})
    assert repair(recipe.lake, drop=True).left == []
    assert run(recipe, cluster=client).ok
    # The rows that were struck in the sound file are still struck.
    after = rows_by_table(recipe)["tokens"]
    missing = [row for row in before["tokens"] if row not in after]
    assert len(missing) == (0 if damage == "swapped" else 1)


@pytest.mark.local_only  # object stores do not let tests set a file's time
def test_a_vacuum_keeps_the_vectors_of_needed_versions(recipe: Recipe) -> None:
    url = recipe.table_url("tokens")
    (path,) = first_files(recipe, "tokens", 1)
    tables = [strike_by_us(url, {path: range(count)}) for count in (1, 2, 3, 4)]
    versions = [table.version for table in tables]
    names = [
        str(path_of(str(file.vector))).rpartition("/")[2]
        for table in tables
        for file in live_files(Table.open(url, table.version))
        if file.vector
    ]
    assert vector_files(recipe, "tokens") == set(names)
    assert vacuum(recipe.lake, delete=True).files == []  # within the retention
    orphan = at(url) / FOLDER / "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    orphan.write_bytes(b"x")
    age(recipe.lake)
    releases.create_release(recipe.lake, "second", version=versions[1])
    deleted = {each.file: each for each in vacuum(recipe.lake, retain=NOTHING, delete=True).files}
    kept = [names[1], names[3]]
    assert vector_files(recipe, "tokens") == set(kept)
    gone = {f"{FOLDER}/{name}" for name in (names[0], names[2], orphan.name)}
    assert deleted.keys() >= gone
    assert deleted[f"{FOLDER}/{names[2]}"].why == f"removed by version {versions[3]}"
    assert deleted[f"{FOLDER}/{names[2]}"].versions == (versions[2], versions[2])
    for version, count in ((versions[1], 2), (versions[3], 4)):
        table = Table.open(url, version)
        (file,) = (f for f in table.files("vector", "physical_rows") if f["path"] == path)
        rows = read_live_rows(url, file, ["row"]).num_rows
        assert rows == file["physical_rows"] - count


def test_compaction_leaves_out_struck_rows(recipe: Recipe) -> None:
    url = recipe.table_url("tokens")
    struck = {path: [0] for path in first_files(recipe, "tokens", 3)}
    strike_by_us(url, struck)
    before = rows_by_table(recipe)["tokens"]
    optimize(str(recipe.lake))
    assert rows_by_table(recipe)["tokens"] == before
    table = Table.open(url)
    assert struck.keys().isdisjoint({file.path for file in live_files(table)})
    assert [problem for problem in verify(recipe.lake) if problem.table == "tokens"] == []


def test_a_lost_vector_that_only_a_release_needs_is_reported(recipe: Recipe) -> None:
    url = recipe.table_url("tokens")
    (path,) = first_files(recipe, "tokens", 1)
    old = strike_by_us(url, {path: [0]})
    releases.create_release(recipe.lake, "struck", version=old.version)
    (vector,) = (str(path_of(file.vector)) for file in live_files(old) if file.vector)
    newest = live_files(strike_by_us(url, {path: []}))
    assert verify(recipe.lake) == []
    at(f"{url}/{vector}").unlink()
    (problem,) = verify(recipe.lake)
    assert (problem.file, problem.release) == (path, "struck")
    result = repair(recipe.lake, drop=True)
    assert [left.problem for left in result.left] == [problem]
    assert live_files(Table.open(url)) == newest
