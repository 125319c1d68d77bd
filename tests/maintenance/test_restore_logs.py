"""Damaged logs are restored: after the next run, the lake has the rows and decisions that it had before."""

from collections.abc import Callable

import deltalake
import pytest
from distributed import Client
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import DamagedLogError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import releases
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.damage import delete, paths
from tests.helpers.lake_rows import Row
from tests.helpers.lake_rows import rows_by_table as rows
from tests.helpers.lakes import with_copied_lake
from tests.helpers.paths import at, remove

TABLES = ("documents", "texts", "duplicates", "keys", "tokens")


def log(recipe: Recipe, name: str) -> UPath:
    return at(recipe.table_url(name)) / "_delta_log"


def entries(recipe: Recipe, name: str) -> list[UPath]:
    return sorted(log(recipe, name).glob("*.json"))


def check_repair(recipe: Recipe, client: Client, before: dict[str, list[Row]]) -> None:
    """Repair the lake and run; compare the rows with those before the damage."""
    assert verify(recipe.lake) != []
    done = repair(recipe.lake, drop=True)
    assert done.left == []
    assert run(recipe, cluster=client).ok
    after = rows(recipe)
    assert [name for name in before if after[name] != before[name]] == []
    assert verify(recipe.lake) == []
    assert not make_plan(recipe).has_work()


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("documents", 0),
        ("texts", 1),
        ("duplicates", 1),
        ("tokens", -1),
        *(
            pytest.param(name, position, marks=pytest.mark.slow)
            for name in TABLES
            for position in (0, 1, -1)
            if (name, position)
            not in (("documents", 0), ("texts", 1), ("duplicates", 1), ("tokens", -1))
        ),
    ],
)
def test_a_lost_entry_is_done_again(
    client: Client, recipe: Recipe, name: str, position: int
) -> None:
    before = rows(recipe)
    files = entries(recipe, name)
    if files[position] == files[-1]:  # nothing else shows that there was another one
        files[-1].write_bytes(b"")
    else:
        files[position].unlink()
    check_repair(recipe, client, before)


@pytest.mark.parametrize(
    "name",
    [
        "documents",
        pytest.param("texts", marks=pytest.mark.slow),
        pytest.param("duplicates", marks=pytest.mark.slow),
        "tokens",
    ],
)
def test_a_lost_table_is_made_again(client: Client, recipe: Recipe, name: str) -> None:
    before = rows(recipe)
    remove(at(recipe.table_url(name)))
    check_repair(recipe, client, before)


def test_a_lake_without_logs_starts_again(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    releases.create_release(recipe.lake, "all")
    for name in TABLES:
        remove(log(recipe, name))
    assert verify(recipe.lake) != []
    (left,) = repair(recipe.lake, drop=True).left
    assert " all --remove`" in left.why
    releases.remove_release(recipe.lake, "all")
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("texts", "duplicates")))
        for name in TABLES
    ],
)
def test_swapped_entries_lose_nothing(client: Client, recipe: Recipe, name: str) -> None:
    before = rows(recipe)
    *_, first, second = entries(recipe, name)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    files = [str(path) for path in paths(recipe, "tokens")] if name != "tokens" else []
    check_repair(recipe, client, before)
    if name != "tokens":
        assert [str(path) for path in paths(recipe, "tokens")] == files


@pytest.mark.parametrize("change", [lambda _: b"", lambda content: content[:-9]])
def test_a_damaged_checkpoint_loses_nothing(
    client: Client, recipe: Recipe, change: Callable[[bytes], bytes]
) -> None:
    before = rows(recipe)
    for name in TABLES:
        Table.open(recipe.table_url(name)).checkpoint()
        (path,) = log(recipe, name).glob("*.checkpoint.parquet")
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedLogError, match=r"a checkpoint cannot be read(.|\n)*`etl repair"):
        run(recipe, cluster=client)
    report = repair(recipe.lake, drop=True)
    assert (sorted(report.logs), report.dropped) == (sorted(TABLES), {})
    check = run(recipe, cluster=client)
    assert (check.rows, check.ok) == (0, True)
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_a_checkpoint_replaces_lost_entries(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    for name in TABLES:
        Table.open(recipe.table_url(name)).checkpoint()
        for path in entries(recipe, name)[:-1]:
            path.unlink()
    report = repair(recipe.lake, drop=True)
    assert report.left == []
    assert not report.dropped
    assert verify(recipe.lake) == []
    assert run(recipe, cluster=client).rows == 0
    assert rows(recipe) == before


@pytest.mark.parametrize(
    "name",
    ["duplicates", *(pytest.param(n, marks=pytest.mark.slow) for n in ("documents", "tokens"))],
)
def test_a_damaged_log_can_be_rebuilt(client: Client, recipe: Recipe, name: str) -> None:
    before = rows(recipe)
    for path in entries(recipe, name)[:2]:
        path.write_bytes(b"")
    with pytest.raises(DamagedLogError, match="`etl repair"):
        run(recipe, cluster=client)
    assert run(recipe, cluster=client, rebuild=True).ok
    assert len(rows(recipe)["documents"]) == len(before["documents"])
    assert verify(recipe.lake) == []


def test_a_first_run_that_was_killed_while_reading_is_repaired(
    client: Client, changing: Recipe
) -> None:
    """Only documents and texts have rows; no commit of a recipe has made the other tables yet."""
    run(changing, cluster=client)
    before = rows(changing)
    for name in ("duplicates", "tokens"):
        for path in entries(changing, name)[1:]:
            path.unlink()
    remove(at(changing.table_url("keys")))
    newest = entries(changing, "texts")[-1]
    if Table.open(changing.table_url("texts")).version > 1:
        newest.unlink()  # it closed the arrival
    delete(paths(changing, "documents", "kept")[0])
    check_repair(changing, client, before)


def test_damage_of_documents_and_duplicates_at_once(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    entries(recipe, "documents")[2].unlink()
    delete(paths(recipe, "duplicates")[0])
    entries(recipe, "tokens")[-1].write_bytes(b"")
    check_repair(recipe, client, before)


def test_documents_that_come_after_a_lost_entry_arrive_later(
    client: Client, changing: Recipe, place: UPath
) -> None:
    """The lost entry ended the arrival of documents that are decided already."""
    run(changing, cluster=client)
    twin = with_copied_lake(changing, place / "twin")
    (newest,) = [
        path for path in entries(changing, "texts")[-1:] if b"arrival" in path.read_bytes()
    ]
    newest.unlink()
    assert repair(changing.lake, drop=True).left == []
    write_jsonl(at(changing.source.path) / "0.jsonl", records(0, 50))
    for recipe in (changing, twin):
        assert run(recipe, cluster=client).ok
    assert rows(changing) == rows(twin)
    assert verify(changing.lake) == []


@pytest.mark.local_only
def test_files_of_lost_entries_are_not_taken_for_those_of_other_programs(
    client: Client, recipe: Recipe
) -> None:
    """The checkpoint of the repair is the only record of files that lost entries have added."""
    before = rows(recipe)
    Table.open(recipe.table_url("tokens")).checkpoint()
    for path in entries(recipe, "tokens")[:-1]:
        path.unlink()
    repair(recipe.lake, drop=True)
    table = deltalake.DeltaTable(str(at(recipe.table_url("tokens"))))
    table.delete("row < 3")
    done = repair(recipe.lake, drop=True)
    assert done.restored["tokens"]
    assert rows(recipe) == before
    assert run(recipe, cluster=client).tokens == 0
    assert verify(recipe.lake) == []
