"""The page of a lake: its numbers agree with the reports, its texts are inert, and it loads nothing."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.page import page_sample
from etl.audit.page.distributions import ALONE, KEPT, OTHER, distributions
from etl.audit.page.facts import PageFacts, page_facts
from etl.audit.page.page_sample import read_sample
from etl.audit.page.render import render
from etl.audit.shown_documents import Documents
from etl.audit.tune.tune import tune
from etl.job.run import run
from etl.lake.open_table import open_table
from etl.lake.releases import create_release
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.hostile_lake import make_hostile_lake

MAX_BYTES = 3_000_000


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def facts(made: Recipe) -> PageFacts:
    return page_facts(str(made.lake))


def test_the_funnel_agrees_with_the_report(made: Recipe, facts: PageFacts) -> None:
    counts = report(str(made.lake))
    removed = {loss.rule: loss.documents for step in facts.funnel for loss in step.losses}
    assert removed == {**counts.rejected, **counts.duplicates}
    documents = counts.rows
    for step in facts.funnel:
        documents -= step.removed
        assert step.documents == documents
    assert facts.funnel[-1].documents == counts.tokenized
    assert facts.funnel[-1].tokens == counts.tokens


def test_all_documents_are_in_each_distribution(made: Recipe, facts: PageFacts) -> None:
    counts = report(str(made.lake))
    assert facts.sample.is_complete
    assert facts.signals
    for signal in facts.signals:
        assert sum(part.sum() for part in signal.counts.values()) + signal.missing == counts.rows
        assert signal.counts[KEPT].sum() <= counts.kept


def test_another_limit_would_keep_what_tune_counts(made: Recipe, facts: PageFacts) -> None:
    [words] = [signal for signal in facts.signals if signal.name == "num_words"]
    [short] = [limit for limit in words.limits if limit.rule == "gopher_quality.short"]
    assert {other.is_present for other in short.alternatives} == {True, False}
    for other in short.alternatives:
        value = "null" if other.value is None else int(np.ceil(other.value))
        tuned = tune(str(made.lake), [f"gopher_quality.min_words={value}"])
        assert other.kept == tuned.whole.then.kept
    at_edges = dict(zip(words.axis.edges.tolist(), short.kept, strict=True))
    edge, kept = next((edge, kept) for edge, kept in at_edges.items() if edge > 20)
    tuned = tune(str(made.lake), [f"gopher_quality.min_words={int(np.ceil(edge))}"])
    assert kept == tuned.whole.then.kept


def test_a_limit_moves_only_if_another_keeps_more(by_length: Recipe) -> None:
    facts = page_facts(str(by_length.lake))
    limits = {limit.rule: limit for signal in facts.signals for limit in signal.limits}
    can_keep_more = {rule: limit.can_keep_more for rule, limit in limits.items()}
    assert can_keep_more == {"length.few_words": True, "length.many_words": False}
    sliders = [tag for tag, attributes in Page(render(facts)).elements if "data-kept" in attributes]
    assert sliders == ["input"]


def test_the_title_is_the_name_of_the_lake(made: Recipe, facts: PageFacts) -> None:
    name = str(made.lake).rstrip("/").rpartition("/")[2]
    assert f"<title>{name} – Tokenlake</title>" in render(facts)


def test_each_rule_has_rejected_documents_beside_kept_ones(facts: PageFacts) -> None:
    rules = {each.rule: each for each in facts.rules}
    short = rules["gopher_quality.short"]
    assert short.limit == "num_words < 50"
    assert [each.text for each in short.rejected] == ["too short to keep"] * 3
    assert all(each.verdict == "kept" and each.text for each in short.kept)
    assert rules["source.null_text"].kept == []


def test_a_part_of_the_rows_represents_all_of_them(
    made: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_sample, "MAX_ROWS", 40)
    documents = Documents(open_table(made.table_url("documents")), None)
    sample = read_sample(documents)
    counts = report(str(made.lake))
    assert sample.frame.height < counts.rows == sample.rows
    assert not sample.is_complete
    assert sample.frame["weight"].sum() == pytest.approx(counts.rows)
    kept = sample.frame.filter(sample.frame["reason"].is_null())
    assert kept["weight"].sum() == pytest.approx(counts.kept)
    for signal in distributions(documents, sample):
        total = sum(signal.counts[part].sum() for part in (KEPT, ALONE, OTHER))
        assert total + signal.missing == pytest.approx(counts.rows)
    assert "Estimates from a sample of" in render(page_facts(str(made.lake)))


def test_hostile_documents_are_shown_as_text(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    recipe = make_hostile_lake(place, client, tiny_tokenizer)
    html = render(page_facts(str(recipe.lake)))
    page = Page(html)
    assert len(html.encode()) < MAX_BYTES
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "b", "i", "u", "iframe", "link", "object"} & {*tags}
    assert tags.count("style") == 1
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert "<img src=x onerror=" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "⟨U+0000⟩" in page.text
    assert "⟨U+202E⟩" in page.text
    assert "W" * 1000 not in html


def test_the_page_loads_nothing(facts: PageFacts) -> None:
    page = Page(render(facts))
    assert [
        attrs for _, attrs in page.elements if {"src", "srcset", "data", "action"} & {*attrs}
    ] == []
    links = [str(attrs["href"]) for _, attrs in page.elements if "href" in attrs]
    assert {link[:1] for link in links} == {"#"}
    [policy] = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; ")


def test_the_command_writes_the_page_of_a_version(made: Recipe, lake: Recipe, place: UPath) -> None:
    create_release(str(lake.lake), "first", version=1)
    first = report(str(lake.lake), version="first")
    assert 0 < first.rows < report(str(lake.lake)).rows
    file = place / "report.html"
    result = etl("report", lake.lake, "--html", file, "--version", "first")
    assert result.exit_code == 0, result.output
    page = Page(file.read_text("utf-8"))
    assert f"{first.rows:,}" in page.text
    assert "tokens version 1" in page.text
    assert "USD on demand" in page.text


def test_equal_rules_of_two_stages_count_separately(client: Client, place: UPath) -> None:
    texts = [f"{'word ' * number}" for number in range(1, 31)]
    write_jsonl(place / "in" / "a.jsonl", [{"text": text} for text in texts])
    recipe = Recipe(
        name="twice",
        source={"path": str(place / "in")},
        lake=str(place / "lake"),
        stages=[{"length": {"min_words": 5}}, {"length": {"min_words": 10, "max_words": 20}}],
    )
    run(recipe, cluster=client)
    [words] = [each for each in page_facts(str(recipe.lake)).signals if each.name == "num_words"]
    assert words.counts[KEPT].sum() == 11
    assert words.counts[ALONE].sum() == 19
    kept = {limit.values[0][1]: limit.alternatives[-1].kept for limit in words.limits}
    assert kept == {5: 11, 10: 16, 20: 21}  # without each limit


def test_a_rule_that_reads_the_text_has_limits_that_cannot_be_moved(
    client: Client, place: UPath
) -> None:
    rows = [{"text": "word " * number} for number in range(1, 31)]
    write_jsonl(place / "in" / "a.jsonl", rows)
    recipe = Recipe(
        name="opaque",
        source={"path": str(place / "in")},
        lake=str(place / "lake"),
        stages=[
            {"length": {"min_words": 5}},
            {"where": "num_words > 9 AND text LIKE 'word%' AND num_words < 25"},
        ],
    )
    run(recipe, cluster=client)
    facts = page_facts(str(recipe.lake))
    assert facts.has_unknown
    [words] = [each for each in facts.signals if each.name == "num_words"]
    assert [bool(limit.kept) for limit in words.limits] == [True, False, False]
    assert "a later one has not judged" in render(facts)


def test_lakes_without_tokens_or_rows_have_pages(client: Client, place: UPath) -> None:
    write_jsonl(place / "in" / "a.jsonl", [])
    recipe = Recipe(
        name="bare",
        source={"path": str(place / "in"), "columns": {"text": "body"}},
        lake=str(place / "lake"),
        stages=["gopher_quality"],
    )
    run(recipe, cluster=client)
    assert "No document was rejected." in render(page_facts(str(recipe.lake)))
    write_jsonl(place / "in" / "b.jsonl", records(0, 30))
    run(recipe, cluster=client)
    facts = page_facts(str(recipe.lake))
    assert facts.lengths is None
    assert "gopher_quality" in render(facts)
