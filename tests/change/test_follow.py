"""Decisions follow a change: a lake equals one that has run the new recipe on the same arrivals."""

import random
from ast import literal_eval
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.change_plan import plan_change
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.recipe_ledgers import open_all_ledgers
from etl.lake.table_digest import table_digest
from etl.lake.unit_files import unit_files
from etl.plural import many
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Calls, Recorder
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import (
    STAGES,
    Chain,
    KilledError,
    MakeRecipe,
    Record,
    Step,
    killed_at,
    maker,
)

FILTERS: tuple[Any, ...] = (
    *STAGES[3:],
    {"length": {"min_words": 80}},
    {"length": {"min_words": 70}},
)
TABLES = ("documents", "texts", "duplicates", "tokens")
NEAR = {"bands": 28, "rows": 4, "min_similarity": 0.7}
DEDUP: tuple[tuple[Any, ...], ...] = (
    ({"dedup_minhash": NEAR},),
    ("dedup_exact", {"dedup_minhash": NEAR}),
    ("dedup_exact", {"dedup_minhash": {**NEAR, "min_similarity": 0.9}}),
    ({"dedup_minhash": {**NEAR, "verify": "estimate"}},),
    ({"dedup_minhash": {**NEAR, "keep": "longest"}},),
    ("dedup_exact", {"dedup_minhash": {**NEAR, "bands": 16, "rows": 7}}),
)
CUTTING: tuple[tuple[Any, ...], ...] = (
    (None, None),
    (None, None),
    (
        {"dedup_paragraphs": {"unit": "lines", "min_chars": 12, "min_rest_chars": 60}},
        {"dedup_paragraphs": {"unit": "lines", "min_chars": 12, "min_rest_chars": 200}},
    ),
    (
        {"dedup_substrings": {"min_bytes": 64, "min_chars": 60}},
        {"dedup_substrings": {"min_bytes": 64, "min_chars": 200, "snap": "characters"}},
    ),
)


def similar(start: int, stop: int) -> list[Record]:
    """Return numbered records that are variants of nine texts: equal, shorter, or with other words."""
    found: list[Record] = []
    for number in range(start, stop):
        rng = random.Random(number)
        text = prose(rng.randrange(9)).split()
        for position in rng.sample(range(60), rng.choice([0, 0, 1, 2])):
            text[position] = f"word{rng.randrange(3)}"
        text = text[: len(text) - rng.choice([0, 0, 3, 8, 25])]
        body = "\n".join(" ".join(text[first : first + 12]) for first in range(0, len(text), 12))
        found.append({"doc_id": f"doc-{number:05}", "body": body, "link": f"https://x/{number}"})
    return found


def digests(recipe: Recipe) -> dict[str, int]:
    return {name: table_digest(Table.open(recipe.table_url(name))) for name in recipe.steps}


def replay(recipe: Recipe, lake: UPath, client: Client) -> Recipe:
    """Run a recipe from nothing, file by file in the order in which they arrived in its lake."""
    ledgers = open_all_ledgers(recipe)
    documents, texts = ledgers["documents"].table, ledgers["texts"]
    assert documents is not None
    arrivals: dict[int, set[str]] = defaultdict(set)
    for file in unit_files(documents):
        arrivals[texts.arrival_of(texts.key(file["unit"])) or 0].add(file["min.source"])
    paths: list[str] = []
    for _, sources in sorted(arrivals.items()):
        paths += sorted(sources)
        source = recipe.source.model_copy(update={"path": tuple(paths)})
        again = recipe.model_copy(update={"source": source, "lake": str(lake)})
        assert run(again, cluster=client).ok
    return again


@pytest.fixture
def make(new_place: NewPlace, tiny_tokenizer: Path) -> tuple[UPath, MakeRecipe]:
    """Return a folder with 60 similar records, and a function that makes a recipe over them for a lake."""
    place = new_place("decisions")
    for start in (0, 30):
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", similar(start, start + 30))
    return place, maker(place, tiny_tokenizer)


def grow(place: UPath, recipe: Recipe, client: Client) -> None:
    """Run a recipe, and again with a file whose documents are similar to others, but come first by name."""
    run(recipe, cluster=client)
    write_jsonl(place / "corpus" / "000-new.jsonl", similar(100, 120))
    run(recipe, cluster=client)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([DEDUP[0]], [FILTERS[-1], DEDUP[0]]),
        ([FILTERS[1], DEDUP[1]], [DEDUP[2]]),
        ([DEDUP[0], CUTTING[2][0]], [DEDUP[3], CUTTING[2][1]]),
    ],
    ids=["documents leave", "documents come, another threshold", "passages are cut"],
)
def test_decisions_follow_a_change(
    client: Client, make: tuple[UPath, MakeRecipe], before: Any, after: Any
) -> None:
    """The digests are those of the new recipe on the same arrivals; nothing is left to do."""
    place, recipe = make
    old, changed = (
        recipe(place / "lake", [*chain.from_iterable(map(as_list, stages))])
        for stages in (before, after)
    )
    grow(place, old, client)
    with pytest.raises(MismatchError, match="different recipe"):
        run(changed, cluster=client)
    was = digests(old)
    plan = plan_change(changed)
    assert plan is not None
    assert (plan.refusals, plan.arrivals) == ((), 2)
    assert any("in 2 arrivals compared again" in line for line in plan.lines())
    told = Recorder()
    run(changed, cluster=client, apply_change=True, listener=told)
    counts = f"{many(plan.leave, 'document')} left, {plan.come:,} came"
    assert [line for line in told.lines if line.startswith(f"changed    {counts}")]
    assert plan.compared >= len(rows(changed.lake, "texts")) > 0
    assert plan_change(changed) is None
    assert [*verify(str(changed.lake))] == []
    assert digests(changed) == digests(replay(changed, place / "fresh", client)) != was
    assert not make_plan(changed).has_work()


def as_list(stages: Any) -> list[Any]:
    return list(stages) if isinstance(stages, tuple) else [stages]


def test_another_threshold_is_followed_after_kills(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents do not change; each run makes one or two commits more, and then is killed."""
    place, recipe = make
    changed = recipe(place / "lake", DEDUP[2])
    grow(place, recipe(place / "lake", DEDUP[1]), client)
    is_killed = True
    while is_killed:
        with killed_at(2, monkeypatch):
            try:
                run(changed, cluster=client, apply_change=True)
                is_killed = False
            except KilledError:
                assert [*verify(str(changed.lake))] == []
    assert digests(changed) == digests(replay(changed, place / "fresh", client))


def test_the_old_recipe_is_run_after_an_interrupted_change(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the decisions are dropped they are those of the old recipe, which a plain run may go on with."""
    place, recipe = make
    old, changed = (recipe(place / "lake", stages) for stages in DEDUP[1:3])
    run(old, cluster=client)
    before = digests(old)
    with killed_at(1, monkeypatch), pytest.raises(KilledError):
        run(changed, cluster=client, apply_change=True)
    run(old, cluster=client)
    assert digests(old) == before
    with killed_at(4, monkeypatch), pytest.raises(KilledError):
        run(changed, cluster=client, apply_change=True)
    with pytest.raises(MismatchError, match="different recipe"):
        run(old, cluster=client)
    run(changed, cluster=client)
    assert [*verify(str(changed.lake))] == []
    run(old, cluster=client, apply_change=True)
    assert digests(old) == before


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([{"dedup_minhash": {**NEAR, "ngram": 4}}], "columns that documents are compared by"),
        (["dedup_exact"], "columns that documents are compared by"),
        ([{"dedup_minhash": {**NEAR, "against": "other"}}], "`against` compares with lakes"),
    ],
)
def test_what_is_not_exact_is_refused_with_the_price_of_a_rebuild(
    client: Client, make: tuple[UPath, MakeRecipe], stages: list[Any], why: str
) -> None:
    place, recipe = make
    run(recipe(place / "lake", DEDUP[0]), cluster=client)
    run(recipe(place / "other", DEDUP[0]), cluster=client)
    named = str(stages).replace("'other'", repr(str(place / "other")))
    other = recipe(place / "lake", [FILTERS[1], *literal_eval(named)])
    for apply_change in (True, False):
        with pytest.raises(MismatchError, match=why) as error:
            run(other, cluster=client, apply_change=apply_change)
        assert "pass --rebuild (about" in str(error.value)


def test_a_recipe_without_deduplication_is_refused(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    """The lake would keep a table that the recipe does not fill; so not even a rebuild is possible."""
    place, recipe = make
    run(recipe(place / "lake", DEDUP[0]), cluster=client)
    with pytest.raises(MismatchError, match="not possible: the recipe does not fill duplicates"):
        run(recipe(place / "lake", [FILTERS[1]]), cluster=client, apply_change=True)


@pytest.mark.parametrize(
    ("stages", "is_inside"),
    [([*DEDUP[0]], True), ([*DEDUP[0], CUTTING[2][0]], False)],
    ids=["hashes are compared", "passages are cut"],
)
def test_a_small_change_starts_no_process(
    client: Client, make: tuple[UPath, MakeRecipe], stages: list[Any], is_inside: bool
) -> None:
    place, recipe = make
    run(recipe(place / "lake", stages), cluster=client)
    changed = recipe(place / "lake", [FILTERS[-1], *stages])
    addresses: list[str] = []

    def keep_address(client: Client) -> None:
        addresses.append(client.scheduler.address)

    run(changed, apply_change=True, listener=Calls(connected=keep_address))
    assert [address.startswith("inproc://") for address in addresses] == [is_inside]
    assert digests(changed) == digests(replay(changed, place / "fresh", client))


STEPS = st.builds(
    Step,
    stages=st.lists(st.sampled_from(FILTERS), max_size=2, unique_by=lambda each: str(each)[:10]),
    position=st.integers(0, len(DEDUP) - 1),
    care=st.sampled_from(
        [
            "",
            "",
            "add a file",
            "add a file",
            "optimize",
            "lose a file",
            "strike elsewhere",
            "vacuum",
        ]
    ),
    table=st.sampled_from([*TABLES, "tokens_named"]),
    kill=st.integers(0, 16),
    is_finished=st.booleans(),
)


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(steps=st.lists(STEPS, min_size=3, max_size=5), cutting=st.sampled_from(CUTTING))
def test_chains_of_changes_with_deduplication(
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
    cutting: tuple[Any, Any],
) -> None:
    place = new_place("decisions")
    for start in range(0, 80, 20):
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", similar(start, start + 20))
    make = maker(place, tiny_tokenizer)

    def recipe(step: Step) -> Recipe:
        cuts = cutting[step.kill % 2]
        stages = [*step.stages, *DEDUP[step.position], *([] if cuts is None else [cuts])]
        return make(place / "lake", stages, named="named")

    lake = Chain(place, client, similar)
    last = recipe(steps[0])
    lake.run(last)
    for step in steps[1:]:
        lake.take_care(last, step)
        last = lake.change(last, recipe(step), step, monkeypatch)
        assert [*verify(str(last.lake))] == []
    lake.run(last)
    assert [*verify(str(last.lake))] == []
    assert digests(last) == digests(replay(last, place / "fresh", client))
