"""The duplicate report and traces of cut documents, on a lake with known clusters."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from upath import UPath

from etl import storage
from etl.audit.duplicates import clusters
from etl.audit.duplicates import duplicate_report as module
from etl.audit.duplicates.duplicate_report import Pair, duplicates
from etl.audit.lake_report import report
from etl.audit.lineage_graph import trace
from etl.audit.verify.verify import verify
from etl.cli.app import app
from etl.errors import TableError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import write_jsonl
from tests.helpers.damage import open_table, read, rewrite
from tests.helpers.lake_rows import Row, rows
from tests.helpers.near_duplicates import changed, words
from tests.helpers.paths import NewPlace, at, copy

NOTICE = "This notice appears below every page of the site."
FILES = {  # folder and file -> documents by name
    "blog/a": ["one", "two", "one", "three"],
    "blog/b": ["one", "two-near", "page-1"],
    "wiki/c": ["one", "three", "page-2", "page-3", "alone"],
    "wiki/d": ["notice", "one"],
}


def text_of(name: str) -> str:
    base, _, variant = name.partition("-")
    if base == "notice":
        return f"{NOTICE}\n\nNo more."
    text = words(sum(map(ord, base)), 60)
    if variant == "near":
        text = changed(text, 30)
    if base == "page":
        return f"{NOTICE}\n\nPage {variant} {' '.join(words(int(variant), 60))}"
    return " ".join(text)


@pytest.fixture(scope="module")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    folder = new_place("known")
    for path, names in FILES.items():
        records = [{"id": f"{path}-{k}", "text": text_of(name)} for k, name in enumerate(names)]
        write_jsonl(folder / "in" / f"{path}.jsonl", records)
    near = {"dedup_minhash": {"verify": "exact", "bands": 28, "rows": 4, "min_similarity": 0.7}}
    recipe = Recipe(
        name="known",
        source={"path": str(folder / "in" / "**" / "*.jsonl"), "columns": {"id": "id"}},
        lake=str(folder / "lake"),
        stages=[
            "dedup_exact",
            near,
            {"dedup_paragraphs": {"min_chars": 20, "min_rest_chars": 30}},
            {"tokenize": str(tiny_tokenizer)},
        ],
    )
    assert run(recipe, cluster=client).ok
    return recipe


def url(recipe: Recipe, path: str) -> str:
    return storage.normalize(str(at(recipe.lake).parent / "in" / f"{path}.jsonl"))


def test_the_lake_is_sound_and_its_report_counts_duplicates(made: Recipe) -> None:
    assert verify(str(made.lake)) == []
    summary = report(str(made.lake))
    assert (summary.duplicates, summary.cut) == ({"exact": 5, "near": 1, "short": 1}, 2)
    assert "cut         2 documents" in CliRunner().invoke(app, ["report", str(made.lake)]).output


def test_the_report_has_the_known_clusters(made: Recipe) -> None:
    summary = duplicates(str(made.lake))
    assert summary.kinds == {"exact": 5, "cut": 2, "near": 1, "short": 1}
    assert summary.clusters == 3
    assert summary.sizes == {"2": 2, "5-8": 1}
    first, second, third = summary.largest
    assert (first.size, first.source, first.row, first.id) == (
        5,
        url(made, "blog/a"),
        0,
        "blog/a-0",
    )
    assert first.text == text_of("one")[:300]
    members = [("blog/a", 2), ("blog/b", 0), ("wiki/c", 0), ("wiki/d", 1)]
    assert [(m.source, m.row, m.kind) for m in first.members] == [
        (url(made, path), row, "exact") for path, row in members
    ]
    assert [(c.size, c.row, c.members[0].kind) for c in (second, third)] == [
        (2, 1, "near"),
        (2, 3, "exact"),
    ]
    a, b, c, d = (url(made, path) for path in FILES)
    assert (summary.by, summary.other_pairs) == ("files", 0)
    assert summary.pairs == [
        Pair(source=source, keeper_source=a, documents=n)
        for source, n in [(b, 2), (c, 2), (a, 1), (d, 1)]
    ]
    assert summary.languages == {}


def test_the_report_estimates_the_tokens_saved(made: Recipe) -> None:
    tokens = {str(r["id"]): int(str(r["num_tokens"])) for r in rows(made.lake, "tokens")}
    summary = duplicates(str(made.lake))
    assert summary.saved.documents == 6
    assert summary.saved.unknown == 0
    assert summary.saved.tokens == (
        4 * tokens["blog/a-0"] + tokens["blog/a-1"] + tokens["blog/a-3"]
    )
    cuts = summary.cuts
    assert cuts is not None
    assert (cuts.documents, cuts.units, cuts.chars) == (2, 2, 2 * len(NOTICE))
    assert (cuts.left_out, cuts.left_out_chars) == (1, len(NOTICE) + len("No more."))
    chars = sum(len(text_of(name)) for name in ("one", "two", "three", "alone"))
    chars += sum(len(text_of(f"page-{k}")) - (len(NOTICE) if k > 1 else 0) - 2 for k in (1, 2, 3))
    ratio = sum(tokens.values()) / chars
    assert cuts.tokens == round(ratio * (cuts.chars + cuts.left_out_chars))


def test_results_do_not_depend_on_the_number_of_passes(
    made: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = duplicates(str(made.lake))
    monkeypatch.setattr(clusters, "AT_A_TIME", 1)
    assert duplicates(str(made.lake)) == expected


def test_pairs_of_many_files_are_reported_by_folder(
    made: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 3)
    summary = duplicates(str(made.lake), top=1)
    blog, wiki = (f"{url(made, path).rpartition('/')[0]}/" for path in ("blog/a", "wiki/c"))
    assert summary.by == "folders"
    assert summary.pairs == [Pair(source=blog, keeper_source=blog, documents=3)]
    assert summary.other_pairs == 3
    assert len(summary.largest) == 1
    assert wiki != blog


def test_a_trace_shows_the_cut_units(made: Recipe) -> None:
    (whole,) = trace(str(made.lake), id="blog/b-2")
    assert whole.cut is None
    (page,) = trace(str(made.lake), source=url(made, "wiki/c"), row=2)
    assert page.cut is not None
    assert (page.cut.unit, page.cut.cut, page.cut.texts) == ("paragraph", [0], [NOTICE])
    assert (page.cut.keeper_source, page.cut.keeper_row) == (url(made, "blog/b"), 2)
    assert page.cut.chars == len(NOTICE)
    assert page.outcome.endswith(" cut")
    assert page.tokens
    assert "unit_hashes" not in page.signals
    (notice,) = trace(str(made.lake), id="wiki/d-0")
    assert not notice.tokens
    assert notice.outcome.startswith("left out: dedup_paragraphs.short, 1 paragraph ")
    output = CliRunner().invoke(app, ["trace", str(made.lake), "--id", "wiki/d-0"]).output
    assert NOTICE in " ".join(output.split())


def test_the_command_prints_text_and_json(made: Recipe) -> None:
    result = CliRunner().invoke(app, ["duplicates", str(made.lake)])
    assert result.exit_code == 0
    for part in (
        "exact",
        "clusters    3",
        "5 documents: ",
        "cut         2 paragraphs",
        "blog/a.jsonl row 0",
    ):
        assert part in result.output
    parsed = json.loads(CliRunner().invoke(app, ["duplicates", str(made.lake), "--json"]).output)
    assert parsed["clusters"] == 3


def test_a_lake_without_a_table_of_duplicates_is_refused(made: Recipe, place: UPath) -> None:
    with pytest.raises(TableError, match="no lake at this URL"):
        duplicates(str(place))
    copy(f"{made.lake}/documents", place / "lake" / "documents")
    with pytest.raises(TableError, match="no table of duplicates"):
        duplicates(str(place / "lake"))


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("near", "whose keeper is not kept"),
        ("short", "that are cut for a document that is left out"),
    ],
)
def test_a_wrong_keeper_is_found(made: Recipe, kind: str, problem: str, place: UPath) -> None:
    """A document is cut in favour of a document that is itself left out."""
    lake = made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})
    bad = next(row for row in rows(lake.lake, "duplicates") if row["kind"] == kind)

    def change(table: pa.Table) -> pa.Table:
        changed_rows = table.to_pylist()
        for row in changed_rows:
            if row["kind"] == "cut":
                row |= {"keeper_source": bad["source"], "keeper_row": bad["row"]}
        return pa.Table.from_pylist(changed_rows, table.schema)

    files = open_table(lake, "duplicates").data_files().to_pylist()
    (path,) = [file["path"] for file in files if file["min.kind"] == "cut"]
    rewrite(lake, "duplicates", change, path)
    assert any(problem in other.what for other in verify(str(lake.lake)))


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_a_keeper_with_another_text_is_found(made: Recipe, kind: str, place: UPath) -> None:
    lake = made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})
    decided = rows(lake.lake, "duplicates")
    gone = {(row["source"], row["row"]) for row in decided}
    wrong = next(row for row in decided if row["kind"] == kind)
    keeper = wrong["keeper_source"], wrong["keeper_row"]
    kept = (row for row in rows(lake.lake, "documents") if row["verdict"] == "kept")
    other = next(
        row for row in kept if (a := (row["source"], row["row"])) not in gone and a != keeper
    )

    def change(table: pa.Table) -> pa.Table:
        changed_rows = table.to_pylist()
        for row in changed_rows:
            if (row["source"], row["row"]) == (wrong["source"], wrong["row"]):
                row |= {"keeper_source": other["source"], "keeper_row": other["row"]}
        return pa.Table.from_pylist(changed_rows, table.schema)

    files = open_table(lake, "duplicates").data_files()["path"].to_pylist()
    rewrite(lake, "duplicates", change, next(f for f in files if _holds(lake, f, wrong)))
    assert any("whose keeper has another text" in other.what for other in verify(str(lake.lake)))


def _holds(recipe: Recipe, file: str, row: Row) -> bool:
    table = read(recipe, "duplicates", file).select(["source", "row"])
    return {"source": row["source"], "row": row["row"]} in table.to_pylist()


@pytest.fixture(scope="module")
def estimated(client: Client, new_place: NewPlace) -> Recipe:
    """A lake with one near-duplicate, found by its signature alone, and an equal text."""
    folder = new_place("estimated")
    texts = [text_of(name) for name in ("two", "two-near", "two-near", "one", "one")]
    write_jsonl(folder / "in" / "a.jsonl", [{"id": str(k), "text": t} for k, t in enumerate(texts)])
    near = {"dedup_minhash": {"verify": "estimate", "bands": 28, "rows": 4, "min_similarity": 0.7}}
    recipe = Recipe(
        name="estimated",
        source={"path": str(folder / "in" / "*.jsonl"), "columns": {"id": "id"}},
        lake=str(folder / "lake"),
        stages=["dedup_exact", near],
    )
    assert run(recipe, cluster=client).ok
    return recipe


def test_estimates_are_marked(estimated: Recipe) -> None:
    """The equal text of an estimated duplicate gets its keeper, with the same estimate."""
    assert verify(str(estimated.lake)) == []
    decided = {row["row"]: row for row in rows(estimated.lake, "duplicates")}
    assert {k: row["is_estimate"] for k, row in decided.items()} == {1: True, 2: True, 4: False}
    value = float(str(decided[1]["similarity"]))
    assert value == decided[2]["similarity"]
    assert value < 1
    (cluster,) = [c for c in duplicates(str(estimated.lake)).largest if c.row == 0]
    assert [(m.similarity, m.is_estimate) for m in cluster.members] == [(value, True)] * 2
    output = CliRunner().invoke(app, ["duplicates", str(estimated.lake)]).output
    assert f"near ~{value:.2f}" in output
    assert "exact 1.00" in output
    output = CliRunner().invoke(app, ["trace", str(estimated.lake), "--id", "1"]).output
    assert f"similarity ~{value:.2f}" in output
    output = CliRunner().invoke(app, ["trace", str(estimated.lake), "--id", "4"]).output
    assert "similarity 1.00" in output


def test_similarities_are_compared_with_the_signatures(
    made: Recipe, estimated: Recipe, place: UPath
) -> None:
    """An exact one may differ from the share of equal numbers by chance, an estimate may not."""
    cases = ((estimated, 0.01, True), (made, 0.01, False), (made, -0.3, True))
    for number, (recipe, added, is_found) in enumerate(cases):
        lake = recipe.model_copy(update={"lake": str(copy(recipe.lake, place / str(number)))})

        def change(table: pa.Table, added: float = added) -> pa.Table:
            changed_rows = table.to_pylist()
            for row in changed_rows:
                if row["kind"] == "near":
                    row["similarity"] += added
            return pa.Table.from_pylist(changed_rows, table.schema)

        near = next(row for row in rows(lake.lake, "duplicates") if row["kind"] == "near")
        files = open_table(lake, "duplicates").data_files()["path"].to_pylist()
        rewrite(lake, "duplicates", change, next(f for f in files if _holds(lake, f, near)))
        problems = [p for p in verify(str(lake.lake)) if "whose keeper has another" in p.what]
        assert bool(problems) == is_found


batch = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(["exact", "near", "cut"])),
    max_size=20,
)


@given(batch)
def test_addresses_round_trip(duplicate_rows: list[tuple[str, int, str]]) -> None:
    sources = ["a", "c"]
    columns = [
        pa.array([row[k] for row in duplicate_rows], t)
        for k, t in enumerate([pa.string(), pa.int64()])
    ]
    kinds = pa.array([kind for *_, kind in duplicate_rows], pa.string())
    table = pa.RecordBatch.from_arrays([*columns, kinds], ["source", "row", "kind"])
    numbers = clusters.to_addresses(table, sources, "")
    for number, (source, row, kind) in zip(numbers.tolist(), duplicate_rows, strict=True):
        if source == "b" or kind == "cut":
            assert number == -1
        else:
            assert clusters.from_address(sources, number) == (source, row)
            assert number == clusters.to_address(sources, source, row)
    keys = np.unique(numbers[numbers >= 0])
    spans = [keys[clusters.slice_of_source(keys, k)] for k in range(2)]
    assert np.array_equal(np.concatenate(spans), keys)
    expected = {row for source, row, kind in duplicate_rows if source == "c" and kind != "cut"}
    assert set(clusters.to_rows(spans[1])) == expected
