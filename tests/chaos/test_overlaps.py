"""Two jobs overlap while the input files change: no text is lost, and none is there twice.

The jobs are paused before their storage operations, so an interleaving is exact and repeatable. Overlaps that
once did harm always run, as do a few random ones; many random ones, and the pause of a job before each of
its operations, with ``make chaos``.
"""

import random
from collections import Counter
from itertools import count, product

import pytest

from tests.chaos.drivers import Driver
from tests.chaos.oracle import check_complete, check_sound, settle
from tests.chaos.overlap import TABLES, Overlap, random_overlap, random_site, run_overlap
from tests.chaos.pauses import Kind, Paused, Stop
from tests.chaos.processes import DONE
from tests.chaos.seeds import MANY
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import Rows, Text, rows

_LISTING = Stop("driver", 0, "list_pattern raw")
_PLANNED = Stop("driver", 0, "write_bytes leases")
_READ = Stop("driver", 0, "create_if_absent documents")

_FIRST: tuple[Kind, ...] = (
    "plain",
    "replace_changed",
    "rebuild",
    "repair",
    "optimize",
    "vacuum",
    "shuffle",
)
_SECOND: tuple[Kind, ...] = ("plain", "replace_changed", "rebuild", "repair", "optimize", "shuffle")
_PAIRS = [
    *product(_FIRST, _SECOND),
    *((first, "vacuum") for first in (*_FIRST, "release")),
    ("vacuum", "release"),
]
_VACUUM_STEP = 4
"""One in so many operations beside a vacuum is interrupted; all critical ones in ``test_vacuum_overlaps``."""

_SHARES = 8
"""The tests over which the operations of a job are divided."""


def content(name: str, *families: int) -> Rows:
    return rows(name, [Text(family) for family in families])


@pytest.mark.slow
def test_a_file_is_rewritten_between_the_plans_of_two_runs(small, first, second) -> None:
    small.write("a.parquet", content("old", 1, 2, 3))
    small.write("b.jsonl", content("b", 3, 4, 5))
    assert isinstance(first.start("plain", small, _LISTING), Paused)
    second.run("plain", small)
    small.write("a.parquet", content("new", 6, 7, 8))
    first.resume()
    check_sound(small)
    settle(small, second)
    check_complete(small)


@pytest.mark.slow
def test_two_replacements_overlap(small, first, second) -> None:
    small.stages = "fused"
    small.write("a.parquet", content("old", 1, 2, 3))
    small.write("b.jsonl", content("b", 4, 5))
    first.run("plain", small)
    small.write("a.parquet", content("new", 6, 7, 8))
    assert isinstance(first.start("replace_changed", small, _READ), Paused)
    small.write("a.parquet", content("newest", 9, 10, 11))
    assert isinstance(second.start("replace_changed", small, _PLANNED), Paused)
    first.resume()
    check_sound(small)
    second.resume()
    settle(small, second)
    check_complete(small)


def test_a_run_overlaps_the_replacement_of_a_keeper(small, first, second) -> None:
    small.write("a.parquet", content("old", 1, 2, 3))
    first.run("plain", small)
    small.write("b.jsonl", content("b", 1, 4))
    assert isinstance(first.start("plain", small, _PLANNED), Paused)
    small.write("a.parquet", content("new", 6, 7, 8))
    assert isinstance(second.start("replace_changed", small, _READ), Paused)
    first.resume()
    second.resume()
    settle(small, second)
    check_complete(small)


def test_a_file_is_rewritten_while_its_records_are_counted(small, first) -> None:
    small.write("a.jsonl", content("old", 1, 2, 3, 4))
    assert isinstance(first.start("plain", small, Stop("worker", 0, "open_input raw")), Paused)
    small.write("a.jsonl", content("new", 5, 6, 7))
    first.resume()
    settle(small, first)
    check_complete(small)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "table"),
    [
        (("shuffle", "replace_changed"), "tokens_shuffled"),
        (("replace_changed", "shuffle"), "documents"),
        (("replace_changed", "shuffle"), "tokens"),
    ],
)
def test_a_shuffle_overlaps_a_run(
    small, first, second, jobs: tuple[Kind, Kind], table: str
) -> None:
    small.write("a.parquet", content("old", 1, 2, 3))
    small.write("b.jsonl", content("b", 3, 4))
    second.run("plain", small)
    if jobs[0] != "shuffle":
        second.run("shuffle", small)
    small.write("a.parquet", content("new", 6, 7, 8))
    stop = Stop("driver", 0, f"create_if_absent {table}")
    assert isinstance(first.start(jobs[0], small, stop), Paused)
    second.run(jobs[1], small)
    first.resume()
    check_sound(small)
    settle(small, second)
    check_complete(small)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.chaos), *MANY])
def test_random_overlaps_do_no_harm(
    seed: int, small: SmallSite, first: Driver, second: Driver, faults: Counter[str]
) -> None:
    rng = random.Random(f"overlap {seed}")
    random_site(small, rng, second)
    overlap = random_overlap(rng)
    print(f"{seed}: {overlap}")  # noqa: T201
    run_overlap(overlap, small, (first, second), rng)
    faults["overlaps"] += 1


@pytest.mark.chaos
@pytest.mark.parametrize("share", range(_SHARES))
@pytest.mark.parametrize("kinds", _PAIRS, ids=" ".join)
def test_a_pause_before_any_operation_does_no_harm(
    kinds: tuple[Kind, Kind],
    share: int,
    small: SmallSite,
    first: Driver,
    second: Driver,
    faults: Counter[str],
) -> None:
    start_site(small, first, is_read="shuffle" in kinds, is_old="vacuum" in kinds)
    step = _VACUUM_STEP if "vacuum" in kinds else 1
    for number in count(share * step + _PAIRS.index(kinds) % step, _SHARES * step):
        small.restore("start")
        rng = random.Random(f"{kinds} {number}")
        overlap = Overlap(
            kinds=kinds,
            stops=(Stop("driver", number), None),
            edits=((), ["rewrite"], [], []) if number % 2 else ((), [], ["rewrite"], []),
            damage=rng.choice(TABLES) if "repair" in kinds else None,
        )
        print(overlap)  # noqa: T201
        if not run_overlap(overlap, small, (first, second), rng):
            break
        faults["pauses"] += 1


@pytest.mark.chaos
@pytest.mark.parametrize("share", range(_SHARES))
@pytest.mark.parametrize("kind", _FIRST)
def test_a_kill_before_any_operation_does_no_harm(
    kind: Kind,
    share: int,
    small: SmallSite,
    first: Driver,
    second: Driver,
    faults: Counter[str],
) -> None:
    start_site(small, first, is_read=kind == "shuffle", is_old=kind == "vacuum")
    for number in count(share, _SHARES):
        small.restore("start")
        rng = random.Random(f"{kind} {number}")
        overlap = Overlap(
            kinds=(kind, "plain"),
            stops=(Stop("driver", number), None),
            edits=(["rewrite"], [], [], []) if kind == "replace_changed" else ((), (), (), ()),
            damage=rng.choice(TABLES) if kind == "repair" else None,
            is_killed=True,
        )
        print(overlap)  # noqa: T201
        if not run_overlap(overlap, small, (first, second), rng):
            break
        faults["kills"] += 1


def start_site(small: SmallSite, driver: Driver, *, is_read: bool, is_old: bool) -> None:
    """Make a lake of two files with a common text, and a third one, not shuffled and maybe not read.

    ``is_old``: it is hours old, and has files of replaced rows, which a vacuum deletes.
    """
    if is_old:
        small.write("a.parquet", rows("old", [Text(5), Text(2), Text(3)]))
        settle(small, driver)
    small.write("a.parquet", rows("a", [Text(1), Text(2), Text(3), Text(1)]))
    small.write("b.jsonl", rows("b", [Text(1), Text(2, 1), Text(4)]))
    settle(small, driver)
    assert driver.run("shuffle", small).code == DONE
    small.write("c.parquet", rows("c", [Text(3), Text(5)]))
    if is_read:
        driver.run("plain", small)
    if is_old:
        small.age(2)
    small.save("start")
