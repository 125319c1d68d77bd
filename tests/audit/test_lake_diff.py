"""What two lakes, or two versions of one, differ in: against the rows of all tables."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

import etl as api
from etl.audit.lake_diff import diff_lakes
from etl.audit.lake_difference import LakeDifference, MovedDocuments
from etl.errors import TableError
from etl.job.run import run
from etl.lake.releases import create_release
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.cluster import cluster
from tests.helpers.corpus import prose, records, write_jsonl, write_parquet
from tests.helpers.lake_rows import rows
from tests.helpers.paths import NewPlace
from tests.helpers.recipes import small_recipe

MIN_WORDS = 75

Outcomes = dict[tuple[object, object], str]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


@pytest.fixture(scope="module")
def crawl(new_place: NewPlace) -> UPath:
    folder = new_place("crawl")
    write_parquet(folder / "a.parquet", records(0, 90), group=10)
    write_jsonl(folder / "b.jsonl", records(90, 150))
    varied = [
        {"doc_id": f"{k}", "body": prose(k, 50 + k % 40), "link": None} for k in range(200, 240)
    ]
    write_jsonl(folder / "c.jsonl", [*varied, *records(0, 5)])
    return folder


@pytest.fixture(scope="module")
def first(client: Client, crawl: UPath, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake; read-only."""
    recipe = small_recipe(crawl, new_place("first") / "lake", tiny_tokenizer)
    assert run(recipe, cluster=client).ok
    return recipe


@pytest.fixture(scope="module")
def second(client: Client, first: Recipe, new_place: NewPlace) -> Recipe:
    """The recipe of a lake of the same input with other settings; read-only."""
    lake = str(new_place("second") / "lake")
    recipe = Recipe.of(first, settings={"lake": lake, "gopher_quality.min_words": MIN_WORDS})
    assert run(recipe, cluster=client).ok
    return recipe


def outcomes(lake: str | None) -> Outcomes:
    found = {
        (row["source"], row["row"]): str(row["reason"] or "kept") for row in rows(lake, "documents")
    }
    for row in rows(lake, "duplicates"):
        found[row["source"], row["row"]] = f"duplicate.{row['kind']}"
    return found


def counted(moved: list[MovedDocuments]) -> dict[str, int]:
    return {each.reason: each.documents for each in moved}


def check(
    difference: LakeDifference, old: Outcomes, new: Outcomes, tokens: Counter[object]
) -> None:
    """Compare with the outcomes of all documents, and the change in tokens by source."""
    changes = [(old.get(key, "not read"), new.get(key, "not read"), key[0]) for key in {*old, *new}]
    left = [(after, source) for before, after, source in changes if before == "kept" != after]
    came = [(before, source) for before, after, source in changes if before != "kept" == after]
    assert counted(difference.left) == Counter(reason for reason, _ in left)
    assert counted(difference.came) == Counter(reason for reason, _ in came)
    by_source = {each.source: each for each in difference.sources}
    assert {s: each.left for s, each in by_source.items() if each.left} == Counter(
        s for _, s in left
    )
    assert {s: each.came for s, each in by_source.items() if each.came} == Counter(
        s for _, s in came
    )
    changed = {source: count for source, count in tokens.items() if count}
    assert {s: each.tokens for s, each in by_source.items() if each.tokens} == changed


def tokens_by_source(lake: str | None) -> Counter[object]:
    counts: Counter[object] = Counter()
    for row in rows(lake, "tokens"):
        counts[row["source"]] += int(str(row["num_tokens"]))
    return counts


def test_two_recipes_over_the_same_input(first: Recipe, second: Recipe) -> None:
    difference = diff_lakes(str(first.lake), str(second.lake), samples=2)
    tokens = tokens_by_source(second.lake)
    tokens.subtract(tokens_by_source(first.lake))
    check(difference, outcomes(first.lake), outcomes(second.lake), tokens)
    assert any("gopher_quality.min_words" in setting for setting in difference.recipe)
    assert set(counted(difference.left)) == {"gopher_quality.short"}
    (short,) = difference.left
    assert [len(each.text or "") > 0 for each in short.examples] == [True, True]
    assert (
        short.examples == diff_lakes(str(first.lake), str(second.lake), samples=2).left[0].examples
    )
    back = diff_lakes(str(second.lake), str(first.lake))
    assert (counted(back.came), back.left) == (counted(difference.left), [])
    assert "document" in repr(difference)


def test_a_lake_does_not_differ_from_itself(first: Recipe) -> None:
    same = diff_lakes(str(first.lake))
    assert not any((same.recipe, same.left, same.came, same.sources, same.other_reasons))
    assert all(old == new for _, old, new in same.steps())


def test_versions_and_releases_of_a_lake(
    client: Client, place: UPath, first: Recipe, crawl: UPath
) -> None:
    source, lake = place / "in", str(place / "lake")
    write_jsonl(source / "a.jsonl", records(0, 60))
    recipe = Recipe.of(first, settings={"lake": lake, "source.path": str(source)})
    run(recipe, cluster=client)
    create_release(lake, "one")
    before = outcomes(lake)
    write_jsonl(source / "b.jsonl", [*records(60, 90), *records(0, 10)])
    run(recipe, cluster=client)
    difference = diff_lakes(lake, version="one")
    assert counted(difference.came) == {
        "not read": Counter(outcomes(lake).values())["kept"] - Counter(before.values())["kept"]
    }
    assert [each.source.rpartition("/")[2] for each in difference.sources] == ["b.jsonl"]
    shown = etl("diff", lake, "one", difference.new.tables[-1].version, "--samples", 1)
    assert shown.exit_code == 0, shown.output
    assert "came by not read" in shown.stdout
    assert etl("diff", lake, "two", "one").exit_code == 1


def test_the_command_writes_a_page(first: Recipe, second: Recipe, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = etl("diff", str(first.lake), str(second.lake), "--html", page, "--samples", 1)
    assert result.exit_code == 0, result.output
    assert "gopher_quality.min_words" in result.stdout
    html = page.read_text("utf-8")
    assert "Documents that left: gopher_quality.short" in html
    assert "<script" not in html
    assert etl("diff", f"{first.lake}/documents", 0, 1, "--html", page).exit_code == 2


def test_a_lake_that_does_not_exist(first: Recipe, tmp_path: Path) -> None:
    with pytest.raises(TableError):
        api.diff_lakes(str(first.lake), str(tmp_path / "nowhere"))


def test_a_lake_without_deduplication_has_the_duplicates(
    client: Client, first: Recipe, place: UPath
) -> None:
    stages: list[Any] = [s for s in first.stages if not s.kind.startswith("dedup")]
    other = first.model_copy(update={"lake": str(place / "lake"), "stages": tuple(stages)})
    run(other, cluster=client)
    difference = diff_lakes(str(first.lake), str(other.lake))
    duplicates = Counter(outcomes(first.lake).values())["duplicate.exact"]
    assert counted(difference.came) == {"duplicate.exact": duplicates}
    assert any("removed" in setting for setting in difference.recipe)
