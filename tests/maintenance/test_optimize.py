"""Small files are compacted without changes to rows, plans, audits and pinned versions."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import deltalake
import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl import storage
from etl.audit.lake_report import report
from etl.audit.lineage_graph import trace
from etl.audit.tune.tune import tune
from etl.audit.verify.verify import verify
from etl.dedup import key_merger, key_writer
from etl.delta.table import Table
from etl.errors import ConflictError, LoaderError, MismatchError, TableError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import releases
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.table_specs import KEYS, SPECS
from etl.loader import TokenDataset
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.parquet.page_marks import find_marks
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import delete, flip, paths
from tests.helpers.lake_rows import rows_by_table as rows
from tests.helpers.near_duplicates import make, pairs, tangled, write
from tests.helpers.paths import NewPlace, at, copy, opened


def files(recipe: Recipe, kind: str = "tokens") -> int:
    return Table.open(recipe.table_url(kind)).data_files().num_rows


def crawl(recipe: Recipe) -> UPath:
    return at(recipe.source.path)


def test_small_files_are_compacted_and_the_rows_stay(recipe: Recipe) -> None:
    before, old = rows(recipe), files(recipe)
    files_before = {name: files(recipe, name) for name in ("documents", "texts")}
    documents, texts, duplicates, keys, tokens = optimize(recipe.lake)
    assert (documents.files_before, documents.files) == (files_before["documents"], 2)
    assert (texts.files_before, texts.files) == (files_before["texts"], 1)
    assert (duplicates.files_before, duplicates.files) == (2, 1)
    assert (keys.files_before, keys.files) == (2, 1)
    assert (tokens.files_before, tokens.files) == (old, 1)
    assert rows(recipe) == before
    assert verify(recipe.lake) == []
    assert not make_plan(recipe).has_work()
    again = optimize(recipe.lake)
    tables = documents, texts, duplicates, keys, tokens
    assert [table.version for table in again] == [table.version for table in tables]


@pytest.mark.slow
def test_compacted_files_keep_the_layout_of_an_archive(client: Client, recipe: Recipe) -> None:
    plain, last = rows(recipe), recipe.stages[-1].model_copy(update={"archive": True})
    archive = recipe.model_copy(
        update={"stages": (*recipe.stages[:-1], last), "lake": f"{recipe.lake}-archive"}
    )
    run(archive, cluster=client)

    def have_marks(recipe: Recipe) -> set[bool]:
        footers = [opened(path).metadata for path in paths(recipe, "tokens")]
        return {bool(find_marks(footer.metadata)) for footer in footers}

    def num_bytes(recipe: Recipe) -> int:
        groups = [opened(path).metadata.row_group(0) for path in paths(recipe, "tokens")]
        return sum(group.column(3).total_compressed_size for group in groups)

    assert (have_marks(recipe), have_marks(archive)) == ({True}, {False})
    assert rows(archive)["tokens"] == plain["tokens"]
    for each in (recipe, archive):
        optimize(each.lake)
        assert files(each) == 1
    assert (have_marks(recipe), have_marks(archive)) == ({True}, {False})
    assert num_bytes(archive) < num_bytes(recipe)
    assert not make_plan(archive.model_copy(update={"stages": recipe.stages})).has_work()


def test_no_file_grows_beyond_the_target(recipe: Recipe) -> None:
    before, target = rows(recipe), 30_000
    sizes = [path.stat().st_size for path in paths(recipe, "tokens")]
    optimize(recipe.lake, target_bytes=target)
    after = [path.stat().st_size for path in paths(recipe, "tokens")]
    assert 1 < len(after) < len(sizes)
    assert max(after) <= max(target, *sizes)
    assert rows(recipe) == before
    optimize(recipe.lake)
    assert (files(recipe), rows(recipe)) == (1, before), "merged files are compacted again"
    assert verify(recipe.lake) == []


@pytest.mark.parametrize("target", [6000, pytest.param(None, marks=pytest.mark.slow)])
def test_compacted_keys_find_the_same_duplicates(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch, target: int | None
) -> None:
    """Incremental runs with compactions in between give the result of a single run."""
    documents, source = tangled(6, 40), place / "in"
    near = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)
    compacted, single = (make(place / name, source, "dedup_exact", near) for name in "cw")
    small = replace(KEYS, layout=replace(KEYS.layout, row_group_rows=50))
    monkeypatch.setattr(key_writer, "KEYS", small)
    monkeypatch.setitem(SPECS, "keys", small)
    monkeypatch.setattr(key_merger, "RUNS_PER_LEVEL", 99)  # runs merge no files
    for number in range(5):
        write(source, documents[8 * number : 8 * number + 8], 1, number)
        assert run(compacted, cluster=client).ok
        if number % 2:
            sizes = {} if target is None else {"target_bytes": target}
            *_, keys = optimize(str(compacted.lake), **sizes)
            assert keys.files < keys.files_before
            assert verify(str(compacted.lake)) == []
            assert not make_plan(compacted).has_work(), "the keys still fit"
    run(single, cluster=client)
    assert pairs(compacted) == pairs(single)
    assert len(pairs(single)) > 5
    assert files(compacted, "keys") == (6 if target is None else 9)


def test_audits_give_the_same_results(recipe: Recipe) -> None:
    settings = ["gopher_quality.min_words=60"]
    reported = report(recipe.lake)
    tuned = tune(recipe.lake, settings)
    before = trace(recipe.lake, id="doc-00002")[0]
    optimize(recipe.lake)
    assert report(recipe.lake).sources == reported.sources
    assert report(recipe.lake).tokens == reported.tokens
    assert tune(recipe.lake, settings) == tuned
    again = trace(recipe.lake, id="doc-00002")[0]
    assert again.outcome == before.outcome
    commit = again.tokens["tokens"].location.commit
    assert commit is not None
    assert commit.recipe == "web"


def test_old_files_of_duplicates_are_not_needed(recipe: Recipe) -> None:
    """The version of ``duplicates`` that ``tokens`` was built from is vacuumed."""
    (before,) = trace(recipe.lake, id="doc-00005")
    assert before.duplicate is not None
    optimize(recipe.lake)
    if recipe.lake.startswith("s3:"):
        time.sleep(1.1)  # its timestamps have a resolution of one second
    vacuum(recipe.lake, retain=timedelta(0), delete=True)
    (again,) = trace(recipe.lake, id="doc-00005")
    assert again.duplicate is not None
    assert again.duplicate.keeper_row == before.duplicate.keeper_row
    assert again.outcome == before.outcome
    now = releases.create_release(recipe.lake, "now")
    assert now.versions["duplicates"] == Table.open(recipe.table_url("duplicates")).version


def test_a_pinned_training_run_is_not_affected(recipe: Recipe) -> None:
    def read(dataset: TokenDataset) -> list[list[int]]:
        return [row for batch in dataset.batches(4) for row in batch["input_ids"].tolist()]

    expected = read(TokenDataset(recipe.lake, seq_len=16))
    dataset = TokenDataset(recipe.lake, seq_len=16)
    iterator = iter(dataset.batches(4))
    first = [row for _ in range(3) for row in next(iterator)["input_ids"].tolist()]
    releases.create_release(recipe.lake, "training")
    optimize(recipe.lake)
    vacuum(recipe.lake, retain=timedelta(0), delete=True)
    remaining = [row for batch in iterator for row in batch["input_ids"].tolist()]
    assert first + remaining == expected
    assert read(TokenDataset(recipe.lake, seq_len=16, version="training")) == expected
    newest = TokenDataset(recipe.lake, seq_len=16)
    assert newest.version != dataset.version
    assert newest.num_tokens == dataset.num_tokens
    with pytest.raises(LoaderError, match=f"version={dataset.version}, here {newest.version}"):
        newest.load_state_dict(dataset.state_dict())


@pytest.mark.parametrize("deduplicate", [True, False])
def test_input_files_are_replaced_after_compaction(
    client: Client, changing: Recipe, place: UPath, *, deduplicate: bool
) -> None:
    stages = changing.stages if deduplicate else (changing.stages[0], changing.stages[2])
    recipe = changing.model_copy(update={"stages": stages})
    other = recipe.model_copy(update={"lake": str(place / "other")})
    run(recipe, cluster=client)
    run(other, cluster=client)
    optimize(recipe.lake)
    assert files(recipe) == 1
    write_parquet(crawl(recipe) / "a.parquet", records(200, 230))
    for each in (recipe, other):
        assert run(each, cluster=client, replace_changed=True).ok
    assert rows(recipe) == rows(other)
    assert verify(recipe.lake) == []
    assert not make_plan(recipe).has_work()


def test_compacted_files_are_repaired(client: Client, recipe: Recipe) -> None:
    before = rows(recipe)
    optimize(recipe.lake)
    flip(paths(recipe, "tokens")[0])
    delete(paths(recipe, "documents", "kept")[0])
    assert repair(recipe.lake, drop=True).left == []
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    assert verify(recipe.lake) == []


def test_a_damaged_file_is_not_compacted(recipe: Recipe) -> None:
    version = Table.open(recipe.table_url("tokens")).version
    path = paths(recipe, "tokens")[0]
    content = bytearray(path.read_bytes())
    content[70] ^= 255  # after the page header, where a bit may be unused
    path.write_bytes(content)
    with pytest.raises(TableError, match=rf"{path.name}: a data file cannot be read(.|\n)*verify"):
        optimize(recipe.lake)
    assert Table.open(recipe.table_url("tokens")).version == version


@pytest.mark.slow
def test_a_lake_on_s3_is_compacted(recipe: Recipe, s3: str) -> None:
    copy(recipe.lake, at(f"{s3}/lake"))
    assert [table.files for table in optimize(f"{s3}/lake")] == [2, 1, 1, 1, 1]
    assert verify(f"{s3}/lake") == []
    remote = recipe.model_copy(update={"lake": f"{s3}/lake"})
    assert rows(remote) == rows(recipe)


@pytest.mark.slow
def test_compaction_during_a_run_keeps_the_rows(
    client: Client, changing: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.job.commit_policy._MOST_RESULTS", 1)
    run(changing, cluster=client)
    write_parquet(crawl(changing) / "d.parquet", records(300, 600), group=20)
    done = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, changing, cluster=client)
        while not running.done():
            done += len(optimize(changing.lake))
        assert running.result().ok
    assert done
    merged = rows(changing)
    run(changing, cluster=client, rebuild=True)
    assert verify(changing.lake) == []
    assert merged["documents"] == rows(changing)["documents"]
    assert merged["tokens"] == rows(changing)["tokens"]


def test_rows_that_were_compacted_meanwhile_are_not_dropped(recipe: Recipe) -> None:
    ledger = Ledger(recipe.table_url("tokens"), fingerprint=recipe.fingerprint("tokens"))
    assert ledger.table is not None
    old = ledger.table.data_files()["path"].to_pylist()[:1]
    before = rows(recipe)
    optimize(recipe.lake)
    with pytest.raises(ConflictError):
        ledger.drop(Drop(paths=old), lambda *_: None, lake_epoch=1)
    assert rows(recipe) == before


def test_files_that_another_program_removes_are_left_out(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between writing and committing, another program removes a file: its rows do not come back."""
    from etl.lake import merge_files

    def slow(ledger: Ledger, group: merge_files.FileGroup, layout: object) -> object:
        rewrite = merge_files.merge_files(ledger, group, layout)
        if ledger.url.endswith("tokens"):
            table = Table.open(ledger.url)
            removed = table.data_files()["path"].to_pylist()[:1]
            table.commit([], remove=removed, transactions={})
        return rewrite

    before = files(recipe)
    monkeypatch.setattr("etl.maintenance.optimize.merge_files", slow)
    with pytest.raises(MismatchError, match="another program"):
        optimize(recipe.lake)
    assert files(recipe) == before - 1


@pytest.mark.parametrize("table", ["documents", "texts", "duplicates", "tokens"])
def test_rows_that_another_program_has_added_are_not_merged(
    client: Client, recipe: Recipe, table: str
) -> None:
    """A merged file would belong to the lake, and a repair could not tell them from other rows."""
    before = rows(recipe)
    append_rows(recipe, table)
    with pytest.raises(MismatchError, match=f"{table}: version .* was written by another program"):
        optimize(recipe.lake)
    assert repair(recipe.lake, drop=True).left == []
    assert run(recipe, cluster=client).ok
    assert rows(recipe) == before
    optimize(recipe.lake)
    assert verify(recipe.lake) == []


def test_keys_that_another_program_has_added_are_not_merged(client: Client, recipe: Recipe) -> None:
    append_rows(recipe, "keys")
    assert "keys" not in [each.table for each in optimize(recipe.lake)]
    assert run(recipe, cluster=client).ok
    assert "keys" in [each.table for each in optimize(recipe.lake)]


def append_rows(recipe: Recipe, table: str) -> None:
    """Append copies of the first rows of a table, as another program does."""
    url = recipe.table_url(table)
    options = storage.delta_options(url)
    copied = deltalake.DeltaTable(url.removeprefix("file://"), storage_options=options)
    some = pa.table(copied.to_pyarrow_table()).slice(0, 2)
    deltalake.write_deltalake(copied.table_uri, some, mode="append", storage_options=options)


def test_a_missing_lake_is_refused_and_the_lease_released(place: UPath) -> None:
    with pytest.raises(TableError, match="no lake at this URL"):
        optimize(str(place / "none"))
    assert not list((place / "none").glob("leases/*"))


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["grow", "optimize", "vacuum", "release"]), max_size=5))
@pytest.mark.slow
def test_any_sequence_of_maintenance_keeps_the_rows(
    client: Client, made: Recipe, new_place: NewPlace, steps: list[str]
) -> None:
    folder = new_place("sequence")
    source = made.source.model_copy(update={"path": str(folder / "crawl")})
    maintained, plain = (
        made.model_copy(update={"source": source, "lake": str(folder / name)}) for name in "cp"
    )
    released = {}
    for number, step in enumerate(["grow", *steps]):
        if step == "grow":
            write_jsonl(
                folder / "crawl" / f"{number}.jsonl", records(20 * number, 20 * number + 20)
            )
            assert run(maintained, cluster=client).ok
            assert run(plain, cluster=client).ok
        elif step == "optimize":
            optimize(maintained.lake)
        elif step == "vacuum":
            vacuum(maintained.lake, retain=timedelta(0), delete=True)
        else:
            name = f"r{number}"
            releases.create_release(maintained.lake, name)
            released[name] = TokenDataset(maintained.lake, seq_len=4).num_tokens
        assert rows(maintained) == rows(plain)
    assert verify(maintained.lake) == []
    for name, num_tokens in released.items():
        dataset = TokenDataset(maintained.lake, seq_len=4, version=name)
        assert sum(batch["input_ids"].shape[0] for batch in dataset.batches(1)) == len(dataset)
        assert dataset.num_tokens == num_tokens
