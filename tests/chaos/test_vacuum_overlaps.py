"""A vacuum overlaps the jobs that make files needed again, or is stopped while they run: nothing is lost.

The lake is hours old, and has files that no version of the last hour needs: files of replaced rows, which a
release of an old version needs, and files of rows that another engine has removed, which a repair adds
again. The input file of these rows is gone, so that no run can read them again.
"""

import random
import time
from collections import Counter
from itertools import count

import pytest

from tests.chaos import foreign
from tests.chaos.drivers import Driver
from tests.chaos.oracle import check_complete, check_releases, settle
from tests.chaos.pauses import Ended, Kind, Paused, Stop
from tests.chaos.processes import DONE
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import Text, rows

_SHARES = 8
"""The tests over which the operations of a job are divided."""

_LIFETIME_SECONDS = 2.0  # of a lease that expires while its vacuum is stopped
_REMOVALS = (foreign.delete_files, foreign.delete_rows, foreign.delete_all, foreign.overwrite)
_IDS = ["a-0", "a-1", "a-2", "b-0", "b-1"]


@pytest.mark.chaos
@pytest.mark.parametrize("share", range(_SHARES))
@pytest.mark.parametrize("kinds", [("vacuum", "repair"), ("repair", "vacuum")], ids=" ".join)
def test_a_vacuum_keeps_what_a_repair_adds_again(
    kinds: tuple[Kind, Kind],
    share: int,
    small: SmallSite,
    first: Driver,
    second: Driver,
    faults: Counter[str],
) -> None:
    make_old(small, first)
    for number in count(share, _SHARES):
        start(small, random.Random(f"{kinds} {number}"), is_changed=True)
        answer = first.start(kinds[0], small, Stop("driver", number))
        ended = second.run(kinds[1], small)
        print(f"{number}: {answer}, {ended}")  # noqa: T201
        if isinstance(answer, Paused):
            first.resume()
        check_kept(small, second)
        if isinstance(answer, Ended):
            break
        faults["pauses"] += 1


@pytest.mark.parametrize(
    "share", [pytest.param(k, marks=pytest.mark.chaos) for k in range(_SHARES)]
)
@pytest.mark.parametrize("is_expired", [False, True], ids=["alive", "expired"])
@pytest.mark.parametrize("kind", ["repair", "release", "vacuum"])
def test_a_stopped_vacuum_deletes_nothing_that_is_needed(  # noqa: PLR0913 - fixtures
    kind: Kind,
    share: int,
    small: SmallSite,
    first: Driver,
    second: Driver,
    faults: Counter[str],
    *,
    is_expired: bool,
) -> None:
    make_old(small, first)
    lifetime_s = _LIFETIME_SECONDS if is_expired else None
    for number in count(share + is_expired * _SHARES, 2 * _SHARES):
        start(small, random.Random(f"{kind} {number}"), is_changed=kind == "repair")
        stop = Stop("driver", number)
        answer = first.start("vacuum", small, stop, lifetime_s=lifetime_s)
        if isinstance(answer, Ended):
            break
        with first.stopped():
            time.sleep(_LIFETIME_SECONDS if is_expired else 0)
            ended = second.run(kind, small, lifetime_s=lifetime_s)
        print(f"{number}: {answer}, {ended}, {first.resume()}")  # noqa: T201
        check_kept(small, second)
        faults["stopped vacuums"] += 1


def make_old(small: SmallSite, driver: Driver) -> None:
    """Make a lake that is hours old, in which the rows of one of two files were replaced."""
    small.write("a.parquet", rows("old", [Text(1), Text(2), Text(5)]))
    small.write("b.jsonl", rows("b", [Text(3), Text(4)]))
    settle(small, driver)
    assert driver.run("shuffle", small).code == DONE
    small.write("a.parquet", rows("a", [Text(1), Text(2), Text(6)]))
    settle(small, driver)
    small.age(2)
    small.save("start")


def start(small: SmallSite, rng: random.Random, *, is_changed: bool) -> None:
    """Restore the lake; ``is_changed``: another engine removed rows hours ago, and an input file is gone."""
    small.restore("start")
    if is_changed:
        table = small.lake / rng.choice(("documents", "tokens"))
        assert foreign.apply(rng.choice(_REMOVALS), table, rng)
        small.age(2)
        small.delete("a.parquet")


def check_kept(small: SmallSite, driver: Driver) -> None:
    """Check that all releases and all rows are there, including rows of the deleted file."""
    check_releases(small)
    settle(small, driver)
    check_complete(small, _IDS)
