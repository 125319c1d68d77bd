"""Every kind of damage to every kind of file of a lake is found and repaired, or reported with a command.

`make damage` runs the whole matrix; a few of its cells run with the other tests.
"""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.damage.damages import DAMAGES, LOSSES, UNSEEN_BY_QUICK, Target, applies, inflict
from tests.damage.history import Lakes
from tests.damage.kinds import KINDS, files_by_kind

_ALWAYS = {
    ("documents kept data", "deleted"),
    ("tokens live data", "bit 1"),
    ("keys live data", "empty"),
    ("documents append entry", "deleted"),
    ("duplicates newest entry", "cut in half"),
    ("tokens newest checkpoint", "zeros"),
    ("documents _last_checkpoint", "empty"),
    ("release", "empty"),
    ("lease of a dead job", "random"),
}
"""Cells of the matrix that `make test` runs, too."""

_VARIANT_DAMAGES = ("deleted", "empty", "cut in half", "bit 1", "zeros", "swapped")


def _cells():
    for kind in KINDS:
        for damage in DAMAGES:
            if applies(damage, kind):
                marks = () if (kind, damage) in _ALWAYS else pytest.mark.chaos
                yield pytest.param(kind, damage, marks=marks, id=f"{kind}-{damage}")


@pytest.fixture(scope="session")
def kinds_of(lakes: Lakes, expected) -> Callable[[str], dict[str, list[str]]]:
    """Return a function that gives the files of a lake by kind."""

    @cache
    def of(name: str) -> dict[str, list[str]]:
        if name == "at_once":
            expected(name)  # makes it
        return files_by_kind(lakes.folder_of(name))

    return of


def test_every_file_of_a_lake_is_of_a_known_kind(kinds_of) -> None:
    assert sorted(kinds_of("complete")) == sorted(KINDS)


def _is_quick(kind: str, damage: str) -> bool:
    """Return whether to check that ``etl verify --quick`` finds the damage."""
    return damage in ("deleted", "bit 1", "swapped") and not (
        kind.endswith(" data") and damage in UNSEEN_BY_QUICK
    )


@pytest.mark.parametrize(("kind", "damage"), [*_cells()])
def test_damage(check_case, kinds_of, lakes, seed: int, kind: str, damage: str) -> None:
    rng = random.Random(f"{seed}-{kind}-{damage}")
    check_case(
        kind,
        damage,
        lambda lake: inflict(damage, _target(lakes, lake, "complete", kinds_of, kind, damage, rng), rng),
        is_quick=_is_quick(kind, damage),
    )


@pytest.mark.chaos
@pytest.mark.parametrize("loss", LOSSES)
def test_loss(check_case, loss: str) -> None:
    def lose(lake: Path) -> bool:
        LOSSES[loss](lake)
        return True

    check_case("complete", loss, lose)


@pytest.mark.chaos
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("variant", ["reading", "between"])
def test_loss_in_a_killed_run(check_case, variant: str, loss: str) -> None:
    def lose(lake: Path) -> bool:
        before = sorted(lake.rglob("*"))
        try:
            LOSSES[loss](lake)
        except FileNotFoundError:
            return False
        return sorted(lake.rglob("*")) != before

    check_case("all", loss, lose, lake_name=variant)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("variant", ["reading", "between"])
def test_damage_in_a_killed_run(check_case, kinds_of, lakes, seed: int, variant: str, number: int) -> None:
    rng = random.Random(f"{seed}-{variant}-{number}")
    kind = rng.choice(sorted(kinds_of(variant)))
    damage = rng.choice([damage for damage in DAMAGES if applies(damage, kind)])
    check_case(
        kind,
        f"{damage} #{number}",
        lambda lake: inflict(damage, _target(lakes, lake, variant, kinds_of, kind, damage, rng), rng),
        lake_name=variant,
        is_quick=_is_quick(kind, damage),
    )


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(40))
def test_two_damages(check_case, kinds_of, lakes, seed: int, number: int) -> None:
    """A log entry is lost, and another file is damaged."""
    rng = random.Random(f"{seed}-two-{number}")
    entry = rng.choice([kind for kind in KINDS if kind.endswith(" entry")])
    kind = rng.choice([kind for kind in KINDS if kind.endswith((" data", " checkpoint"))])
    damage = rng.choice([damage for damage in DAMAGES if applies(damage, kind)])

    def damage_both(lake: Path) -> bool:
        second = _target(lakes, lake, "complete", kinds_of, kind, damage, rng)
        first = _target(lakes, lake, "complete", kinds_of, entry, "deleted", rng)
        return inflict(damage, second, rng) and inflict("deleted", first, rng)

    check_case(f"{entry} deleted", f"{kind} {damage} #{number}", damage_both)


def _target(lakes: Lakes, lake: Path, name: str, kinds_of, kind: str, damage: str, rng: random.Random) -> Target:
    """Choose a file of a kind in a copy of a lake, and files that may take its place."""
    kinds = kinds_of(name)
    path = rng.choice(kinds[kind])
    table, _, rest = kind.partition(" ")
    suffix = kind.rpartition(" ")[2]
    same = [p for k, ps in kinds.items() if k.endswith(f" {suffix}") and k.startswith(f"{table} ") for p in ps if p != path]
    others = [p for k, ps in kinds.items() if k.endswith(f" {suffix}") and not k.startswith(f"{table} ") for p in ps]
    if kind in ("orphan data", "live lease", "lease of a dead job"):
        same = [p for p in others if p != path] or same
    replacements: dict[str, Path] = {}
    if others:
        replacements["other table"] = lake / rng.choice(others)
    older = lakes.folder_of("older") / path
    if older.exists():
        replacements["older"] = older
    if damage == "other lake":
        twin = lakes.folder_of("at_once")
        twins = [p for k, ps in kinds_of("at_once").items() if k.endswith(f" {suffix}") and k.partition(" ")[0] == table for p in ps]
        if (twin / path).exists():
            twins = [path]
        if twins:
            replacements["other lake"] = twin / rng.choice(twins)
    return Target(lake, path, same, replacements)
