"""The guard against deduplication that removes nearly all of a file, a folder or a language."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.errors import CollapseError, RecipeError
from etl.job import dedup_step
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.arrivals import LINES, NEAR
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import Record, make, record, words, write

NOTICE = words(0, 150)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


GUARD = {"min_documents": 20}


def books(count: int, first: int = 0) -> list[Record]:
    """Return books that have a notice of 150 words and two words of their own."""
    return [record(f"book-{k}", [*NOTICE, *words(k, 2)]) for k in range(first, first + count)]


def pages(count: int, first: int = 1000, size: int = 20) -> list[Record]:
    return [record(f"page-{k}", words(k, size)) for k in range(first, first + count)]


def make_guarded(place: UPath, *stages: Any, **guard: Any) -> Recipe:
    recipe = make(place / "lake", place / "in" / "**", *(stages or ["dedup_exact", NEAR]))
    return Recipe.of(recipe, settings={"guard": GUARD | guard})


def url(place: UPath, *parts: str) -> str:
    return storage.join(storage.normalize(str(place / "in")), *parts)


def test_a_source_that_collapses_stops_the_run_with_examples(client: Client, place: UPath) -> None:
    """With the default settings, 1,000 books of which only the first would stay."""
    write(place / "in" / "books", books(1000), 2)
    write(place / "in" / "web", pages(100), 1)
    recipe = make(place / "lake", place / "in" / "**", "dedup_exact", NEAR)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    error = pickle.loads(pickle.dumps(caught.value))
    (group,) = error.groups
    assert group.group == url(place, "books") + "/"
    assert (group.documents, group.lost) == (1000, 999)
    assert group.lost_bytes / group.text_bytes == pytest.approx(0.999, abs=1e-3)
    assert [each.row for each in group.examples] == [1, 2, 3]
    example = group.examples[0]
    assert (example.keeper_row, example.kind) == (0, "near")
    assert example.similarity > 0.9
    assert example.text == example.keeper_text == " ".join(NOTICE)[:100]
    message = str(error)
    assert "999 of 1,000 documents (99.9 %), 99.9 % of the text" in message
    assert f"removed   {example.source} row 1" in message
    assert f"kept      {example.keeper_source} row 0 (near 0." in message
    assert f'guard.exempt=["{url(place, "books") + "/"}"]' in message
    assert not rows(recipe.lake, "duplicates")
    with pytest.raises(CollapseError):  # the decisions are made again
        run(recipe, cluster=client)


def test_the_hint_of_the_error_accepts_the_loss(client: Client, place: UPath) -> None:
    for number in range(2):
        write(place / "in" / "books", books(20, 20 * number), 1, number)
    write(place / "in" / "web", pages(40), 1)
    recipe = make_guarded(place)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    assert caught.value.hint is not None
    setting = caught.value.hint.split("--set '")[1].split("'")[0]
    report = run(recipe, cluster=client, settings=[setting])
    assert report.duplicates == 39
    assert verify(str(recipe.lake)) == []
    # An increment is judged alone, and the other folders still are.
    write(place / "in" / "books", books(40, 100), 1, 50)
    assert run(recipe, cluster=client, settings=[setting]).duplicates == 40
    write(place / "in" / "web", books(40, 200), 1, 60)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client, settings=[setting])
    assert [group.group for group in caught.value.groups] == [url(place, "web/060.parquet")]
    assert url(place, "books") + "/" in str(caught.value)  # the hint keeps what is accepted


def test_a_run_that_is_killed_before_the_commit_is_judged_again(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss was accepted for the killed run only, which has written its decisions."""
    write(place / "in", books(25), 1)
    recipe = make_guarded(place)
    exempt = [f"guard.exempt=[{place / 'in'}]"]

    def kill(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(dedup_step, "count_cut", kill)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, cluster=client, settings=exempt)
    monkeypatch.undo()
    with pytest.raises(CollapseError):
        run(recipe, cluster=client)
    assert run(recipe, cluster=client, settings=exempt).duplicates == 24
    assert verify(str(recipe.lake)) == []


def test_an_increment_that_collapses_is_not_hidden_by_a_large_lake(
    client: Client, place: UPath
) -> None:
    write(place / "in", [*pages(200), *books(1)], 2)
    recipe = make_guarded(place)
    assert run(recipe, cluster=client).duplicates == 0
    write(place / "in", books(20, 100), 1, 10)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    (group,) = caught.value.groups
    assert (group.group, group.lost) == (url(place, "010.parquet"), 20)
    assert group.examples[0].keeper_source != group.group


def test_exact_copies_of_other_files_do_not_count(client: Client, place: UPath) -> None:
    """Two crawls of the same pages arrive at once, and a third one later; few pages are new."""
    for crawl in range(2):
        write(place / "in", [*pages(100), *pages(5, 2000 + 10 * crawl)], 1, crawl)
    recipe = make_guarded(place)
    assert run(recipe, cluster=client).duplicates == 100
    write(place / "in", [*pages(100), *pages(20, 3000)], 1, 2)
    assert run(recipe, cluster=client).duplicates == 100
    # Behind copies, new pages are still guarded.
    write(place / "in", [*pages(100), *books(30)], 1, 3)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    (group,) = caught.value.groups
    assert (group.documents, group.lost) == (30, 29)


@pytest.mark.parametrize("stage", ["dedup_exact", NEAR])
def test_copies_within_a_file_count(client: Client, place: UPath, stage: Any) -> None:
    """All pages of a file are the same notice, as if a site refused to be crawled."""
    write(place / "in", [record(f"{k}", NOTICE) for k in range(25)], 1, 0)
    with pytest.raises(CollapseError) as caught:
        run(make_guarded(place, stage), cluster=client)
    (group,) = caught.value.groups
    assert (group.documents, group.lost) == (25, 24)


def test_few_documents_with_most_of_the_text_count_by_bytes(client: Client, place: UPath) -> None:
    write(place / "in", [*books(40), *pages(40, size=8)], 1)
    with pytest.raises(CollapseError) as caught:
        run(make_guarded(place), cluster=client)
    (group,) = caught.value.groups
    assert (group.documents, group.lost) == (80, 39)
    assert group.lost_bytes > 0.9 * group.text_bytes


def test_text_that_is_cut_counts_by_bytes(client: Client, place: UPath) -> None:
    line = " ".join(NOTICE)
    records: list[Record] = [
        {"doc_id": f"{k}", "body": f"{line}\n{' '.join(words(k + 1, 14))}", "link": None}
        for k in range(30)
    ]
    write(place / "in", records, 1)
    recipe = make_guarded(place, LINES, max_share=0.8)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    (group,) = caught.value.groups
    assert group.lost == 0
    assert group.lost_bytes > 0.8 * group.text_bytes
    assert group.examples[0].kind == "cut"
    assert run(recipe, cluster=client, settings=["guard.max_share=0.95"]).cut == 29


def test_a_language_that_collapses_is_a_group(client: Client, place: UPath) -> None:
    """German pages of many files have one notice; English pages are all different."""
    notice = "Diese Seite ist leider nicht mehr verfügbar, bitte besuchen Sie uns bald wieder. " * 5
    stories = (
        "The ship sailed past the old harbour while the captain counted every barrel on deck. "
    )
    for number in range(3):
        german = [
            record(f"de-{number}-{k}", [notice, *words(10 * number + k, 2)]) for k in range(10)
        ]
        english = [
            record(f"en-{number}-{k}", [stories, *words(100 * number + k, 30)]) for k in range(30)
        ]
        write(place / "in", [*german, *english], 1, number)
    recipe = make_guarded(place, {"language": {"keep": [], "min_score": None}}, NEAR)
    with pytest.raises(CollapseError) as caught:
        run(recipe, cluster=client)
    (group,) = caught.value.groups
    assert (group.group, group.documents) == ("lang=de", 30)
    assert "verfügbar" in group.examples[0].text
    assert run(recipe, cluster=client, settings=["guard.exempt=[lang=de]"]).duplicates > 20


def test_the_documents_of_an_exempt_group_do_not_count_in_others(
    client: Client, place: UPath
) -> None:
    write(place / "in" / "a" / "mirror", books(60), 1)
    write(place / "in" / "a" / "own", pages(15), 1)
    recipe = make_guarded(place, exempt=[str(place / "in" / "a" / "mirror")])
    assert run(recipe, cluster=client).duplicates == 59


def _misspelled(place: UPath) -> dict[str, Any]:
    return {"exempt": [str(place / "in" / "boks")]}


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (_misspelled, "did you mean"),
        (lambda _: {"exempt": ["lang=de"]}, "no stage of the recipe identifies languages"),
        (lambda _: {"exempt": ["lang=klingon"]}, "unknown language 'klingon'"),
    ],
)
def test_unknown_groups_are_refused(
    place: UPath, guard: Callable[[UPath], dict[str, Any]], message: str
) -> None:
    write(place / "in" / "books", books(3), 1)
    with pytest.raises(RecipeError, match=message):
        make_plan(make_guarded(place, **guard(place)))


def test_paths_of_the_guard_are_relative_to_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(
        "source: in/*\nlake: lake\nguard: {exempt: [in/books, lang=is]}\nstages: [dedup_exact]\n"
    )
    guard = Recipe.load(file).guard
    assert guard.exempt == (str(tmp_path / "in" / "books"), "lang=is")
    assert (
        Recipe.load(file).fingerprint()
        == Recipe.load(file, settings=["guard.exempt=[]"]).fingerprint()
    )
