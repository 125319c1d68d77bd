"""Another engine changes the tables of a lake, between runs and during runs.

The next run accepts a harmless change. It refuses any other with an error that names the table; `etl repair`
undoes it, and the run after that gives the rows of an undisturbed lake.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import foreign
from tests.chaos.drivers import Driver
from tests.chaos.oracle import check_complete, settle
from tests.chaos.overlap import random_site, random_stop
from tests.chaos.pauses import Paused
from tests.chaos.processes import DONE, FAILED
from tests.chaos.seeds import MANY
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import EDITS, Text, rows

pytestmark = pytest.mark.chaos  # tests/job/test_foreign_changes.py has those that always run

_TABLES = ("documents", "duplicates", "keys", "tokens")


def cases(operations: Sequence[foreign.Operation]) -> list[Any]:
    """Return each operation with each table."""
    return [
        pytest.param(operation, table, id=f"{operation.__name__} {table}")
        for operation in operations
        for table in _TABLES
    ]


@pytest.fixture(scope="module")
def saved(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path, both: tuple[Driver, Driver]
) -> SmallSite:
    """A site with a lake of two runs over three files, and a fourth file that it does not have yet."""
    site = SmallSite(tmp_path_factory.mktemp("foreign"), tiny_tokenizer)
    site.clear()
    site.write("a.parquet", rows("a", [Text(1), Text(2), Text(3), Text(1)]))
    site.write("b.jsonl", rows("b", [Text(1), Text(2, 1), Text(4)]))
    settle(site, both[0])
    site.write("c.parquet", rows("c", [Text(3), Text(5)]))
    settle(site, both[0])
    site.write("d.jsonl", rows("d", [Text(3), Text(6)]))
    site.save("saved")
    return site


@pytest.fixture
def lake(saved: SmallSite) -> SmallSite:
    saved.restore("saved")
    return saved


@pytest.mark.parametrize(("operation", "table"), cases(foreign.HARMLESS))
def test_a_harmless_change_is_accepted(operation, table, lake, first, faults) -> None:
    assert foreign.apply(operation, lake.lake / table, random.Random(1))
    faults["changes by another engine"] += 1
    ended = first.run("plain", lake)
    assert ended.code == DONE, ended.output
    check_complete(lake)


@pytest.mark.parametrize(("operation", "table"), cases(foreign.CHANGES))
def test_a_change_of_data_is_refused_and_repaired(operation, table, lake, first, faults) -> None:
    if not foreign.apply(operation, lake.lake / table, random.Random(1)):
        pytest.skip("the operation changes nothing in this table")
    faults["changes by another engine"] += 1
    ended = first.run("plain", lake)
    if table != "keys":  # the next run rebuilds it
        assert ended.code == FAILED, ended.output
        assert f"lake/{table}" in ended.output
    settle(lake, first)
    check_complete(lake)


def test_a_repair_forgets_what_was_changed_before_a_rebuild(lake, first, faults) -> None:
    rng = random.Random(1)
    assert foreign.apply(foreign.compact_and_vacuum, lake.lake / "tokens", rng)
    assert first.run("rebuild", lake).code == DONE
    assert foreign.apply(foreign.delete_files, lake.lake / "tokens", rng)
    faults["changes by another engine"] += 2
    settle(lake, first)
    check_complete(lake)


@pytest.mark.parametrize(("operation", "table"), cases(foreign.WITHOUT_TRACE))
def test_a_change_that_leaves_no_trace_does_no_harm(operation, table, lake, first, faults) -> None:
    foreign.apply(operation, lake.lake / table, random.Random(1))
    faults["changes by another engine"] += 1
    settle(lake, first)
    check_complete(lake)


@pytest.mark.parametrize(("operation", "table"), cases(foreign.PROTOCOL))
def test_a_change_of_the_protocol_is_refused(operation, table, lake, first, faults) -> None:
    assert foreign.apply(operation, lake.lake / table, random.Random(1))
    faults["changes by another engine"] += 1
    ended = first.run("plain", lake)
    assert ended.code == FAILED, ended.output
    assert f"lake/{table}" in ended.output


@pytest.mark.parametrize("seed", [0, *MANY])
def test_changes_during_runs_lose_and_duplicate_nothing(
    seed: int, small: SmallSite, first: Driver, second: Driver, faults: Counter[str]
) -> None:
    rng = random.Random(f"foreign {seed}")
    random_site(small, rng, second)
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.5:
            small.edit(rng.choice([edit for edit in EDITS if edit != "delete"]), rng)
        kind = rng.choice(("plain", "plain", "replace_changed", "optimize", "rebuild"))
        answer = first.start(kind, small, random_stop(rng))
        operation = rng.choice((*foreign.CHANGES, *foreign.WITHOUT_TRACE, *foreign.HARMLESS))
        table = rng.choice(_TABLES)
        has_changed = foreign.apply(operation, small.lake / table, rng)
        print(f"{kind} at {answer}: {operation.__name__} {table}: {has_changed}")  # noqa: T201
        faults["changes by another engine"] += has_changed
        if isinstance(answer, Paused):
            first.resume()
    settle(small, second)
    check_complete(small)
