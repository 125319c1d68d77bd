"""Test histories, traces, the lineage graph, differences between versions, and reports."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl import schemas
from etl.audit.lake_report import report
from etl.audit.lineage_graph import Trace, graph, history, trace
from etl.audit.openlineage import run_events
from etl.audit.table_diff import diff
from etl.delta.table import Table
from etl.errors import TableError
from etl.job.run import run
from etl.lake.commit_info import to_commit_info
from etl.lake.table_versions import added_in, live_inputs
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.paths import at, opened

Row = dict[str, Any]


def url(recipe: Recipe, name: str) -> str:
    return recipe.table_url(name)


def rows(recipe: Recipe, name: str) -> list[Row]:
    return list(Table.open(url(recipe, name)).dataset().to_table().to_pylist())


def follow(recipe: Recipe, row: Row) -> Trace:
    """Trace a row by its address."""
    (result,) = trace(str(recipe.lake), source=row["source"], row=row["row"])
    return result


def with_source(recipe: Recipe, folder: UPath) -> Recipe:
    """Return the recipe with another folder as source."""
    return recipe.model_copy(
        update={"source": recipe.source.model_copy(update={"path": str(folder)})}
    )


def test_history_is_newest_first_and_adds_up(made: Recipe) -> None:
    versions = history(url(made, "documents"))
    assert [v.version for v in versions] == list(range(len(versions)))[::-1]
    assert versions[-1].lineage is None, "creating the table wrote no rows"
    lineages = [v.lineage for v in versions if v.lineage is not None]
    assert {record.recipe for record in lineages} == {"web"}
    assert {record.fingerprint for record in lineages} == {made.fingerprint("documents")}
    assert len({record.run_id for record in lineages}) == 2
    documents = rows(made, "documents")
    assert sum(record.counts.rows for record in lineages) == len(documents)
    rejected: Counter[str] = Counter()
    for record in lineages:
        rejected.update(record.counts.rejected)
    assert rejected == Counter(row["reason"] for row in documents if row["reason"] is not None)


def test_the_record_of_a_foreign_commit_is_its_note(lake: Recipe) -> None:
    table = Table.open(url(lake, "duplicates"))
    table.commit([], transactions={}, commit_info=to_commit_info({"why": "by hand"}))
    version, *others = history(table.url)
    assert version.lineage is None
    assert version.note == {"why": "by hand"}
    assert others[0].lineage is not None


def test_a_record_of_a_newer_format_is_refused(lake: Recipe) -> None:
    table, read = Table.open(url(lake, "duplicates")), schemas.FORMAT_VERSION
    table.commit([], transactions={}, commit_info=to_commit_info({"format": read + 1}))
    what = f"has format version {read + 1}, but this release reads format version {read}"
    with pytest.raises(TableError, match=what):
        history(table.url)


def test_a_kept_document_is_traced_to_its_tokens(made: Recipe) -> None:
    for token_row in rows(made, "tokens")[::40]:
        traced = follow(made, token_row)
        assert traced.verdict == "kept"
        assert traced.id == token_row["id"]
        assert traced.duplicate is None
        tokens = traced.tokens["tokens"]
        path = at(url(made, "tokens")) / tokens.location.file
        in_file = opened(path).read(columns=["source", "row", "tokens"])
        (here,) = in_file.slice(tokens.location.row, 1).to_pylist()
        assert (here["source"], here["row"]) == (token_row["source"], token_row["row"])
        stream = [token for tokens in in_file["tokens"].to_pylist() for token in tokens]
        start = tokens.first_token
        assert stream[start : start + tokens.num_tokens] == token_row["tokens"]


def test_a_trace_has_the_document_its_file_and_its_commit(made: Recipe) -> None:
    documents = (row for row in rows(made, "documents") if row["verdict"] == "kept")
    wanted = next(row for row in documents if row["source"].endswith("c.jsonl"))
    traced = follow(made, wanted)
    assert {name: wanted[name] for name in traced.signals} == traced.signals
    assert "num_words" in traced.signals
    assert traced.url == wanted["url"]
    texts = {(row["source"], row["row"]): row["text"] for row in rows(made, "texts")}
    assert traced.text == texts[wanted["source"], wanted["row"]][:500]
    path = at(url(made, "documents")) / traced.document.file
    (here,) = opened(path).read().slice(traced.document.row, 1).to_pylist()
    assert here["row"] == wanted["row"]
    file = at(wanted["source"])
    assert traced.input is not None
    assert (traced.input.size, traced.input.rows) == (file.stat().st_size, 80)
    assert traced.document.commit is not None
    newest = history(url(made, "documents"))[0]
    assert newest.lineage is not None
    assert traced.document.commit.run_id == newest.lineage.run_id
    before = Table.open(url(made, "documents"), traced.document.commit.version - 1)
    assert traced.document.file not in before.data_files()["path"].to_pylist()


def test_a_rejected_document_has_its_reason_and_no_tokens(made: Recipe) -> None:
    rejected = [row for row in rows(made, "documents") if row["verdict"] == "rejected"]
    for reason, row in {row["reason"]: row for row in rejected}.items():
        traced = follow(made, row)
        text = "too short to keep" if reason.startswith("gopher") else ""
        assert (traced.reason, traced.tokens) == (reason, {})
        assert (traced.text or "").strip() == text
        assert traced.outcome == f"rejected by {reason}"


def test_a_duplicate_is_traced_to_its_keeper(made: Recipe) -> None:
    for row in rows(made, "duplicates")[::5]:
        traced = follow(made, row)
        assert traced.duplicate is not None
        assert traced.tokens == {}
        keeper = traced.duplicate
        assert (keeper.keeper_source, keeper.keeper_row) == (
            row["keeper_source"],
            row["keeper_row"],
        )
        kept = follow(made, {"source": keeper.keeper_source, "row": keeper.keeper_row})
        assert kept.tokens
        assert kept.id == keeper.keeper_id
        assert kept.text == traced.text


def test_several_documents_may_share_an_id(made: Recipe) -> None:
    traces = trace(str(made.lake), id="doc-00000")
    assert [Path(t.source).name for t in traces] == ["a.parquet", "twin.jsonl"]


def test_a_source_is_a_url_or_a_path(made: Recipe) -> None:
    path = at(made.source.path) / "a.parquet"
    by_url = trace(str(made.lake), source=path.as_uri(), row=7)
    assert trace(str(made.lake), source=str(path), row=7) == by_url
    with pytest.raises(TableError, match=(Path.cwd() / "a.parquet").as_uri()):
        trace(str(made.lake), source="a.parquet", row=7)


def test_a_trace_opens_only_files_that_may_hold_the_document(lake: Recipe) -> None:
    wanted = next(r for r in rows(lake, "tokens") if r["source"].endswith("b.parquet"))
    expected = follow(lake, wanted)
    needed = {expected.document.file, expected.tokens["tokens"].location.file}
    for name in ("documents", "tokens"):
        for path in Table.open(url(lake, name)).data_files()["path"].to_pylist():
            if path not in needed:
                (at(url(lake, name)) / path).unlink()
    assert follow(lake, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"id": "unknown"}, "no document has the id 'unknown'"),
        ({"source": "a.parquet", "row": 1000}, "no row 1000 of .*it has 100 records"),
        ({"source": "aa.parquet", "row": 0}, "did you mean [a-z0-9]+://.*/a.parquet"),
        ({"source": "broken.parquet", "row": 0}, "broken.parquet could not be read"),
        ({"source": "a.parquet"}, "by its id, or by its source and row"),
        ({"id": "x", "source": "a.parquet", "row": 0}, "by its id, or by its source and row"),
        ({}, "by its id, or by its source and row"),
    ],
)
def test_a_missing_document_is_reported_with_the_nearest_match(
    made: Recipe, wanted: dict[str, Any], message: str
) -> None:
    if "source" in wanted:
        wanted = {**wanted, "source": str(at(made.source.path) / wanted["source"])}
    with pytest.raises(TableError, match=f"(?s){message}"):
        trace(str(made.lake), **wanted)


def test_a_document_that_is_not_tokenized_yet_is_traced(
    client: Client, lake: Recipe, place: UPath
) -> None:
    recipe = with_source(lake, place / "more")
    write_jsonl(place / "more" / "d.jsonl", records(500, 510))
    run(recipe.model_copy(update={"stages": recipe.stages[:2]}), cluster=client)
    traces = trace(str(lake.lake), source=str(place / "more" / "d.jsonl"), row=5)
    assert [t.outcome for t in traces] == ["kept, not tokenized yet: run the recipe again"]


def test_a_document_of_a_lake_without_tokens_is_traced(
    client: Client, made: Recipe, place: UPath
) -> None:
    update = {"stages": made.stages[:1], "lake": str(place / "filtered")}
    recipe = made.model_copy(update=update)
    run(recipe, cluster=client)
    traces = trace(str(recipe.lake), id="doc-00002")
    assert [t.outcome for t in traces] == [
        "kept; the lake has no tokens: its recipe does not tokenize"
    ]
    counted = report(str(recipe.lake))
    assert (counted.tokens, counted.tokens_per_document, counted.duplicates) == (0, None, {})


def test_the_commit_of_a_file_equals_that_of_a_linear_search(made: Recipe) -> None:
    for name in ("documents", "tokens"):
        table = Table.open(url(made, name))
        versions = history(table.url)[::-1]
        live = {
            v.version: set(Table.open(table.url, v.version).data_files()["path"].to_pylist())
            for v in versions
        }
        for path in table.data_files()["path"].to_pylist():
            first = min(version for version, paths in live.items() if path in paths)
            added = added_in(table, path, versions)
            assert added is not None
            assert added.version == first


def test_the_graph_ends_at_the_input_files(made: Recipe) -> None:
    node = graph(url(made, "tokens"))
    assert {table.name for table in node.tables} == {"documents", "texts", "duplicates"}
    documents = next(table for table in node.tables if table.name == "documents")
    names = {Path(file.uri).name: file.rows for file in documents.files}
    assert names == {"a.parquet": 100, "b.parquet": 80, "c.jsonl": 80, "twin.jsonl": 1}
    assert documents.rows == 261
    text = str(node)
    assert text.count("a.parquet") == 1, "a table shown before is only named"
    assert "└─ " in text
    assert [n.name for n in node.walk()][-1] == "tokens"


def test_the_graph_of_an_older_version_has_the_older_inputs(made: Recipe) -> None:
    first = history(url(made, "tokens"))[-2].version
    node = graph(url(made, "tokens"), first)
    documents = next(table for table in node.tables if table.name == "documents")
    assert {Path(file.uri).name for file in documents.files} == {"a.parquet", "b.parquet"}


def test_openlineage_events_cover_all_jobs_inputs_and_rows(made: Recipe) -> None:
    events = json.loads(json.dumps(run_events(graph(url(made, "tokens")))))
    assert events == run_events(graph(url(made, "tokens"))), "exporting again gives the same events"
    kinds = Counter((e["job"]["name"], e["eventType"]) for e in events)
    jobs = ("web.documents", "web.texts", "web.duplicates", "web.tokens")
    assert kinds == {(job, kind): 2 for job in jobs for kind in ("START", "COMPLETE")}
    starts = [e["run"]["runId"] for e in events if e["eventType"] == "START"]
    assert len(set(starts)) == 8
    for event in events:
        assert event["schemaURL"].startswith("https://openlineage.io/spec/2-0-2/")
        assert event["producer"]
    read = [
        Path(dataset["name"]).name
        for event in events
        if event["job"]["name"] == "web.documents"
        for dataset in event.get("inputs", [])
    ]
    assert sorted(read) == ["a.parquet", "b.parquet", "c.jsonl", "twin.jsonl"]
    written = sum(
        output["outputFacets"]["outputStatistics"]["rowCount"]
        for event in events
        if event["job"]["name"] == "web.tokens"
        for output in event.get("outputs", [])
    )
    assert written == len(rows(made, "tokens"))


def test_diff_counts_added_rows_files_and_tokens(made: Recipe) -> None:
    newest = history(url(made, "documents"))[0].version
    change = diff(url(made, "documents"), 0, newest)
    documents = rows(made, "documents")
    assert (change.rows_added, change.rows_removed) == (len(documents), 0)
    expected = Counter(row["reason"] or "kept" for row in documents)
    assert change.counts == expected
    assert len(change.inputs_added) == 4
    assert [v.version for v in change.commits] == list(range(1, newest + 1))[::-1]
    tokens = diff(url(made, "tokens"), 0, history(url(made, "tokens"))[0].version)
    assert tokens.tokens_added == sum(row["num_tokens"] for row in rows(made, "tokens"))


def test_diff_backwards_has_the_opposite_signs(made: Recipe) -> None:
    newest = history(url(made, "documents"))[0].version
    there = diff(url(made, "documents"), 1, newest)
    back = diff(url(made, "documents"), newest, 1)
    assert (there.rows_added, there.files_added) == (back.rows_removed, back.files_removed)
    assert there.counts is not None
    assert back.counts == {reason: -count for reason, count in there.counts.items()}
    assert there.inputs_added == back.inputs_removed
    assert there.commits == back.commits


def test_diff_names_replaced_files_and_changed_settings(
    client: Client, lake: Recipe, place: UPath
) -> None:
    recipe = with_source(lake, place / "changing")
    recipe = recipe.model_copy(update={"lake": str(place / "changed")})
    write_parquet(place / "changing" / "a.parquet", records(0, 50))
    write_parquet(place / "changing" / "b.parquet", records(50, 90))
    first = run(recipe, cluster=client)
    write_parquet(place / "changing" / "a.parquet", records(200, 230))
    second = run(recipe, cluster=client, replace_changed=True)
    documents = url(recipe, "documents")
    difference = diff(documents, first.versions["documents"], second.versions["documents"])
    assert (difference.rows_added, difference.rows_removed) == (30, 50)
    assert [Path(file.uri).name for file in difference.inputs_replaced] == ["a.parquet"]
    assert (difference.inputs_added, difference.inputs_removed, difference.recipe) == ([], [], [])
    inputs = live_inputs(history(documents)).files()
    assert sorted(file.rows for file in inputs.values()) == [30, 40]
    strict = recipe.stages[0].model_copy(update={"min_words": 1000})
    other = recipe.model_copy(update={"stages": (strict, *recipe.stages[1:])})
    third = run(other, cluster=client, rebuild=True)
    difference = diff(documents, second.versions["documents"], third.versions["documents"])
    assert [change.split(": ", 1)[1] for change in difference.recipe] == ["50 -> 1000"]
    assert (difference.rows_added, difference.rows_removed) == (70, 70)
    assert difference.counts is not None
    assert difference.counts["kept"] < 0
    assert sum(difference.counts.values()) == 0
    assert difference.inputs_added == difference.inputs_removed == []


def test_report_counts_the_current_rows(made: Recipe) -> None:
    summary = report(str(made.lake))
    documents, tokens = rows(made, "documents"), rows(made, "tokens")
    kept = [row for row in documents if row["verdict"] == "kept"]
    assert (summary.rows, summary.kept) == (len(documents), len(kept))
    assert summary.rejected == Counter(r["reason"] for r in documents if r["reason"])
    assert summary.rows == summary.kept + sum(summary.rejected.values())
    assert list(summary.rejected.values()) == sorted(summary.rejected.values(), reverse=True)
    assert summary.duplicates == {"exact": len(rows(made, "duplicates"))}
    assert summary.tokens == sum(row["num_tokens"] for row in tokens)
    assert summary.tokenized == len(tokens) == summary.kept - summary.duplicates["exact"]
    assert summary.tokens_per_document == summary.tokens / len(tokens)
    by_source = Counter(row["source"] for row in documents)
    assert {source.source: source.rows for source in summary.sources} == by_source
    assert sum(source.tokens for source in summary.sources) == summary.tokens
    assert [note.source.rsplit("/", 1)[-1] for note in summary.quarantined] == ["broken.parquet"]
    records_of = [v.lineage for v in history(url(made, "tokens")) if v.lineage]
    assert summary.tokens == sum(record.counts.tokens for record in records_of)
    names = ["documents", "texts", "duplicates", "keys", "tokens"]
    assert [table.name for table in summary.tables] == names
    assert summary.tables[0].size == sum(
        file.stat().st_size for file in (at(made.lake) / "documents").glob("*/*.parquet")
    )


@pytest.mark.parametrize("first", [0, 1])
def test_lineage_and_history_say_that_log_entries_are_gone(lake: Recipe, first: int) -> None:
    """Another program has deleted entries that a checkpoint replaces."""
    table = Table.open(url(lake, "documents")).checkpoint()
    assert graph(table.url).notes == ()
    gone = range(first, table.version + 1)
    for version in gone:
        (at(table.url) / "_delta_log" / f"{version:020}.json").unlink()
    names = f"versions {first} to {table.version}"
    note = f"the log entries of {names} are gone: the commits are missing here"
    assert note in str(graph(table.url))
    assert note in str(graph(url(lake, "tokens")))
    assert note in etl("history", table.url).output
    assert note in etl("lineage", url(lake, "tokens"), "--openlineage").output
