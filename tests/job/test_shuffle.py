"""`etl shuffle`: the rows of ``tokens`` in a random order, written by the workers of a cluster."""

import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl import storage
from etl.audit.lake_report import report
from etl.audit.lineage_graph import graph, history
from etl.audit.trace import trace
from etl.audit.verify.verify import verify
from etl.compute.listener import Progress
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import DamagedLogError, MismatchError, TableError
from etl.job.bucket_files import write_list
from etl.job.run import run
from etl.job.shuffle import ShuffleReport, ShuffleSettings, shuffle
from etl.job.shuffle_tasks import SortBucket, SplitFiles
from etl.lake.jobs import JobIdentity, hold_job
from etl.lake.lake_epochs import all_ledgers, start_lake_epoch
from etl.lake.ledger_entry import Drop
from etl.lake.lineage_record import Change
from etl.lake.random_keys import random_keys
from etl.lake.releases import create_release
from etl.lake.table_specs import SHUFFLED
from etl.loader import Shuffle, TokenDataset
from etl.maintenance import vacuum
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.parquet.data_file import DataFileWriter
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_parquet
from tests.helpers.damage import commit_damage
from tests.helpers.lakes import make_sound_lake, with_copied_input, with_copied_lake
from tests.helpers.listeners import Calls
from tests.helpers.paths import NewPlace, at
from tests.helpers.shuffled_lakes import (
    Address,
    Documents,
    add_tokens,
    all_rows,
    rows_of,
    shuffled_rows,
)
from tests.helpers.strikes import strike_by_us
from tests.helpers.token_tables import make_lake

SMALL: Documents = {f"s3://in/{i}": [3 * i + 5, 0, 40, 7] for i in range(12)}
TINY_BUCKETS = ShuffleSettings(bucket_bytes=256)


def shuffled(
    lake: UPath | str | None, client: Client, how: ShuffleSettings = TINY_BUCKETS
) -> ShuffleReport:
    return shuffle(str(lake), settings=how, cluster=client)


def by_key(documents: Documents, seed: int = 0) -> list[Address]:
    """Return all addresses in the order of their random keys."""
    rows = pa.concat_tables([rows_of(source, lengths) for source, lengths in documents.items()])
    order = np.argsort(random_keys(rows, seed))
    return [all_rows(documents)[i] for i in order]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=20), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 2000),
    st.integers(0, 3),
)
@settings(max_examples=10)
def test_the_passes_sort_all_rows_whatever_the_buckets(
    shape: Sequence[Sequence[int]], buckets: int, run_bytes: int, seed: int
) -> None:
    documents = {f"file {i}": lengths for i, lengths in enumerate(shape)}
    with tempfile.TemporaryDirectory() as folder:
        add_tokens(folder, documents)
        table = Table.open(f"{folder}/tokens")
        stored = tuple(map(LogicalFile.of, table.files("vector")))
        split = SplitFiles(
            tokens=table.url,
            folder=storage.normalize(f"{folder}/scratch"),
            buckets=buckets,
            seed=seed,
            run_bytes=run_bytes,
        )
        files = write_list(split.folder, [split((file,)) for file in stored])
        sort = SortBucket(
            url=storage.normalize(f"{folder}/tokens_shuffled"),
            folder=split.folder,
            files=files,
            buckets=buckets,
            part="0" * 32,
            row_group_bytes=100,
        )
        new = [file for bucket in range(buckets) for file in sort(bucket).files]
        Table.create(sort.url, table.schema, SHUFFLED.layout).commit(new, transactions={})
        assert shuffled_rows(folder) == by_key(documents, seed)
        contents = Table.open(sort.url).dataset().to_table().to_pylist()
        assert all(row["tokens"] == [row["row"]] * row["num_tokens"] for row in contents)


def test_a_task_holds_a_few_buckets_however_large_the_table_is(tmp_path: Path) -> None:
    add_tokens(str(tmp_path), {f"file {i}": [1000] * 100 for i in range(64)})  # 26 MB
    table = Table.open(str(tmp_path / "tokens"))
    stored = tuple(map(LogicalFile.of, table.files("vector")))
    buckets, bucket_bytes = 16, 26_000_000 // 16
    folder = storage.normalize(str(tmp_path / "scratch"))
    split = SplitFiles(
        tokens=table.url, folder=folder, buckets=buckets, seed=0, run_bytes=bucket_bytes // 2
    )
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        files = write_list(folder, [split(stored)])  # a split that is as large as all buckets
        sort = SortBucket(
            url=storage.normalize(str(tmp_path / "tokens_shuffled")),
            folder=folder,
            files=files,
            buckets=buckets,
            part="0" * 32,
            row_group_bytes=bucket_bytes,
        )
        assert sort(0).rows > 200
        assert pool.max_memory() < 6 * bucket_bytes
    finally:
        pa.set_memory_pool(before)


def test_the_order_depends_on_the_rows_and_the_seed_alone(client: Client, place: UPath) -> None:
    add_tokens(str(place / "one"), SMALL)
    for source, lengths in reversed(list(SMALL.items())):
        add_tokens(str(place / "other"), {source: lengths})
    report = shuffled(place / "one", client)
    assert (report.rows, report.parts, report.tokens_version) == (48, 1, 1)
    assert report.buckets == -(-4 * report.tokens // 256)
    shuffled(place / "other", client, ShuffleSettings())
    expected = by_key(SMALL)
    assert shuffled_rows(str(place / "one")) == shuffled_rows(str(place / "other")) == expected
    assert expected != all_rows(SMALL)
    shuffled(place / "one", client, ShuffleSettings(seed=7, rebuild=True))
    assert shuffled_rows(str(place / "one")) == by_key(SMALL, seed=7)


def test_a_second_shuffle_changes_nothing(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    first = shuffled(place, client)
    again = shuffled(place, client)
    assert (again.version, again.added_rows) == (first.version, 0)


def test_only_new_rows_are_added(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    shuffled(place, client)
    before = set(_files(place))
    new = {"s3://in/new": [4] * 40}
    add_tokens(str(place), new)
    report = shuffled(place, client)
    assert (report.added_rows, report.parts, report.tokens_version) == (40, 2, 2)
    assert before < set(_files(place))
    assert sorted(shuffled_rows(str(place))) == sorted(all_rows({**SMALL, **new}))


def _files(lake: UPath) -> list[str]:
    table = Table.open(str(lake / "tokens_shuffled"))
    return [file["path"] for file in table.files("path")]


def test_no_intermediate_file_remains(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    shuffled(place, client)
    assert list(storage.walk_files(str(place / "scratch"))) == []


def test_an_empty_table_and_rows_longer_than_a_bucket(client: Client, place: UPath) -> None:
    add_tokens(str(place / "empty"), {})
    assert shuffled(place / "empty", client).rows == 0
    long = {"s3://in/long": [5000, 1, 9000]}
    add_tokens(str(place / "long"), long)
    assert shuffled(place / "long", client).rows == 3
    assert shuffled_rows(str(place / "long")) == by_key(long)


def test_a_lake_without_tokens_is_refused(place: UPath) -> None:
    with pytest.raises(TableError, match="no table tokens"):
        shuffle(str(place))


def test_tokens_that_no_recipe_has_written_are_refused(place: UPath) -> None:
    lake = make_lake(place, [[[5, 7]]])
    with pytest.raises(TableError, match="not made by a recipe"):
        shuffle(lake)


def test_another_seed_is_refused(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    shuffled(place, client)
    with pytest.raises(MismatchError, match="seed 0, not 3") as error:
        shuffled(place, client, ShuffleSettings(seed=3))
    assert "--rebuild" in str(error.value)


def _sorted_lake(place: UPath, sources: int = 100) -> tuple[str, Documents]:
    """Return a lake whose files have one of many equal sources each, with documents of 16 to 64 tokens."""
    rng = np.random.default_rng(0)
    names = [f"s3://in/{i:03}" for i in range(sources)]
    documents = {name: rng.integers(16, 65, 200).tolist() for name in names}
    add_tokens(str(place), documents)
    return str(place), documents


BATCHES = {"batch_size": 128}
"""A batch of 128 windows of 64 tokens, as long as 128 documents."""


def test_sequential_reading_yields_random_documents(client: Client, place: UPath) -> None:
    lake, _ = _sorted_lake(place)
    shuffled(lake, client, ShuffleSettings(bucket_bytes=1 << 20))
    unshuffled = TokenDataset(lake, seq_len=64, shuffle=Shuffle(lanes=16, block_tokens=1 << 10))
    sequential = TokenDataset(f"{lake}/tokens_shuffled", seq_len=64, shuffle=False)
    lanes = TokenDataset(f"{lake}/tokens_shuffled", seq_len=64)
    before = unshuffled.evenness(**BATCHES)
    assert before.sources_per_batch < 32
    assert before.window_ratio > 5
    for dataset in (sequential, lanes):
        even = dataset.evenness(**BATCHES)
        assert even.batches == 64
        assert even.sources_per_batch > 60
        assert even.document_ratio < 1.1
        assert even.window_ratio < 1.1


def test_added_rows_are_read_among_the_others(client: Client, place: UPath) -> None:
    documents = {f"s3://in/{i}": [100 + i] * 100 for i in range(20)}
    add_tokens(str(place), documents)
    shuffled(place, client, ShuffleSettings(bucket_bytes=1 << 16))
    more = {f"s3://new/{i}": [50] * 200 for i in range(3)}
    add_tokens(str(place), more)
    assert shuffled(place, client, ShuffleSettings(bucket_bytes=1 << 14)).parts == 2
    dataset = TokenDataset(str(place / "tokens_shuffled"), seq_len=50, shuffle=False)
    index = dataset.windows.index
    read = [index.locate_group(number) for number in range(len(index.group_tokens))]
    is_new = [path[:32].endswith(read[0][0][16:32]) for path, _ in read]
    assert np.count_nonzero(np.diff(is_new)) > 3, "files of both parts are read in turn"
    every = {**documents, **more}
    rows = pa.concat_tables([rows_of(source, lengths) for source, lengths in every.items()])
    expected = np.bincount(rows["tokens"].combine_chunks().flatten())
    for is_shuffled in (False, True):
        dataset = TokenDataset(str(place / "tokens_shuffled"), seq_len=25, shuffle=is_shuffled)
        batches = dataset.batches(512, drop_last=False)
        counts = [np.bincount(b["input_ids"].ravel(), minlength=len(expected)) for b in batches]
        missing = expected - np.sum(counts, axis=0)
        assert (missing >= 0).all()
        assert missing.sum() == dataset.num_tokens - 25 * dataset.num_samples


def _lose_a_note(client: Client, place: UPath, *, buckets: int) -> int:
    """Remove the note of the last bucket that an interrupted shuffle has sorted.

    Returns how many of its buckets have no note then: workers may have sorted more, even all of them.
    """
    while any(client.run(lambda dask_worker: len(dask_worker.state.executing)).values()):
        time.sleep(0.01)
    notes = sorted(place.glob("scratch/shuffle/*/sort-*.json"))
    assert 3 <= len(notes) <= buckets
    notes[-1].unlink()
    return buckets - len(notes) + 1


def test_an_interrupted_shuffle_does_only_the_rest(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    done: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        done.append(progress)
        if len(done) == 15:  # 12 files are split, 3 buckets are sorted
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shuffle(
            str(place), settings=TINY_BUCKETS, cluster=client, listener=Calls(progress=interrupt)
        )
    rest = _lose_a_note(client, place, buckets=done[14].total)
    add_tokens(str(place), {"s3://in/late": [3] * 10})
    report = shuffle(
        str(place), cluster=client, listener=Calls(progress=done.append)
    )  # other buckets by default
    # First the rest of the interrupted part, then both passes over the late file.
    assert [progress.total for progress in done[15:]] == [rest] * rest + [1, 1]
    assert (report.parts, report.rows) == (2, 58)
    assert sorted(shuffled_rows(str(place))) == sorted(
        all_rows({**SMALL, "s3://in/late": [3] * 10})
    )
    assert list(storage.walk_files(str(place / "scratch"))) == []


def test_an_interrupted_rebuild_continues(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    shuffled(place, client)
    again = ShuffleSettings(rebuild=True, bucket_bytes=256, seed=5)
    done: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        done.append(progress)
        if len(done) == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shuffle(str(place), settings=again, cluster=client, listener=Calls(progress=interrupt))
    rest = _lose_a_note(client, place, buckets=done[14].total)
    shuffle(str(place), settings=again, cluster=client, listener=Calls(progress=done.append))
    assert [progress.total for progress in done[15:]] == [rest] * rest
    assert shuffled_rows(str(place)) == by_key(SMALL, seed=5)


def test_a_shuffle_ends_if_rows_are_dropped_meanwhile(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)

    def start(_: Progress) -> None:
        lake = all_ledgers(str(place))
        if not lake["tokens"].lake_epoch:
            epoch = Change(action="epoch", generation=1)
            with hold_job(JobIdentity(lake=str(place), kind="repair")) as job:
                start_lake_epoch(lake, {}, lambda table, *_: job.record_on(table, epoch))

    with pytest.raises(MismatchError, match="dropped or rebuilt rows"):
        shuffle(str(place), settings=TINY_BUCKETS, cluster=client, listener=Calls(progress=start))
    assert shuffled(place, client).rows == 48


def test_an_interrupted_start_of_an_epoch_is_refused(client: Client, place: UPath) -> None:
    add_tokens(str(place), SMALL)
    shuffled(place, client)
    lake = all_ledgers(str(place))
    lake["tokens_shuffled"].drop(Drop(), lambda *_: None, lake_epoch=1)
    with pytest.raises(MismatchError, match="dropping rows") as error:
        shuffled(place, client)
    assert "etl run" in str(error.value)


@pytest.fixture(scope="module")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake of two runs, shuffled after each of them."""
    recipe = make_sound_lake(new_place("made"), client, tiny_tokenizer)
    shuffled(recipe.lake, client, ShuffleSettings(bucket_bytes=4096))
    return recipe


@pytest.fixture
def copied(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with its own copy of the lake, and of the input for a new lake."""
    return with_copied_lake(made, place)


@pytest.mark.slow
def test_commands_know_the_table(copied: Recipe, client: Client) -> None:
    lake = str(copied.lake)
    assert verify(lake) == []
    tokens = Table.open(copied.table_url("tokens"))
    url = storage.join(lake, "tokens_shuffled")
    (newest, *_) = history(url)
    assert newest.lineage is not None
    assert newest.lineage.input_tables[0].version == tokens.version
    assert newest.lineage.tokenizer is not None
    assert [node.name for node in graph(url).tables] == ["tokens"]
    assert report(lake).tokens == sum(f["max.token_end"] for f in tokens.files("max.token_end"))
    assert create_release(lake, "first").versions["tokens_shuffled"] == newest.version
    assert TokenDataset(url, seq_len=8, version="first", shuffle=False).version == newest.version
    assert run(copied, cluster=client).ok
    assert not shuffled(lake, client).added_rows
    source, row = shuffled_rows(lake)[-1]
    (document,) = trace(lake, source=source, row=row)
    location = document.shuffled["tokens_shuffled"]
    assert location.file == _files(at(lake))[-1]
    assert location.commit is not None
    assert location.commit.version == newest.version


@pytest.mark.slow
def test_a_release_has_no_rows_of_a_newer_version(copied: Recipe) -> None:
    lake = str(copied.lake)
    old = Table.open(copied.table_url("tokens")).version - 1
    assert "tokens_shuffled" not in create_release(lake, "old", version=old).versions


@pytest.mark.slow
def test_dropped_rows_are_shuffled_again(made: Recipe, client: Client, place: UPath) -> None:
    recipe = with_copied_input(made, place)
    lake = str(recipe.lake)
    assert run(recipe, cluster=client).ok
    assert shuffled(lake, client).rows > 0
    write_parquet(at(recipe.source.path) / "a.parquet", records(200, 230))
    assert run(recipe, cluster=client, replace_changed=True).ok
    assert shuffled_rows(lake) == []
    assert verify(lake) == []
    assert "tokens_shuffled" not in create_release(lake, "now").versions
    report = shuffled(lake, client)
    assert report.parts == 1
    assert verify(lake) == []


def _add_and_compact(recipe: Recipe, client: Client, strike: Sequence[int] = ()) -> set[str]:
    """Add rows to tokens, strike some of each file, and compact; return the files with the new rows alone."""
    tokens, crawl = recipe.table_url("tokens"), at(recipe.source.path)
    before = {file["path"] for file in Table.open(tokens).files("path")}
    write_parquet(crawl / "d.parquet", records(300, 340))
    try:
        assert run(recipe, cluster=client).ok
    finally:
        (crawl / "d.parquet").unlink()
    added = {file["path"] for file in Table.open(tokens).files("path")} - before
    if strike:
        strike_by_us(tokens, dict.fromkeys(added, strike))
    optimize(str(recipe.lake))
    assert added.isdisjoint(file["path"] for file in Table.open(tokens).files("path"))
    return added


@pytest.mark.slow
def test_rows_that_were_compacted_are_added_once(copied: Recipe, client: Client) -> None:
    lake = str(copied.lake)
    _add_and_compact(copied, client)
    report = shuffled(lake, client)
    assert (report.parts, report.added_rows > 0) == (2, True)
    assert verify(lake) == []


@pytest.mark.slow
def test_struck_rows_are_not_added(copied: Recipe, client: Client) -> None:
    """New rows may be struck before their files are compacted; rows that the table has begin it again."""
    lake = str(copied.lake)
    tokens = copied.table_url("tokens")
    _add_and_compact(copied, client, strike=[0, 2])
    report = shuffled(lake, client)
    assert (report.parts, report.added_rows > 0) == (2, True)
    assert shuffled_addresses(lake) == live_addresses(tokens)
    strike_by_us(tokens, {next(Table.open(tokens).files("path"))["path"]: [1]})
    assert shuffled(lake, client).parts == 1
    assert shuffled_addresses(lake) == live_addresses(tokens)
    assert shuffled(lake, client).added_rows == 0


def live_addresses(url: str) -> list[tuple[str, int]]:
    files = Table.open(url).files("vector")
    rows = (read_live_rows(url, file, ["source", "row"]).to_pylist() for file in files)
    return sorted((row["source"], row["row"]) for each in rows for row in each)


def shuffled_addresses(lake: str) -> list[tuple[str, int]]:
    return live_addresses(storage.join(lake, "tokens_shuffled"))


@pytest.mark.slow
def test_compacted_and_vacuumed_rows_need_a_rebuild(copied: Recipe, client: Client) -> None:
    lake = str(copied.lake)
    for path in _add_and_compact(copied, client):
        storage.remove(storage.join(copied.table_url("tokens"), path))
    with pytest.raises(TableError, match="deleted by a vacuum") as error:
        shuffled(lake, client)
    assert "--rebuild" in str(error.value)
    assert shuffled(lake, client, ShuffleSettings(rebuild=True)).parts == 1
    assert verify(lake) == []


@pytest.mark.slow
def test_other_rows_are_found_and_repaired(copied: Recipe, client: Client) -> None:
    """One file is replaced by a file with the rows of another one."""
    lake = str(copied.lake)
    url = storage.join(lake, "tokens_shuffled")
    one, other, *_ = [file["path"] for file in Table.open(url).files("path")]
    table = Table.open(url)
    with storage.open_input(storage.join(url, other)) as file:
        rows = pq.read_table(file)
    writer = DataFileWriter(url, table.schema, SHUFFLED.layout, name=one[:32])
    writer.append(rows)
    commit_damage(table, writer.close(), remove=[one])
    problems = verify(lake)
    assert {problem.table for problem in problems} == {"tokens_shuffled"}
    assert any("not those of version" in problem.what for problem in problems)
    assert any("another bucket" in problem.what for problem in problems)
    repair(lake, drop=True)
    assert verify(lake) == []
    shuffled(lake, client)
    assert verify(lake) == []


@pytest.mark.slow
@pytest.mark.parametrize("table", ["tokens", "tokens_shuffled"])
def test_a_damaged_log_is_restored(copied: Recipe, client: Client, table: str) -> None:
    lake = str(copied.lake)
    (at(copied.lake) / table / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(DamagedLogError):
        shuffled(lake, client)
    repair(lake, drop=True)
    assert run(copied, cluster=client).ok
    assert verify(lake) == []
    assert shuffled(lake, client).rows > 0
    assert verify(lake) == []


@pytest.mark.slow
def test_changes_by_another_program_are_replaced(copied: Recipe, client: Client) -> None:
    lake = str(copied.lake)
    url = storage.join(lake, "tokens_shuffled")
    before = shuffled_rows(lake)
    DeltaTable(url).delete("row = 1")
    assert shuffled_rows(lake) != before
    assert shuffled(lake, client).parts == 1
    assert shuffled_rows(lake) == before


@pytest.mark.slow
def test_the_command_reports_how_even_the_order_is(place: UPath) -> None:
    lake, documents = _sorted_lake(place, 5)
    add_tokens(lake, documents)
    result = etl("shuffle", lake, "--workers", 1, "--bucket-mb", 1)
    assert result.exit_code == 0, result.output
    assert "rows             1,000 (1,000 added)" in result.stdout
    assert "times the variance of independent documents" in result.stdout
    failed = etl("shuffle", place / "missing")
    assert (failed.exit_code, "no table tokens" in failed.stderr) == (1, True)


@pytest.mark.local_only  # stores have times of whole seconds
def test_a_vacuum_removes_what_a_killed_shuffle_has_left(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "MIN_RETAIN", timedelta(0))
    add_tokens(str(place), SMALL)

    def interrupt(progress: Progress) -> None:
        if progress.done == progress.total:  # no task is running
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shuffle(
            str(place), settings=TINY_BUCKETS, cluster=client, listener=Calls(progress=interrupt)
        )
    done = vacuum.vacuum(str(place), retain=timedelta(0), delete=True)
    assert any(file.table == "scratch" for file in done.files)
    assert list(storage.walk_files(str(place / "scratch"))) == []
    assert shuffled(place, client).rows == 48
