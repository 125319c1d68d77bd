"""Every kind of damage to every kind of file of a lake is found and repaired, or answered with a command.

`make damage` runs the whole matrix; a few of its cells run with the other tests.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl.delta.table import Table
from etl.lake.leases import hold_lease
from etl.storage import normalize
from tests.damage.damages import DAMAGES, LOSSES, UNSEEN_BY_QUICK, applies, inflict
from tests.damage.history import Lakes
from tests.damage.kinds import KINDS
from tests.damage.targets import Damaged, Targets
from tests.helpers.vacuums import announce

_ALWAYS = {
    ("documents kept data", "deleted"),
    ("duplicates newest entry", "cut in half"),
    ("release", "empty"),
}
"""Cells of the matrix that `make test` runs, too."""

_COMPACTED = {
    *(
        (name, f"{lost} lost")
        for name in ("complete", "between")
        for lost in ("log of documents", "table documents", "all tables but documents")
    ),
    ("between", "entries of documents lost"),
    *(("between", f"newest {count} entries of all tables lost") for count in (1, 2, 4)),
}
"""Losses after which not all rows of the Delta table have the addresses that a single run gives them.

A single run reads the files of its compaction, and a repair follows older files that the log still names.
"""

_MOST_FILES = 16  # of a kind


def _cells() -> Iterator[Any]:
    for kind in KINDS:
        for damage in DAMAGES:
            if applies(damage, kind):
                marks = () if (kind, damage) in _ALWAYS else pytest.mark.chaos
                yield pytest.param(kind, damage, marks=marks, id=f"{kind}-{damage}")


def _is_quick(kind: str, damage: str) -> bool:
    """Return whether to check that ``etl verify --quick`` finds the damage, for some kinds of it."""
    is_unseen = kind.endswith(" data") and damage in UNSEEN_BY_QUICK
    return damage in ("deleted", "bit 1", "swapped") and not is_unseen


def test_every_file_of_a_lake_is_of_a_known_kind(targets: Targets) -> None:
    assert set(targets.kinds_of("complete")) ^ {*KINDS} == set()


@pytest.mark.parametrize(("kind", "damage"), [*_cells()])
def test_damage(check_case, targets: Targets, seed: int, kind: str, damage: str) -> None:
    rng = random.Random(f"{seed}-{kind}-{damage}")

    def inflict_it(lake: Damaged) -> bool:
        return inflict(damage, targets.choose(lake, kind, damage, rng), rng)

    check_case(kind, damage, inflict_it, is_quick=_is_quick(kind, damage))


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(_MOST_FILES))
@pytest.mark.parametrize("kind", [k for k in KINDS if k.endswith((" live data", " kept data"))])
def test_each_file_lost(check_case, targets: Targets, kind: str, number: int) -> None:
    """Which file it is matters: it may hold keepers of earlier or of later files."""

    def lose(lake: Damaged) -> bool:
        files = targets.kinds_of("complete")[kind]
        if number < len(files):
            (lake.folder / files[number]).unlink()
        return number < len(files)

    check_case(kind, f"file {number} lost", lose)


@pytest.mark.chaos
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["complete", "reading", "between"])
def test_loss(check_case, name: str, loss: str) -> None:
    def lose(lake: Damaged) -> bool:
        return LOSSES[loss](lake.folder)

    # Without values, the newest versions that are lost look like work that was never done.
    check_case(
        "several files",
        loss,
        lose,
        lake_name=name,
        is_quick="newest" not in loss,
        is_moved=(name, loss) in _COMPACTED,
    )


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("name", ["reading", "between"])
def test_damage_in_a_killed_run(
    check_case, targets: Targets, seed: int, name: str, number: int
) -> None:
    rng = random.Random(f"{seed}-{name}-{number}")
    kind = rng.choice(sorted(targets.kinds_of(name)))
    damage = rng.choice([damage for damage in DAMAGES if applies(damage, kind)])

    def inflict_it(lake: Damaged) -> bool:
        return inflict(damage, targets.choose(lake, kind, damage, rng), rng)

    is_quick = _is_quick(kind, damage)
    check_case(kind, f"{damage} #{number}", inflict_it, lake_name=name, is_quick=is_quick)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(40))
def test_a_lost_entry_and_another_damaged_file(
    check_case, targets: Targets, seed: int, number: int
) -> None:
    rng = random.Random(f"{seed}-two-{number}")
    entry = rng.choice([kind for kind in KINDS if kind.endswith(" entry")])
    kind = rng.choice([kind for kind in KINDS if kind.endswith((" data", " checkpoint"))])
    damage = rng.choice([damage for damage in DAMAGES if applies(damage, kind)])

    def inflict_both(lake: Damaged) -> bool:
        first = targets.choose(lake, entry, "deleted", rng)
        second = targets.choose(lake, kind, damage, rng)
        return inflict(damage, second, rng) and inflict("deleted", first, rng)

    check_case(f"{entry} deleted", f"{kind} {damage} #{number}", inflict_both, is_quick=False)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(30))
def test_damage_beside_a_vacuum_that_died(
    check_case, targets: Targets, seed: int, number: int
) -> None:
    """A vacuum that has announced what it will delete was killed; then a file is damaged."""
    rng = random.Random(f"{seed}-vacuum-{number}")
    kind, damage = _choose(rng)

    def inflict_it(lake: Damaged) -> bool:
        with hold_lease(str(lake.folder), "vacuum") as lease:
            for name in rng.sample(("documents", "texts", "duplicates", "keys", "tokens"), 2):
                url = normalize(lake.folder / name)
                announce(url, lease, last=Table.open(url).version - 1)
        return inflict(damage, targets.choose(lake, kind, damage, rng), rng)

    check_case(kind, f"{damage} beside a vacuum #{number}", inflict_it, is_quick=False)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(30))
def test_damage_after_the_input_was_moved(
    check_case, lakes: Lakes, targets: Targets, seed: int, number: int, tmp_path: Path
) -> None:
    """All input files have other names before the lake is repaired: no row is lost or read twice."""
    rng = random.Random(f"{seed}-moved-{number}")
    kind, damage = _choose(rng)

    def inflict_it(lake: Damaged) -> bool:
        return inflict(damage, targets.choose(lake, kind, damage, rng), rng)

    check_case(
        kind,
        f"{damage} and moved input #{number}",
        inflict_it,
        recipe=lakes.move_input(tmp_path / "moved", tmp_path / "lake"),
        is_quick=False,
        is_moved=True,
    )


def _choose(rng: random.Random) -> tuple[str, str]:
    """Return a kind of file and a damage that applies to it."""
    kind = rng.choice(KINDS)
    return kind, rng.choice([damage for damage in DAMAGES if applies(damage, kind)])
