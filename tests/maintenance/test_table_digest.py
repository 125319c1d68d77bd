"""The digest of a table is recorded by each commit, and changes only with its rows."""

from collections.abc import Callable
from datetime import timedelta

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from upath import UPath

from etl import schemas, storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.commit_info import fields_of, to_commit_info
from etl.lake.table_digest import file_digest, list_files, recorded_digest, table_digest
from etl.lake.table_specs import SPECS, open_tables
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.parquet.row_digests import to_hex
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import delete, flip, paths
from tests.helpers.paths import at, opened


def digests(recipe: Recipe) -> dict[str, str]:
    """Return the digests of all tables of a lake without problems."""
    problems = verify(str(recipe.lake))
    assert problems == []
    return dict(problems.digests)


def check_records(recipe: Recipe) -> None:
    """Compare the digest in each lineage record with the data files of its version."""
    for table in open_tables(str(recipe.lake)).values():
        for info in table.history():
            version = Table.open(table.url, info["version"])
            files = [*version.files("digest", by=())]
            assert all(file["digest"] for file in files)
            recorded = recorded_digest(version)
            if info["version"] > 0:
                assert recorded == table_digest(version)
            else:
                assert (recorded, files) == (None, [])


def test_every_commit_records_the_digest_of_its_table(client: Client, changing: Recipe) -> None:
    run(changing, cluster=client)
    crawl = at(str(changing.source.path))
    write_parquet(crawl / "a.parquet", records(200, 230))
    (crawl / "b.parquet").unlink()
    write_jsonl(crawl / "d.jsonl", records(300, 330))
    run(changing, cluster=client, replace_changed=True, drop_missing=True)
    shuffle(str(changing.lake), cluster=client)
    optimize(str(changing.lake))
    run(changing, cluster=client, rebuild=True)
    check_records(changing)
    assert digests(changing).keys() == open_tables(str(changing.lake)).keys()


def test_maintenance_changes_no_digest(client: Client, recipe: Recipe) -> None:
    before = digests(recipe)
    shuffle(str(recipe.lake), cluster=client)
    after = digests(recipe)
    assert after.pop("tokens_shuffled") == after["tokens"]
    assert after == before
    optimize(str(recipe.lake))
    vacuum(str(recipe.lake), retain=timedelta(0), delete=True)
    assert digests(recipe) == after | {"tokens_shuffled": after["tokens"]}
    check_records(recipe)


@pytest.mark.parametrize("damage", [delete, flip])
@pytest.mark.parametrize("name", ["documents", "duplicates", "tokens"])
def test_a_repaired_lake_has_the_same_digests(
    client: Client, recipe: Recipe, name: str, damage: Callable[[UPath], None]
) -> None:
    before = digests(recipe)
    damage(paths(recipe, name)[0])
    repair(str(recipe.lake), drop=True)
    run(recipe, cluster=client)
    assert digests(recipe) == before


def test_the_digest_after_an_undone_change_is_the_sum_of_all_files(recipe: Recipe) -> None:
    before = digests(recipe)
    url = recipe.table_url("tokens")
    options = storage.delta_options(url)
    deltalake.DeltaTable(url, storage_options=options).optimize.compact()
    changed = Table.open(url)
    assert recorded_digest(changed) is None
    assert {file["digest"] for file in list_files(changed)} == {None}
    assert to_hex(table_digest(changed)) == before["tokens"], "without digests, rows are read"
    repair(str(recipe.lake), drop=True)
    restored = Table.open(url)
    assert restored.version > changed.version
    assert recorded_digest(restored) == table_digest(restored)
    assert digests(recipe) == before


def test_rows_that_differ_from_their_digest_are_found(client: Client, recipe: Recipe) -> None:
    """All pages are sound, and the statistics are right: the values of a column are in another order."""
    shuffle(str(recipe.lake), cluster=client)
    for name, table in open_tables(str(recipe.lake)).items():
        file = max(table.files("rows"), key=lambda entry: int(entry["rows"]))
        path = at(table.url) / file["path"]
        content = path.read_bytes()
        rows = opened(path).read()
        left_out = {*schemas.NOT_DIGESTED.get(name, ()), *SPECS[name].layout.ascending, "source"}
        column = next(n for n in rows.column_names if n not in left_out and has_two(rows[n]))
        turned = pa.concat_arrays([*rows[column][1:].chunks, *rows[column][:1].chunks])
        index = rows.column_names.index(column)
        with path.open("wb") as changed:
            pq.write_table(rows.set_column(index, rows.schema.field(index), turned), changed)
        problems = verify(str(recipe.lake))
        assert {(each.table, each.file) for each in problems} == {(name, file["path"])}
        assert any("its rows have the digest" in each.what for each in problems)
        assert problems.digests.keys() == open_tables(str(recipe.lake)).keys() - {name}
        path.write_bytes(content)
    assert digests(recipe)


def has_two(values: pa.ChunkedArray) -> bool:
    return values.slice(0, 1) != values.slice(len(values) - 1, 1)


def test_a_record_with_another_digest_is_found(recipe: Recipe) -> None:
    table = Table.open(recipe.table_url("tokens"))
    info = next(table.history())
    wrong = {**fields_of(info), "digest": "0" * 32}
    table.commit([], transactions={}, commit_info=to_commit_info(wrong))
    (problem,) = verify(str(recipe.lake), quick=True)
    assert (problem.table, problem.file) == ("tokens", None)
    assert f"but the newest record has {'0' * 32}" in problem.what


def test_an_unknown_digest_is_computed_from_the_rows(recipe: Recipe) -> None:
    for table in open_tables(str(recipe.lake)).values():
        for file in list_files(table):
            assert file_digest(table, {**file, "digest": None}) == file_digest(table, file)
