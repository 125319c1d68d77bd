"""Runs on real worker processes: counts, resuming, new and changed files, rebuilds, and failures."""

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from distributed import Client
from tokenizers import Tokenizer
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.cli.commands.plan import lines
from etl.compute.listener import Listener
from etl.compute.worker_usage import UsageMeter
from etl.delta.table import Table
from etl.errors import ConflictError, MismatchError, RecipeError, SourceError, WriteError
from etl.job import tally
from etl.job.cluster_job import hold_cluster_job
from etl.job.failed_units import FailedUnits
from etl.job.plan import Drops, make_plan, plan_work
from etl.job.planner import OpenPlan
from etl.job.read_step import numbered_splits
from etl.job.run import run
from etl.job.run_commits import RunCommits
from etl.job.run_context import RunContext
from etl.job.run_identity import RunIdentity
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import ShippedFiles
from etl.job.tally import Tally
from etl.lake.commit_info import fields_of
from etl.lake.keys_table import KeysTable
from etl.lake.lake_epochs import all_ledgers, lake_epoch_of, start_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.quarantine import Quarantine
from etl.lake.recipe_ledgers import open_ledgers
from etl.lake.table_specs import SPECS
from etl.recipe.recipe import Recipe
from etl.schemas import LOSSES
from etl.sources import Split
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records
from etl.stages import Python, Url
from etl.stages.base import Rejected
from tests.helpers.corpus import prose, records, write_jsonl, write_parquet
from tests.helpers.damage import paths
from tests.helpers.lake_rows import addresses, judged, rows
from tests.helpers.paths import at

Counting = Callable[[Split, int], int]


def other_lake(recipe: Recipe, name: str) -> Recipe:
    return recipe.model_copy(update={"lake": f"{recipe.lake}-{name}"})


def test_every_record_has_one_outcome(client: Client, recipe: Recipe, tiny_tokenizer: Path) -> None:
    report = run(recipe, cluster=client)
    assert report.ok
    documents = judged(recipe.lake)
    duplicates = rows(recipe.lake, "duplicates")
    tokens = rows(recipe.lake, "tokens")
    expected = records(0, 300)
    assert sorted(str(row["id"]) for row in documents) == [r["doc_id"] for r in expected]
    assert len(set(addresses(documents))) == len(documents)
    reasons = Counter(row["reason"] for row in documents if row["verdict"] == "rejected")
    assert reasons == {
        "gopher_quality.short": sum(r["body"] == "too short to keep" for r in expected),
        "source.null_text": sum(r["body"] is None for r in expected),
        "source.empty_text": sum(r["body"] == "   " for r in expected),
    }
    assert report.rejected == reasons
    kept = {(r["source"], r["row"]): r for r in documents if r["verdict"] == "kept"}
    assert all(r["text"] is None for r in documents if r["verdict"] == "rejected")
    seen: dict[object, tuple[object, object]] = {}
    first = [seen.setdefault(row["text"], address) == address for address, row in kept.items()]
    assert addresses(tokens) == [a for a, new in zip(kept, first, strict=True) if new]
    assert addresses(duplicates) == [a for a, new in zip(kept, first, strict=True) if not new]
    for row in duplicates:
        address = (row["source"], row["row"])
        assert seen[kept[address]["text"]] == (row["keeper_source"], row["keeper_row"])
        assert row["id"] == kept[address]["id"]
    tokenizer = Tokenizer.from_file(str(tiny_tokenizer))
    for row in tokens:
        text = kept[row["source"], row["row"]]["text"]
        assert tokenizer.decode(row["tokens"]) == text
        assert row["num_tokens"] == len(row["tokens"])
    assert report.rows == 300
    assert report.kept == len(kept)
    assert report.duplicates == len(duplicates)
    assert report.tokens == sum(int(str(row["num_tokens"])) for row in tokens)


def test_running_again_does_nothing(client: Client, recipe: Recipe) -> None:
    first = run(recipe, cluster=client)
    assert not make_plan(recipe).has_work()
    again = run(recipe)  # without a client: nothing to do, so no cluster is started
    assert again.versions == first.versions
    assert (again.rows, again.tokens) == (0, 0)


def test_a_run_plans_to_read_documents_that_later_steps_have_not_processed(
    client: Client, recipe: Recipe
) -> None:
    """The number of workers follows from it, although nothing of the source is left to read."""
    run(recipe, cluster=client)
    assert make_plan(recipe).planned_bytes == 0
    kept = sum(path.stat().st_size for path in paths(recipe, "texts", "kept"))
    stages = [*recipe.stages[:-1], recipe.stages[-1].model_copy(update={"append_eos": False})]
    other = recipe.model_copy(update={"stages": stages})
    assert make_plan(other, Drops(rebuild=True)).planned_bytes == kept
    KeysTable(open_ledgers(recipe)["duplicates"]).create_or_rebuild(lambda *_: None)
    assert make_plan(recipe).planned_bytes == kept


def test_a_run_without_other_work_finishes_an_interrupted_epoch(
    client: Client, recipe: Recipe
) -> None:
    """Another job has created a table in the epoch that it knew, and a new one had begun."""
    run(recipe, cluster=client)
    losses = Ledger(recipe.table_url("losses"), fingerprint="0" * 64)
    losses.create(LOSSES, SPECS["losses"].layout, lake_epoch=7)
    plan = make_plan(recipe)
    assert plan.has_work()
    assert "epoch       its start was interrupted, will be finished" in lines(plan)
    assert run(recipe, cluster=client).rows == 0
    assert lake_epoch_of(all_ledgers(str(recipe.lake))) == 8
    assert not make_plan(recipe).has_work()


def test_an_epoch_starts_in_all_tables_that_exist(client: Client, recipe: Recipe) -> None:
    """Another run creates the tables while a run opens them: the first that it looks for is not there yet."""
    tokens = Ledger(recipe.table_url("tokens"), fingerprint="0" * 64)
    run(recipe, cluster=client)
    ledgers = {**all_ledgers(str(recipe.lake)), "tokens": tokens}
    with pytest.raises(ConflictError, match="another process has created the table"):
        start_lake_epoch(ledgers, {}, lambda *_: None)
    assert lake_epoch_of(all_ledgers(str(recipe.lake))) == 0


def test_new_files_are_added_and_earlier_rows_stay_the_keepers(
    client: Client, recipe: Recipe, place: UPath
) -> None:
    folder = place / "grows"
    source = recipe.source.model_copy(update={"path": str(folder)})
    recipe = recipe.model_copy(update={"source": source})
    write_parquet(folder / "m.parquet", records(0, 60))
    run(recipe, cluster=client)
    before = rows(recipe.lake, "tokens")
    copy = {**records(0, 1)[0], "doc_id": "copy"}
    write_jsonl(folder / "a-sorts-first.jsonl", [copy, *records(60, 90)])
    report = run(recipe, cluster=client)
    assert report.rows == 31
    after = rows(recipe.lake, "tokens")
    assert [row for row in after if row in before] == before, "rows tokenized earlier do not change"
    (duplicate,) = [r for r in rows(recipe.lake, "duplicates") if r["id"] == "copy"]
    assert str(duplicate["keeper_source"]).endswith("m.parquet")
    assert len(set(addresses(after))) == len(after)


def test_the_result_does_not_depend_on_the_split_size(client: Client, recipe: Recipe) -> None:
    whole = other_lake(recipe, "whole")
    source = recipe.source.model_copy(update={"split_bytes": 1 << 30})
    whole = whole.model_copy(update={"source": source})
    for one in (recipe, whole):
        run(one, cluster=client)
    for name in ("documents", "duplicates", "tokens"):
        assert rows(recipe.lake, name) == rows(whole.lake, name)


@pytest.mark.parametrize("piece", ["first", "later"])
def test_splits_of_cut_files_are_numbered_and_uncountable_files_are_left_out(
    client: Client, recipe: Recipe, place: UPath, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    source = recipe.source.model_copy(update={"path": str(place / "cut"), "split_bytes": 4096})
    recipe = recipe.model_copy(update={"source": source})
    for number, name in enumerate(("a.jsonl", "bad.jsonl", "c.jsonl")):
        write_jsonl(place / "cut" / name, records(number, 60))
    write_parquet(place / "cut" / "d.parquet", records(0, 60))

    def count_in_reverse(
        _client: object, count: Counting, units: Iterable[tuple[Split, int]], **_options: object
    ) -> Iterator[tuple[tuple[Split, int], int | Exception]]:
        for split, index in reversed(list(units)):
            is_bad = split.uri.endswith("bad.jsonl") and (split.start == 0) == (piece == "first")
            answer = SourceError("cannot be counted") if is_bad else count(split, index)
            yield (split, index), answer

    monkeypatch.setattr("etl.job.read_step.map_unordered", count_in_reverse)
    ledgers = open_ledgers(recipe)
    plan = plan_work(recipe, ledgers)
    identity, counts = RunIdentity.of(recipe), Tally({})
    with hold_cluster_job(identity.job, client, num_bytes=0, listener=Listener()) as job:
        context = RunContext(
            job=job,
            planned=OpenPlan(plan, ledgers),
            commits=RunCommits(
                run=identity,
                job=job,
                tally=counts,
                ledgers=ledgers,
                meter=UsageMeter(client),
            ),
            failed=FailedUnits(Quarantine(str(recipe.lake)), counts, job.check),
            tracker=RunTracker(plan, identity.job.id),
            files=ShippedFiles((), ()),
        )
        numbered = list(numbered_splits(context))
    splits = [s for s in list_splits(recipe.source) if not s.uri.endswith("bad.jsonl")]
    assert sum(split.first_row is None for split in splits) > 2
    expected = list(number_splits(splits, map(count_records, splits)))
    assert [replace(split, identity=0) for split in numbered] == expected


def test_texts_of_rejected_documents_are_stored_on_request(client: Client, recipe: Recipe) -> None:
    recipe = recipe.model_copy(update={"rejected": Rejected(text=True)})
    report = run(recipe, cluster=client)
    texts, documents = rows(recipe.lake, "texts"), rows(recipe.lake, "documents")
    assert [(r["source"], r["row"], r["verdict"]) for r in texts] == [
        (r["source"], r["row"], r["verdict"]) for r in documents
    ]
    short = [r["text"] for r in judged(recipe.lake) if r["reason"] == "gopher_quality.short"]
    assert set(short) == {"too short to keep"}
    assert report.tokens == sum(int(str(r["num_tokens"])) for r in rows(recipe.lake, "tokens"))
    assert verify(str(recipe.lake)) == []


def test_a_different_recipe_is_refused_and_rebuilds_on_request(
    client: Client, recipe: Recipe
) -> None:
    first = run(recipe, cluster=client)
    stages = [recipe.stages[0].model_copy(update={"min_words": 3}), *recipe.stages[1:]]
    changed = recipe.model_copy(update={"stages": tuple(stages)})
    with pytest.raises(MismatchError, match="min_words: 50 -> 3"):
        run(changed, cluster=client)
    before = rows(recipe.lake, "documents")
    report = run(changed, cluster=client, rebuild=True)
    assert report.rows == 300
    assert "gopher_quality.short" in first.rejected
    assert "gopher_quality.short" not in report.rejected
    assert rows(recipe.lake, "documents", first.versions["documents"]) == before
    assert len(rows(recipe.lake, "documents")) == 300


def test_another_tokenizer_rebuilds_only_the_tokens(client: Client, recipe: Recipe) -> None:
    first = run(recipe, cluster=client)
    stages = [*recipe.stages[:-1], recipe.stages[-1].model_copy(update={"append_eos": False})]
    source = recipe.source.model_copy(update={"split_bytes": 9000})
    changed = recipe.model_copy(update={"stages": tuple(stages), "source": source, "name": "other"})
    with pytest.raises(MismatchError, match=r"\(stages\.tokenize\.append_eos: True -> False\)"):
        run(changed, cluster=client)
    documents = rows(recipe.lake, "documents")
    report = run(changed, cluster=client, rebuild=True)
    assert report.rows == 0
    assert rows(recipe.lake, "documents") == documents
    num_documents = len(rows(recipe.lake, "tokens"))
    assert report.tokens == first.tokens - num_documents


@pytest.mark.parametrize("deduplicate", [True, False])
def test_a_changed_file_is_refused_and_replaced_on_request(
    client: Client, recipe: Recipe, place: UPath, deduplicate: bool
) -> None:
    folder = place / "changes"
    stages = recipe.stages if deduplicate else (recipe.stages[0], recipe.stages[2])
    source = recipe.source.model_copy(update={"path": str(folder)})
    recipe = recipe.model_copy(update={"source": source, "stages": stages})
    write_parquet(folder / "a.parquet", records(0, 50))
    write_parquet(folder / "b.parquet", records(50, 120))
    run(recipe, cluster=client)
    write_parquet(folder / "a.parquet", records(200, 230))
    with pytest.raises(MismatchError, match=r"a\.parquet.*changed"):
        run(recipe, cluster=client)
    run(recipe, cluster=client, replace_changed=True)
    fresh = other_lake(recipe, "fresh")
    run(fresh, cluster=client)
    for name in recipe.steps:
        assert rows(recipe.lake, name) == rows(fresh.lake, name)
    assert not make_plan(recipe).has_work()


@pytest.mark.local_only  # only local files have a modification time that can be set back
def test_a_file_can_return_to_an_earlier_content(
    client: Client, recipe: Recipe, place: UPath
) -> None:
    folder = place / "back"
    source = recipe.source.model_copy(update={"path": str(folder)})
    recipe = recipe.model_copy(update={"source": source})
    file = write_parquet(folder / "a.parquet", records(0, 10))
    first, state = file.read_bytes(), file.stat()
    run(recipe, cluster=client)
    before = {name: rows(recipe.lake, name) for name in recipe.steps}
    write_parquet(file, records(10, 15))
    run(recipe, cluster=client, replace_changed=True)
    assert len(rows(recipe.lake, "documents")) == 5
    file.write_bytes(first)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    run(recipe, cluster=client, replace_changed=True)
    assert {name: rows(recipe.lake, name) for name in recipe.steps} == before
    assert not make_plan(recipe).has_work()


def test_without_deduplication_the_first_pass_writes_the_tokens(
    client: Client, recipe: Recipe
) -> None:
    recipe = recipe.model_copy(update={"stages": (recipe.stages[0], recipe.stages[2])})
    report = run(recipe, cluster=client)
    assert report.versions["tokens"] == report.versions["documents"]
    kept = [row for row in rows(recipe.lake, "documents") if row["verdict"] == "kept"]
    assert addresses(rows(recipe.lake, "tokens")) == addresses(kept)


def test_a_file_that_cannot_be_read_is_quarantined_and_no_other_rows_are_lost(
    client: Client, recipe: Recipe, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report describes the first ones of many; here, one."""
    monkeypatch.setattr(tally, "MAX_SHOWN", 1)
    folder = place / "bad"
    source = recipe.source.model_copy(update={"path": str(folder)})
    recipe = recipe.model_copy(update={"source": source})
    write_parquet(folder / "good.parquet", records(0, 40))
    for name in ("broken", "other"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1 this is not a Parquet file PAR1")
    report = run(recipe, cluster=client)
    assert not report.ok
    assert report.num_quarantined == 2
    (note,) = report.quarantined
    assert note.source.endswith(("broken.parquet", "other.parquet"))
    assert len(rows(recipe.lake, "documents")) == 40
    assert len(list((at(recipe.lake) / "quarantine").glob("*.json"))) == 2
    for k, name in enumerate(("broken", "other")):
        body = prose(9999 - k)
        write_parquet(folder / f"{name}.parquet", [{"doc_id": name, "body": body, "link": ""}])
    assert run(recipe, cluster=client).ok
    assert len(rows(recipe.lake, "documents")) == 42
    assert not list((at(recipe.lake) / "quarantine").glob("*.json"))


@pytest.mark.local_only
@pytest.mark.parametrize("good", [0, 100_000])
def test_a_list_with_an_invalid_entry_stops_the_run(
    client: Client, recipe: Recipe, tmp_path: Path, good: int
) -> None:
    path = tmp_path / "hosts"
    path.write_text("".join(f"{i}.example\n" for i in range(good)) + "two words\n")
    stages = (Url(hosts=str(path)), *recipe.stages)
    with pytest.raises(RecipeError, match=f"hosts:{good + 1}: the entry 'two words'"):
        run(recipe.model_copy(update={"stages": stages}), cluster=client)
    assert not (at(recipe.lake) / "quarantine").exists(), "no input is at fault"
    assert at(recipe.lake).exists() == bool(good), "the first entries are checked before the run"


@pytest.mark.local_only
def test_a_full_disk_fails_the_run_before_deduplication(client: Client, recipe: Recipe) -> None:
    client.run(_limit_files, 0)
    try:
        with pytest.raises(WriteError, match="cannot be written"):
            run(recipe, cluster=client)
    finally:
        client.run(_limit_files, resource.RLIM_INFINITY)
    assert not (at(recipe.lake) / "quarantine").exists(), "the input is not at fault"
    assert not rows(recipe.lake, "duplicates")
    assert run(recipe, cluster=client).ok
    assert len(rows(recipe.lake, "documents")) == 300


def _limit_files(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def test_the_counts_of_all_commits_add_up(client: Client, recipe: Recipe) -> None:
    report = run(recipe, cluster=client)
    history = Table.open(recipe.table_url("documents")).history()
    lineages = [fields for entry in history if (fields := fields_of(entry))]
    assert sum(lineage["counts"]["rows"] for lineage in lineages) == 300
    files = Counter[str]()
    for lineage in lineages:
        files.update({file["uri"]: file["rows"] for file in lineage["input_files"]})
        assert lineage["run_id"] == report.run_id
        assert lineage["fingerprint"] == recipe.fingerprint("documents")
    assert sorted(files.values()) == [80, 100, 120]
    tokens = fields_of(next(Table.open(recipe.table_url("tokens")).history()))
    assert [table["name"] for table in tokens["input_tables"]] == [
        "documents",
        "texts",
        "duplicates",
    ]
    assert tokens["tokenizer"]["append_eos"] is True


def test_tables_that_another_program_rewrote_are_refused(client: Client, recipe: Recipe) -> None:
    run(recipe, cluster=client)
    url = recipe.table_url("tokens")
    deltalake.DeltaTable(url, storage_options=storage.delta_options(url)).optimize.compact()
    with pytest.raises(MismatchError, match="another program"):
        run(recipe, cluster=client)


def test_a_lake_with_tables_that_the_recipe_does_not_fill_drops_no_rows(
    client: Client, recipe: Recipe
) -> None:
    run(recipe, cluster=client)
    part = recipe.model_copy(update={"stages": recipe.stages[:1]})
    assert not make_plan(part).has_work()
    with pytest.raises(MismatchError, match="the table 'duplicates', which this recipe does not"):
        run(part, cluster=client, rebuild=True)


def test_a_missing_function_is_reported_before_any_work(recipe: Recipe) -> None:
    missing = Python(call="tests.helpers.corpus:no_such_function")
    recipe = recipe.model_copy(update={"stages": (missing, *recipe.stages)})
    with pytest.raises(RecipeError, match="no_such_function"):
        make_plan(recipe)
    assert not at(recipe.lake).exists()
