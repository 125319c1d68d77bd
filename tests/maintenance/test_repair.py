"""Damaged data is dropped and rebuilt: afterwards the lake has the same rows as before."""

from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import StorageError, TableError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import releases
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.damage import delete, flip, paths
from tests.helpers.lake_rows import Row
from tests.helpers.lake_rows import rows_by_table as rows
from tests.helpers.paths import at


def cut(path: UPath) -> None:
    path.write_bytes(path.read_bytes()[:-50])


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("documents", delete),
        ("duplicates", flip),
        ("tokens", cut),
        *(
            pytest.param(kind, damage, marks=pytest.mark.slow)
            for kind in ("documents", "duplicates", "tokens")
            for damage in (delete, cut, flip)
            if (kind, damage) not in (("documents", delete), ("duplicates", flip), ("tokens", cut))
        ),
    ],
)
def test_a_repaired_lake_has_the_same_rows(
    client: Client, recipe: Recipe, kind: str, damage: Callable[[UPath], None]
) -> None:
    before = rows(recipe)
    for path in paths(recipe, kind, "kept" if kind == "documents" else None)[:2]:
        damage(path)
    shown = repair(recipe.lake)
    assert shown.dropped
    assert rows_or_none(recipe) != before, "without drop=True it changes nothing"
    done = repair(recipe.lake, drop=True)
    assert (done.dropped, done.left) == (shown.dropped, [])
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []
    assert not make_plan(recipe).has_work()


def rows_or_none(recipe: Recipe) -> dict[str, list[Row]] | None:
    try:
        return rows(recipe)
    except (StorageError, TableError):
        return None


def test_swapped_files_are_rebuilt(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    first, second = (
        paths(recipe, "documents", "kept")[0],
        paths(recipe, "documents", "rejected")[-1],
    )
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    repair(recipe.lake, drop=True)
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_missing_tokens_are_rebuilt(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    table = Table.open(recipe.table_url("tokens"))
    removed = table.data_files()["path"].to_pylist()[:1]
    table.commit([], remove=removed, transactions={})
    done = repair(recipe.lake, drop=True)
    assert (done.sources, done.left) == ([], []), "the documents are not damaged"
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_only_the_damaged_split_is_read_again(client: Client, recipe: Recipe) -> None:
    delete(paths(recipe, "documents", "rejected")[0])
    repair(recipe.lake, drop=True)
    plan = make_plan(recipe)
    assert len(plan.splits) == 1
    assert not plan.begin
    report = run(recipe, cluster=client)
    assert 0 < report.rows < 60
    assert verify(recipe.lake) == []


def test_a_lake_without_deduplication_is_repaired(client: Client, changing: Recipe) -> None:
    recipe = changing.model_copy(update={"stages": (changing.stages[0], changing.stages[2])})
    run(recipe, cluster=client)
    before = rows(recipe)
    delete(paths(recipe, "documents", "kept")[0])
    cut(paths(recipe, "tokens")[-1])
    assert repair(recipe.lake, drop=True).left == []
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_files_that_cannot_be_rebuilt_are_reported_and_kept(
    client: Client, changing: Recipe
) -> None:
    run(changing, cluster=client)
    crawl = at(changing.source.path)
    damaged: dict[str, str] = {}
    for file in Table.open(changing.table_url("documents")).data_files().to_pylist():
        if file["partition.verdict"] == "kept":
            damaged.setdefault(Path(file["min.source"]).name, file["path"])
    for path in damaged.values():
        delete(at(changing.lake) / "documents" / path)
    (crawl / "a.parquet").unlink()
    write_parquet(crawl / "b.parquet", records(0, 30))
    done = repair(changing.lake, drop=True)
    why = {str(left.problem.file): left.why for left in done.left}
    assert "no longer exists" in why[damaged["a.parquet"]]
    assert "changed" in why[damaged["b.parquet"]]
    assert [Path(source).name for source in done.sources] == ["c.jsonl"]
    assert {p.file for p in verify(changing.lake)} == {damaged["a.parquet"], damaged["b.parquet"]}


def test_a_sound_lake_is_left_alone(recipe: Recipe) -> None:
    versions = {kind: Table.open(recipe.table_url(kind)).version for kind in recipe.steps}
    done = repair(recipe.lake, drop=True)
    assert (done.problems, done.dropped, done.left) == ([], {}, [])
    assert {k: Table.open(recipe.table_url(k)).version for k in recipe.steps} == versions


def test_a_file_that_only_a_release_needs_is_reported_and_kept(
    client: Client, changing: Recipe
) -> None:
    run(changing, cluster=client)
    releases.create_release(changing.lake, "first")
    old = paths(changing, "tokens")
    write_parquet(at(changing.source.path) / "a.parquet", records(200, 230))
    run(changing, cluster=client, replace_changed=True)
    assert verify(changing.lake) == []
    delete(old[0])
    for quick in (True, False):
        (problem,) = verify(changing.lake, quick=quick)
        assert str(problem) == f"tokens/{old[0].name}: in release 'first': the file is missing"
    done = repair(changing.lake, drop=True)
    assert ([left.problem for left in done.left], done.dropped) == ([problem], {})
    assert f"`etl release {storage.normalize(changing.lake)} first --remove`" in done.left[0].why


@pytest.mark.parametrize("size", [0, 100])
def test_newest_log_entries_that_were_cut_off_are_given_up(
    client: Client, recipe: Recipe, size: int
) -> None:
    before = rows(recipe)
    entries = {}
    names = ("documents", "duplicates", "keys", "tokens")
    for kind in names:
        newest = Table.open(recipe.table_url(kind)).version
        entries[kind] = at(recipe.table_url(kind)) / "_delta_log" / f"{newest:020}.json"
        entries[kind].write_bytes(entries[kind].read_bytes()[:size])
    contents = {kind: entry.read_bytes() for kind, entry in entries.items()}
    with pytest.raises(TableError, match=rf"is damaged: it .*\n.*`etl repair .*{recipe.lake} "):
        run(recipe, cluster=client)
    found = verify(recipe.lake)
    assert {problem.table for problem in found} == {*names}
    shown = repair(recipe.lake)
    assert shown.logs == [*names[::-1]]
    assert {kind: entry.read_bytes() for kind, entry in entries.items()} == contents
    done = repair(recipe.lake, drop=True)
    assert (done.logs, done.left) == (shown.logs, [])
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_a_lake_whose_logs_are_all_empty_starts_again(client: Client, changing: Recipe) -> None:
    run(changing, cluster=client)
    before = rows(changing)
    for kind in (*changing.steps, "keys"):
        for path in (at(changing.lake) / kind / "_delta_log").iterdir():
            path.write_bytes(b"")
    lease = at(changing.lake) / "leases" / "run-0123456789ab.json"
    lease.parent.mkdir(exist_ok=True)
    lease.write_bytes(b"")  # as after a power failure
    shown = repair(changing.lake)
    done = repair(changing.lake, drop=True)
    assert done.files == shown.files == ["leases/run-0123456789ab.json"]
    assert done.logs == shown.logs == ["tokens", "keys", "duplicates", "texts", "documents"]
    assert run(changing, cluster=client).ok
    assert rows(changing) == before
    assert verify(changing.lake) == []


def test_a_damaged_file_that_a_release_needs_too_is_dropped_and_reported(
    client: Client, recipe: Recipe
) -> None:
    releases.create_release(recipe.lake, "first")
    before = rows(recipe)
    path = paths(recipe, "tokens")[0]
    delete(path)
    for drop in (False, True):
        done = repair(recipe.lake, drop=drop)
        assert [(left.problem.file, left.problem.release) for left in done.left] == [
            (path.name, "first")
        ]
        assert f"`etl release {storage.normalize(recipe.lake)} first --remove`" in done.left[0].why
    assert run(recipe, cluster=client).ok
    releases.remove_release(recipe.lake, "first")
    assert rows(recipe) == before
    assert verify(recipe.lake) == []
