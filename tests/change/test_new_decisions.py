"""Only the documents that a change affects are decided again, with the result of deciding on all."""

from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pytest
from distributed import Client
from numpy.typing import NDArray
from upath import UPath

from etl.audit.verify.verify import verify
from etl.change import new_decisions
from etl.change.decided_documents import DecidedDocuments
from etl.change.kept_decisions import keeps_others
from etl.change.kept_documents import kept_documents
from etl.dedup import candidates, key_index
from etl.dedup.affected import find_affected
from etl.dedup.decide_again import decide_again
from etl.dedup.new_keys import NewKeys
from etl.dedup.numbered_files import file_of
from etl.errors import CollapseError
from etl.job.run import run
from etl.lake.recipe_ledgers import open_all_ledgers
from etl.lake.work_units import arrived_units
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.damage import delete, paths
from tests.helpers.decisions import DEDUP, FILTERS, digests, grow, replay
from tests.helpers.listeners import Calls
from tests.helpers.recipe_changes import MakeRecipe


def decided(recipe: Recipe) -> tuple[DecidedDocuments, NDArray[np.int64]]:
    """Return the documents of a lake, and the arrival of each unit of work."""
    ledgers = open_all_ledgers(recipe)
    texts = ledgers["texts"]
    units = [*arrived_units(texts, ledgers["duplicates"])]
    units.sort(key=lambda unit: unit.arrival)
    documents = ledgers["documents"].table
    assert documents is not None
    lake = DecidedDocuments.of(recipe, ledgers, units, kept_documents(documents))
    return lake, np.array([unit.arrival for unit in units], np.int64)


@pytest.mark.parametrize("stages", DEDUP)
@pytest.mark.parametrize("best", [64, 2])
def test_all_documents_are_decided_as_by_the_passes(
    client: Client,
    make: tuple[UPath, MakeRecipe],
    monkeypatch: pytest.MonkeyPatch,
    stages: tuple[Any, ...],
    best: int,
) -> None:
    """Decisions and keys in memory are the rows of the tables, also where a key has too many documents."""
    monkeypatch.setattr(candidates, "_MAX_BEST", best)
    place, recipe = make
    old = recipe(place / "lake", stages)
    grow(place, old, client)
    lake, arrivals = decided(old)
    documents = lake.source.read(lake.live)
    assert arrivals.max() == 2
    pairs = decide_again(documents, arrivals[file_of(documents.addresses)], lake.source)
    columns = [*pairs.columns]
    found = pl.DataFrame({name: pairs[name].to_numpy() for name in columns})
    expected = lake.decisions.select(columns)
    assert found.sort("document").equals(expected.sort("document"))
    assert found.height > 5
    keys = NewKeys.of(documents, pairs)
    stored = [lake.index.of_kind(kind) for kind in ("exact", "near", "near_dropped")]
    assert sorted(zip(keys.keys, keys.documents, keys.kinds, strict=True)) == sorted(
        chain.from_iterable(zip(r.keys, r.documents, r.kinds, strict=True) for r in stored)
    )


def test_documents_are_affected_through_keys_and_keepers(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever document leaves, all that are connected with it are found, and no others."""
    place, recipe = make
    old = recipe(place / "lake", DEDUP[1])
    grow(place, old, client)
    lake, _ = decided(old)
    documents = lake.source.read(lake.live)
    same = connected(lake)
    assert 1 < len(same) < len(lake.live)
    for held in (1 << 20, 0):
        monkeypatch.setattr(key_index, "_MAX_HELD", held)
        for address in documents.addresses[::9].tolist():
            left = lake.live[lake.live != address]
            affected = find_affected(left, lake.links, lake.index, lake.source, 10**9)
            assert affected is not None
            (expected,) = (group for group in same if address in group)
            assert set(affected.addresses.tolist()) == expected
            assert {*affected.rows.documents.tolist()} <= expected
            few = len(expected) - 2
            found = find_affected(left, lake.links, lake.index, lake.source, max(few, 0))
            assert (found is None) == (few >= 0)


def connected(lake: DecidedDocuments) -> list[set[int]]:
    """Return the sets of documents that are connected by equal keys, and by their keepers."""
    groups = {address: {address} for address in lake.live.tolist()}

    def join(one: int, other: int) -> None:
        joined = groups[one] | groups[other]
        groups.update(dict.fromkeys(joined, joined))

    for kinds in (("exact",), ("near", "near_dropped")):
        first: dict[int, int] = {}
        for rows in map(lake.index.of_kind, kinds):
            for key, document in zip(rows.keys.tolist(), rows.documents.tolist(), strict=True):
                join(first.setdefault(key, document), document)
    for document, keeper in zip(*(each.tolist() for each in lake.links), strict=True):
        join(document, keeper)
    return [*{id(group): group for group in groups.values()}.values()]


@pytest.mark.parametrize("limits", [{}, {"_FEW": 0}, {"_MAX_DOCUMENTS": 1}])
def test_if_many_documents_are_affected_all_are_compared(
    client: Client,
    make: tuple[UPath, MakeRecipe],
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
) -> None:
    place, recipe = make
    grow(place, recipe(place / "lake", DEDUP[1]), client)
    changed = recipe(place / "lake", [FILTERS[-1], *DEDUP[1]])
    for name, value in limits.items():
        monkeypatch.setattr(new_decisions, name, value)
    clients: list[Client] = []
    run(changed, apply_change=True, listener=Calls(connected=clients.append))
    assert len(clients) == bool(limits)
    assert digests(changed) == digests(replay(changed, place / "fresh", client))


def test_the_guard_looks_at_new_duplicates(client: Client, make: tuple[UPath, MakeRecipe]) -> None:
    """Documents that come, and of which nearly all are duplicates, stop the change."""
    place, recipe = make
    guard = {"max_share": 0.5, "min_documents": 5}
    few = {"where": {"keep": "id LIKE '%0'"}}
    run(recipe(place / "lake", [few, *DEDUP[1]], guard=guard), cluster=client)
    changed = recipe(place / "lake", DEDUP[1], guard=guard)
    with pytest.raises(CollapseError):
        run(changed, cluster=client, apply_change=True)
    accepted = changed.model_copy(
        update={"guard": changed.guard.model_copy(update={"max_share": 1})}
    )
    run(accepted, cluster=client)
    assert digests(accepted) == digests(replay(accepted, place / "fresh", client))


def test_dropped_documents_that_are_read_again_count_for_others(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    """Until a run has read them, all documents are compared; files that are gone for good do not matter."""
    place, recipe = make
    old = recipe(place / "lake", DEDUP[1])
    grow(place, old, client)

    def is_few() -> bool:
        return keeps_others(old, open_all_ledgers(old))

    assert is_few()
    delete(paths(old, "documents")[0])
    assert repair(str(old.lake), drop=True).left == []
    assert not is_few()
    run(old, cluster=client)
    assert is_few()
    (place / "corpus" / "030.jsonl").unlink()
    run(old, cluster=client, drop_missing=True)
    assert is_few()
    changed = recipe(place / "lake", [FILTERS[-1], *DEDUP[1]])
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []
    assert digests(changed) == digests(replay(changed, place / "fresh", client))
