"""Decisions follow a change: a lake equals one that has run the new recipe on the same arrivals."""

from ast import literal_eval
from itertools import chain
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.verify.verify import verify
from etl.errors import MismatchError
from etl.job.change_plan import plan_change
from etl.job.plan import make_plan
from etl.job.run import run
from etl.plural import many
from tests.helpers.decisions import CUTTING, DEDUP, FILTERS, NEAR, digests, grow, replay
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Calls, Recorder
from tests.helpers.overlapping_runs import KilledError, killed_at
from tests.helpers.recipe_changes import MakeRecipe


@pytest.mark.parametrize(
    ("before", "after", "is_few"),
    [
        ([DEDUP[0]], [FILTERS[-1], DEDUP[0]], True),
        ([FILTERS[1], DEDUP[1]], [DEDUP[2]], False),
        ([DEDUP[0], CUTTING[2][0]], [DEDUP[3], CUTTING[2][1]], False),
    ],
    ids=["documents leave", "documents come, another threshold", "passages are cut"],
)
def test_decisions_follow_a_change(
    client: Client, make: tuple[UPath, MakeRecipe], before: Any, after: Any, is_few: bool
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
    arrivals, shown = (0, "the others stay") if is_few else (2, "in 2 arrivals compared again")
    assert (plan.refusals, plan.arrivals, plan.decides_few) == ((), arrivals, is_few)
    assert any(shown in line for line in plan.lines())
    told = Recorder()
    run(changed, cluster=client, apply_change=True, listener=told)
    counts = f"{many(plan.leave, 'document')} left, {plan.come:,} came"
    assert [line for line in told.lines if line.startswith(f"changed    {counts}")]
    assert is_few or plan.compared >= len(rows(changed.lake, "texts")) > 0
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
    ("before", "after", "is_inside"),
    [
        ([*DEDUP[0]], [FILTERS[-1], *DEDUP[0]], []),
        ([*DEDUP[1]], [*DEDUP[2]], [True]),
        ([*DEDUP[0], CUTTING[2][0]], [FILTERS[-1], *DEDUP[0], CUTTING[2][0]], [False]),
    ],
    ids=["affected documents", "all hashes are compared", "passages are cut"],
)
def test_a_small_change_starts_no_process(
    client: Client,
    make: tuple[UPath, MakeRecipe],
    before: list[Any],
    after: list[Any],
    is_inside: list[bool],
) -> None:
    """The affected documents are decided without Dask, all of a small lake in a thread."""
    place, recipe = make
    run(recipe(place / "lake", before), cluster=client)
    changed = recipe(place / "lake", after)
    addresses: list[str] = []

    def keep_address(client: Client) -> None:
        addresses.append(client.scheduler.address)

    run(changed, apply_change=True, listener=Calls(connected=keep_address))
    assert [address.startswith("inproc://") for address in addresses] == is_inside
    assert digests(changed) == digests(replay(changed, place / "fresh", client))
