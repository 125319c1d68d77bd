"""What reports, traces, exports and the command line show of passages that ``dedup_substrings`` cuts."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from upath import UPath

import etl
from etl.audit.page.render import lake_page
from etl.audit.trace import trace
from etl.cli.app import app
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupSubstrings
from tests.helpers.cluster import cluster
from tests.helpers.near_duplicates import Record, make, write

PASSAGE = "A passage of some words that pages of the site have in their middle. "


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Recipe:
    place = UPath(tmp_path_factory.mktemp("passages"))
    bodies = {
        "first": f"The first page says: {PASSAGE}Then comes something else.",
        "second": f"Éther is another page: {PASSAGE}Its end is its own, too.",
        "short": f"No: {PASSAGE}",
    }
    found: list[Record] = [{"doc_id": n, "body": b, "link": None} for n, b in bodies.items()]
    stage = DedupSubstrings(min_bytes=50, min_chars=20)
    tokenize = {"tokenize": str(tiny_tokenizer)}
    recipe = make(place / "lake", write(place / "in", found, 1), stage, tokenize)
    with cluster(threads=2) as client:
        run(recipe, cluster=client)
    return recipe


def test_a_trace_shows_the_passages_and_where_they_are(made: Recipe) -> None:
    [second] = trace(str(made.lake), id="second")
    assert second.cut is not None
    assert (second.cut.unit, second.cut.units, second.cut.texts) == ("passage", 1, [PASSAGE])
    assert second.cut.cut == [24, 24 + len(PASSAGE)]  # the É has two bytes
    assert (second.cut.keeper_row, second.cut.chars) == (0, len(PASSAGE))
    assert second.outcome.endswith("cut")
    [short] = trace(str(made.lake), id="short")
    assert "left out: dedup_substrings.short, 1 passage " in short.outcome
    output = CliRunner().invoke(app, ["trace", str(made.lake), "--id", "second"]).output
    assert "passages" in output
    assert PASSAGE[:40] in output


def test_a_page_shows_the_largest_cuts(place: UPath) -> None:
    """No document is left out: there are no clusters to show."""
    bodies = [
        f"The first page says: {PASSAGE}Then comes more.",
        f"{PASSAGE}Its end is its own, too.",
    ]
    found: list[Record] = [
        {"doc_id": f"{k}", "body": body, "link": None} for k, body in enumerate(bodies)
    ]
    stage = DedupSubstrings(min_bytes=50, min_chars=20)
    recipe = make(place / "lake", write(place / "in", found, 1), stage)
    with cluster() as client:
        run(recipe, cluster=client)
    page = lake_page(str(recipe.lake))
    chars = len(PASSAGE)
    assert f"1 passage with {chars} characters cut from 1 document, because the text" in page
    assert "Largest cuts" in page
    assert "Largest clusters" not in page


def test_a_sample_shows_what_is_cut(made: Recipe) -> None:
    found = {document.id: document for document in etl.sample(str(made.lake))}
    assert found["first"].cut is None
    assert found["second"].cut == trace(str(made.lake), id="second")[0].cut
    assert found["short"].cut is not None
    assert found["short"].cut.left_out
    assert "1 passage " in repr(found["second"])
    output = CliRunner().invoke(app, ["sample", str(made.lake)]).output
    assert output.count("the first one also occurs in") == 2
    assert PASSAGE[:40] in output


def test_a_report_counts_passages_and_their_characters(made: Recipe) -> None:
    cuts = etl.duplicates(str(made.lake)).cuts
    assert cuts is not None
    assert (cuts.documents, cuts.units, cuts.chars) == (1, 1, len(PASSAGE))
    assert (cuts.left_out, cuts.left_out_chars) == (1, len(f"No: {PASSAGE}"))
    assert cuts.tokens is not None
    output = CliRunner().invoke(app, ["duplicates", str(made.lake)]).output
    assert "cut         1 passage, " in output
    assert [(each.id, each.cut.chars) for each in cuts.largest] == [
        ("second", len(PASSAGE)),
        ("short", len(PASSAGE)),
    ]
    shown = output.partition("\n\n1 passage ")[2]
    assert "left out: dedup_substrings.short" in shown
    assert "(id short)" in shown
    assert "(id second)" in shown
    assert shown.count(PASSAGE[:40]) == 2
    assert shown.count("the first of them is in") == 2
    first = etl.duplicates(str(made.lake), top=1).cuts
    assert first is not None
    assert first.largest == cuts.largest[:1]


def test_an_export_has_the_texts_without_the_passages(made: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = CliRunner().invoke(app, ["export", str(made.lake), "--to", str(folder)])
    assert result.exit_code == 0, result.output
    tables = [pq.read_table(path, columns=["text"]) for path in folder.rglob("*.parquet")]
    text = "".join(text for table in tables for text in table["text"].to_pylist())
    assert text.count(PASSAGE) == 1
    assert "Éther is another page: Its end is its own, too." in text
