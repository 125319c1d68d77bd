"""Rows of a lake are struck: every reader leaves them out, or names them."""

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from upath import UPath

from etl import dataframe, schemas
from etl.audit.duplicates.duplicate_report import duplicates
from etl.audit.lake_comparison import compare_lakes
from etl.audit.lake_report import report
from etl.audit.lineage_graph import graph
from etl.audit.page.facts import page_facts
from etl.audit.sample_documents import sample
from etl.audit.table_diff import diff
from etl.audit.trace import trace
from etl.audit.tune.tune import tune
from etl.audit.verify.verify import verify
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.exports.documents import export_documents
from etl.exports.huggingface import read_documents
from etl.exports.megatron import export_megatron
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.job.tasks import TokenizeUnit
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.input_log import int63
from etl.lake.jobs import JobIdentity, hold_job
from etl.lake.lineage_record import Change
from etl.lake.open_ledger import open_ledger
from etl.lake.row_difference import find_difference
from etl.lake.table_versions import history
from etl.lake.work_units import kept_units
from etl.maintenance.optimize import optimize
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.lake_rows import Row, addresses, rows
from tests.helpers.paths import at, copy

Address = tuple[Any, Any]

KEYS_AND_COLUMNS = {
    "texts": ["source", "row"],
    "duplicates": ["source", "row", "kind"],
    "tokens": ["source", "row"],
    "keys": ["key", "check", "unit", "row", "kind"],
}


def without(table: list[Row], gone: Collection[Address]) -> list[Row]:
    return [row for row in table if (row["source"], row["row"]) not in gone]


def choose(recipe: Recipe) -> set[Address]:
    """Return documents of all input files, with and without tokens; none keeps a duplicate."""
    listed = rows(recipe.lake, "duplicates")
    keepers = {(row["keeper_source"], row["keeper_row"]) for row in listed}
    free = [address for address in addresses(rows(recipe.lake, "tokens")) if address not in keepers]
    return {*free[::3], *addresses(listed)[::2]}


def read_all(table: Table) -> pl.DataFrame:
    """Return the live rows of a table with its partition columns."""
    parts = [
        pl.DataFrame(read_live_rows(table.url, file)).with_columns(
            pl.lit(file[f"partition.{name}"]).alias(name) for name in table.partition_columns
        )
        for file in table.data_files().to_pylist()
    ]
    return pl.concat(parts, how="diagonal")


def strike(
    recipe: Recipe, gone: Collection[Address], names: Collection[str] = tuple(KEYS_AND_COLUMNS)
) -> None:
    """Strike the rows of documents in tables, by default all that may have struck rows."""
    documents, texts = (Table.open(recipe.table_url(step)) for step in ("documents", "texts"))
    read = schemas.InputTable(name="documents", url=documents.url, version=documents.version)
    sources = {int63(unit.key): unit.source for unit in kept_units(texts)}
    for name in names:
        columns = KEYS_AND_COLUMNS[name]
        table = Table.open(f"{recipe.lake}/{name}")
        frame, by = read_all(table), "unit" if name == "keys" else "source"
        addressed = frame.select(pl.col(by), "row").iter_rows()
        stays = [(sources.get(of, of), row) not in gone for of, row in addressed]
        wanted: pa.Table = frame.filter(pl.Series(stays)).select(columns).to_arrow()
        schema = {field.name: field.type for field in table.schema}
        wanted = wanted.cast(pa.schema([(column, schema[column]) for column in columns]))
        difference = find_difference(table, wanted, set(frame[by]), by=by)
        assert difference.missing.num_rows == difference.num_unstruck == 0
        assert difference.num_struck == len(stays) - sum(stays) > 0, name
        with hold_job(JobIdentity(lake=str(recipe.lake), kind="remove")) as job:
            change = Change(action="strike", generation=1, input_tables=[read])
            record = job.record_on(table, change)
            open_ledger(table).strike(difference.struck, lambda *_, record=record: record)


@pytest.fixture(scope="module")
def struck(made: Recipe, client: Client, new_place: Any) -> tuple[Recipe, set[Address]]:
    """A lake with struck rows, which was shuffled before, and the documents that were struck."""
    recipe = made.model_copy(update={"lake": str(copy(made.lake, new_place("struck") / "lake"))})
    shuffle(str(recipe.lake), cluster=client)
    gone = choose(recipe)
    strike(recipe, gone)
    return recipe, gone


Struck = tuple[Recipe, set[Address]]


def test_tables_lack_the_rows(made: Recipe, struck: Struck) -> None:
    recipe, gone = struck
    for name in ("texts", "duplicates", "tokens"):
        assert rows(recipe.lake, name) == without(rows(made.lake, name), gone), name
    frame = dataframe.read_table(str(recipe.lake), "tokens").compute()
    assert len(frame) == len(rows(recipe.lake, "tokens"))


def test_the_log_says_what_struck_the_rows(made: Recipe, struck: Struck) -> None:
    recipe, _ = struck
    version = Table.open(recipe.table_url("documents")).version
    for name in KEYS_AND_COLUMNS:
        newest, before = history(f"{recipe.lake}/{name}")[:2]
        assert newest.lineage is not None
        assert before.lineage is not None
        assert newest.lineage.action == "strike"
        [read] = newest.lineage.input_tables
        assert (read.name, read.version) == ("documents", version)
        assert newest.lineage.fingerprint == before.lineage.fingerprint
        assert newest.lineage.digest != before.lineage.digest


def test_exports(made: Recipe, struck: Struck, place: UPath) -> None:
    recipe, gone = struck

    def exported(lake: Recipe, name: str) -> list[dict[str, Any]]:
        folder = place / name
        export = export_documents(str(lake.lake), str(folder))
        found: list[dict[str, Any]] = []
        for path in sorted(folder.glob("*.parquet")):
            with path.open("rb") as file:
                found += pq.read_table(file).to_pylist()
        assert export.documents == len(found)
        return found

    assert exported(recipe, "struck") == without(exported(made, "all"), gone)
    tokens = Table.open(recipe.table_url("tokens"))
    examples = [*read_documents(tokens.url, [*tokens.files("path", "vector")])]
    live = rows(recipe.lake, "tokens")
    assert sorted((e["source"], e["row"]) for e in examples) == addresses(live)
    export = export_megatron(str(recipe.lake), str(place / "megatron"))
    assert export.documents + export.empty == len(live)
    assert export.tokens == sum(int(str(row["num_tokens"])) for row in live)
    with at(f"{export.prefix}.addresses.parquet").open("rb") as file:
        stored = pq.read_table(file).to_pylist()
    assert sorted((row["source"], row["row"]) for row in stored) == addresses(live)


def test_reports(made: Recipe, struck: Struck) -> None:
    recipe, gone = struck
    tokens, listed = (without(rows(made.lake, name), gone) for name in ("tokens", "duplicates"))
    before, now = report(str(made.lake)), report(str(recipe.lake))
    assert now.tokens == sum(int(str(row["num_tokens"])) for row in tokens) < before.tokens
    assert now.tokenized == len(tokens)
    for source in now.sources:
        own = [row for row in tokens if row["source"] == source.source]
        assert source.tokenized == len(own)
        assert source.tokens == sum(int(str(row["num_tokens"])) for row in own)
    assert sum(now.duplicates.values()) == len(listed) > 0
    clusters = duplicates(str(recipe.lake))
    assert clusters.saved.documents == sum(clusters.kinds.values()) == len(listed)
    tuned = tune(str(recipe.lake), ["gopher_quality.min_words=50"])
    assert tuned.whole.now.tokens == now.tokens
    facts = page_facts(str(recipe.lake))
    assert facts.lengths is not None
    assert sum(counts.sum() for counts in facts.lengths.counts.values()) == len(tokens)
    assert str(graph(recipe.table_url("tokens")))


def test_samples_and_traces_name_struck_documents(made: Recipe, struck: Struck) -> None:
    recipe, gone = struck
    before, now = (sample(str(each.lake), n=500) for each in (made, recipe))
    texts = {(each.source, each.row): each.text for each in before}
    assert len(now) == len(before)
    for each in now:
        if (each.source, each.row) in gone:
            assert (each.text, each.missing_text) == (None, "it is struck or not stored in `texts`")
        else:
            assert each.text == texts[each.source, each.row]
    tokenized = {*addresses(rows(made.lake, "tokens"))}
    for source, row in sorted(tokenized)[:9]:
        (found,) = trace(str(recipe.lake), source=source, row=row)
        (old,) = trace(str(made.lake), source=source, row=row)
        if (source, row) in gone:
            assert not found.tokens
            assert found.outcome == "kept, but its tokens are struck"
        else:
            assert found.tokens["tokens"].location.row == old.tokens["tokens"].location.row
            assert (found.text, found.outcome) == (old.text, old.outcome)


def test_a_difference_of_versions_counts_struck_rows(made: Recipe, struck: Struck) -> None:
    recipe, gone = struck
    url = recipe.table_url("tokens")
    newest = Table.open(url).version
    found = diff(url, newest - 1, newest)
    out = [row for row in rows(made.lake, "tokens") if (row["source"], row["row"]) in gone]
    assert (found.rows_removed, found.rows_added) == (len(out), 0)
    assert found.tokens_removed == sum(int(str(row["num_tokens"])) for row in out)
    back = diff(url, newest, newest - 1)
    assert (back.rows_added, back.tokens_added) == (len(out), found.tokens_removed)
    lakes = {t.table: t for t in compare_lakes(str(made.lake), str(recipe.lake)).tables}
    assert {each.source for each in lakes["tokens"].sources} == {row["source"] for row in out}


def test_verification_finds_only_the_documents_without_texts(made: Recipe, struck: Struck) -> None:
    recipe, gone = struck
    problems = verify(str(recipe.lake))
    assert {problem.table for problem in problems} == {"documents"}
    assert all("without a text" in str(problem) for problem in problems)
    counts = [int(problem.what.split()[0]) for problem in problems]
    assert sum(counts) == len(gone)


def test_new_documents_are_compared_with_live_ones(
    made: Recipe, struck: Struck, client: Client, place: UPath
) -> None:
    """A copy of a struck text is new, a copy of a live one is a duplicate; nothing struck returns."""
    origin, gone = struck
    crawl = copy(str(made.source.path), place / "crawl")
    lake = copy(origin.lake, place / "lake")
    source = made.source.model_copy(update={"path": str(crawl)})
    recipe = made.model_copy(update={"source": source, "lake": str(lake)})
    stored = rows(made.lake, "texts")
    twins = {(row["source"], row["row"]): str(row["text"]) for row in stored}
    listed = {*addresses(rows(made.lake, "duplicates"))}
    out = next(a for a in sorted(twins) if a in gone and a not in listed)
    live = next(a for a in sorted(twins) if a not in gone and a not in listed)
    new = [twins[out], twins[live], prose(12345)]
    write_jsonl(
        crawl / "new.jsonl", [{"body": text, "doc_id": text[:9], "link": ""} for text in new]
    )
    before = {name: rows(str(lake), name) for name in ("tokens", "duplicates", "texts")}
    assert run(recipe, cluster=client).ok
    after = {name: rows(str(lake), name) for name in before}
    added = {
        name: [row for row in after[name] if str(row["source"]).endswith("new.jsonl")]
        for name in before
    }
    assert [row["row"] for row in added["tokens"]] == [0, 2]
    assert [(row["row"], row["keeper_row"]) for row in added["duplicates"]] == [(1, live[1])]
    assert len(added["texts"]) == 3
    for name, old in before.items():
        assert len(after[name]) == len(old) + len(added[name]), name
    report_of_shuffle = shuffle(str(lake), cluster=client)
    assert report_of_shuffle.rows == len(after["tokens"])
    assert addresses(rows(str(lake), "tokens_shuffled")) == addresses(after["tokens"])
    assert report_of_shuffle.tokens == sum(int(str(r["num_tokens"])) for r in after["tokens"])
    optimize(str(lake))
    assert {name: rows(str(lake), name) for name in before} == after
    assert {problem.table for problem in verify(str(lake))} == {"documents"}


def tokenized(recipe: Recipe) -> list[Address]:
    """Tokenize all texts as a run does; return the addresses of the rows."""
    decisions = DedupDecisions(open_ledger(Table.open(recipe.table_url("duplicates"))))
    found: list[Address] = []
    for unit in kept_units(Table.open(recipe.table_url("texts"))):
        (result,) = TokenizeUnit(recipe, "tokens")((unit, "f" * 32, decisions.files(unit)))
        assert result is not None
        assert (result.rows, result.kept) == (
            unit.rows,
            sum(f.rows for f in result.files["tokens"]),
        )
        for file in result.files["tokens"]:
            written = read_live_rows(recipe.table_url("tokens"), LogicalFile(file.path))
            found += [(row["source"], row["row"]) for row in written.to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("names", [[*KEYS_AND_COLUMNS], ["texts"]], ids=["all", "texts"])
def test_struck_texts_are_not_tokenized(made: Recipe, place: UPath, names: list[str]) -> None:
    """Also while the rows of ``duplicates`` are not struck yet."""
    recipe = made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})
    gone = choose(recipe)
    strike(recipe, gone, names)
    assert tokenized(recipe) == addresses(without(rows(made.lake, "tokens"), gone))


STAGES: dict[str, object] = {
    "exact": "dedup_exact",
    "near": {"dedup_minhash": {"min_similarity": 0.7}},
    "cut": {"dedup_paragraphs": {"min_rest_chars": 20}},
}


def write_texts(file: UPath, texts: Sequence[str]) -> None:
    write_jsonl(file, [{"body": text, "doc_id": None, "link": None} for text in texts])


def listed(recipe: Recipe) -> list[tuple[Any, ...]]:
    """Return the rows of ``duplicates``: row, row of the keeper, and which paragraphs are cut."""
    return [
        (row["row"], row["keeper_row"], *([row["cut"]] if "cut" in row else []))
        for row in rows(recipe.lake, "duplicates")
    ]


@pytest.mark.parametrize("names", [["texts"], ["texts", "keys"], ["keys", "texts"]], ids="-".join)
@pytest.mark.parametrize("kind", STAGES)
def test_a_struck_document_keeps_nothing(
    client: Client, place: UPath, kind: str, names: list[str]
) -> None:
    """Whether its keys are struck or not yet, its copies are new; copies of others are not."""
    crawl = place / "crawl"
    write_texts(crawl / "old.jsonl", [prose(number) for number in range(4)])
    source = {"path": str(crawl), "columns": {"text": "body"}}
    recipe = Recipe(name="r", source=source, lake=str(place / "lake"), stages=[STAGES[kind]])
    run(recipe, cluster=client)
    strike(recipe, {(source, 1) for source, _ in addresses(rows(recipe.lake, "texts"))}, names)

    def similar(number: int, own: int) -> str:
        more = {"exact": "", "near": " more", "cut": f"\n\n{prose(own)}"}
        return prose(number) + more[kind]

    write_texts(crawl / "new.jsonl", [similar(1, 10), similar(2, 11)])
    assert run(recipe, cluster=client).ok
    assert listed(recipe) == [(1, 2, [0]) if kind == "cut" else (1, 2)]
    write_texts(crawl / "newer.jsonl", [similar(1, 12)])
    assert run(recipe, cluster=client).ok
    assert (0, 0) in [row[:2] for row in listed(recipe)], "the copy that was new is a keeper"


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_a_struck_document_of_another_lake_keeps_nothing(
    client: Client, place: UPath, kind: str
) -> None:
    against = {
        "dedup_exact" if kind == "exact" else "dedup_minhash": {"against": str(place / "old")}
    }

    def recipe_of(lake: str, texts: list[str], stage: object) -> Recipe:
        write_texts(place / f"{lake}-in" / "a.jsonl", texts)
        source = {"path": str(place / f"{lake}-in"), "columns": {"text": "body"}}
        return Recipe(name="r", source=source, lake=str(place / lake), stages=[stage])

    old = recipe_of("old", [*map(prose, range(4))], STAGES[kind])
    more = "" if kind == "exact" else " more"
    run(old, cluster=client)
    strike(old, {(source, 1) for source, _ in addresses(rows(old.lake, "texts"))}, ["texts"])
    new = recipe_of("new", [prose(number) + more for number in (1, 2)], against)
    assert run(new, cluster=client).ok
    assert listed(new) == [(1, 2)]
