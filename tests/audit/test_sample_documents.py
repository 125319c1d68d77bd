"""Samples of documents: they match what is asked for, and have texts, signals and failed limits."""

import json

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.lake_report import report
from etl.audit.sample_documents import sample
from etl.audit.trace import trace
from etl.errors import TableError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl


def texts_of(recipe: Recipe) -> dict[str, str | None]:
    """Return the text of each record of the corpus in the lake, by its id."""
    return {str(r["doc_id"]): r["body"] for r in records(0, 260)}


def test_a_sample_has_documents_of_both_verdicts_with_their_texts(made: Recipe) -> None:
    documents = sample(str(made.lake), n=10_000)
    counts = report(str(made.lake))
    assert len(documents) == counts.rows
    assert sum(each.verdict == "kept" for each in documents) == counts.kept
    texts = texts_of(made)
    for each in documents:
        if each.id != "doc-00000":  # two documents have this id
            expected = texts[str(each.id)]
            assert (each.text or "").strip() == (expected or "").strip(), each
        assert (each.missing_text is None) == (each.text is not None)


def test_a_rejected_document_has_the_limit_that_it_fails(made: Recipe) -> None:
    documents = sample(str(made.lake), n=5, reason="gopher_quality.short")
    assert len(documents) == 5
    for each in documents:
        [limit] = each.limits
        assert str(limit) == "num_words = 4 < 50"
        assert each.signals["num_words"] == 4
        assert each.text == "too short to keep"


def test_a_seed_chooses_the_documents(made: Recipe) -> None:
    first, again, other = (
        [(d.source, d.row) for d in sample(str(made.lake), n=5, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_stage_selects_all_its_rules_and_a_verdict_its_documents(made: Recipe) -> None:
    of_stage = sample(str(made.lake), n=1000, reason="gopher_quality")
    assert {d.reason for d in of_stage} == {"gopher_quality.short"}
    kept = sample(str(made.lake), n=1000, verdict="kept")
    assert {d.verdict for d in kept} == {"kept"}


def test_no_match_is_an_error_that_names_similar_rules(made: Recipe) -> None:
    with pytest.raises(TableError, match="no documents with reason 'gopher_quality.shrt'") as error:
        sample(str(made.lake), reason="gopher_quality.shrt")
    assert "gopher_quality.short" in str(error.value.hint)
    with pytest.raises(TableError, match="no documents with language 'xx'"):
        sample(str(made.lake), lang="xx")
    with pytest.raises(TableError, match="'keep' is not a verdict"):
        sample(str(made.lake), verdict="keep")


def test_a_changed_input_file_gives_no_text(lake: Recipe, place: UPath, client: Client) -> None:
    crawl = place / "crawl"
    uri = storage.normalize(str(crawl / "a.jsonl"))
    write_jsonl(crawl / "a.jsonl", records(0, 20))
    own = lake.model_copy(
        update={
            "lake": str(place / "own"),
            "source": lake.source.model_copy(update={"path": str(crawl)}),
        }
    )
    assert run(own, cluster=client).ok
    write_jsonl(crawl / "a.jsonl", records(0, 21))
    documents = sample(str(own.lake), reason="gopher_quality")
    [why] = {d.missing_text for d in documents}
    assert why.startswith(f"its input file has changed: {uri} (")
    (crawl / "a.jsonl").unlink()
    documents = sample(str(own.lake), reason="gopher_quality")
    [why] = {d.missing_text for d in documents}
    assert why.startswith(f"its input file no longer exists: {uri}")


def test_a_trace_of_a_rejected_document_shows_its_text_and_the_limit(made: Recipe) -> None:
    [rejected] = sample(str(made.lake), n=1, reason="gopher_quality")
    [traced] = trace(str(made.lake), source=rejected.source, row=rejected.row)
    assert traced.text == "too short to keep"
    assert traced.limits == rejected.limits
    result = etl("trace", made.lake, "--source", rejected.source, "--row", rejected.row)
    assert "  failed      num_words = 4 < 50\n" in result.stdout
    assert "  | too short to keep\n" in result.stdout


def test_the_command_prints_documents_or_json(made: Recipe) -> None:
    words = ("sample", made.lake, "--reason", "gopher_quality.short", "-n", 2)
    text = etl(*words).stdout
    assert text.count("  outcome     rejected by gopher_quality.short\n") == 2
    assert text.count("  | too short to keep\n") == 2
    documents = json.loads(etl(*words, "--json").stdout)
    assert [d["limits"][0]["limit"] for d in documents] == [50, 50]
    short = etl("sample", made.lake, "--verdict", "kept", "-n", 1, "--chars", 9).stdout
    assert "characters in all\n" in short
