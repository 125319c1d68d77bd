"""Whatever fails, and whenever: the job run again till it is done leaves what an undisturbed run does.

A case is four faults, one for each file that comes in: see ``schedule``. A dozen are run always, those of a
store that fails by ``make test-slow``, the many by ``make chaos``, and those of one seed by ``make chaos
SEED=123``. A seed says what happens and after how many files; what the processes do beside each other at
that moment is not in its hands.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl.job.quarantine import Quarantine
from tests.chaos import corpus
from tests.chaos.checks import Outcome, differences, outcome
from tests.chaos.place import Place
from tests.chaos.processes import DONE, PUT_ASIDE, TOLD
from tests.chaos.runner import Blow, Machines, Outage, is_commit, machines
from tests.chaos.schedule import Case, Fault, case
from tests.proxy import Proxy, faulty

_MANY = [int(os.environ["CHAOS_SEED"])] if os.environ.get("CHAOS_SEED") else range(3, 33)
MANY = [pytest.param(seed, marks=pytest.mark.chaos) for seed in _MANY]
_STALL_SECONDS = 2.0

Undisturbed = tuple[Outcome, int]
"""What stands in the tables after one run over all files, and how many files that writes."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Processes for lakes of this machine."""
    with machines(tmp_path_factory.mktemp("machines") / "logs", {}) as running:
        yield running


@dataclass(frozen=True)
class Remote:
    """A place on S3, and processes that reach it through a proxy of their own."""

    place: Place
    endpoint: str

    @contextmanager
    def machines(self) -> Iterator[tuple[Machines, Proxy]]:
        known = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        with faulty(self.endpoint, lambda _: None, stall_s=_STALL_SECONDS) as proxy:
            environment = {**known, "AWS_ENDPOINT_URL": proxy.endpoint}
            with machines(self.place.folder / "logs", environment) as running:
                yield running, proxy


@pytest.fixture
def remote(s3: str, s3_endpoint: str, tmp_path: Path, tiny_tokenizer: Path) -> Remote:
    return Remote(Place(tmp_path, s3, tiny_tokenizer), s3_endpoint)


@pytest.fixture(scope="module")
def undisturbed(
    running: Machines, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path
) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    place = Place(folder, str(folder), tiny_tokenizer)
    for name in corpus.RECORDS:
        place.bring(name)
    assert running.run(place.file) == DONE
    return outcome(place.recipe, corpus.RECORDS), place.written()


def test_the_undisturbed_result_has_everything(undisturbed: Undisturbed) -> None:
    found, _ = undisturbed
    assert {row["kind"] for row in found["duplicates"]} == {"exact", "near"}
    reasons = {"gopher_quality.short", "source.null_text", "source.empty_text", None}
    assert {row["reason"] for row in found["documents"]} == reasons


def test_a_scheduler_that_is_lost_is_told(running, tmp_path, tiny_tokenizer) -> None:
    place = Place(tmp_path, str(tmp_path), tiny_tokenizer)
    place.bring("a.parquet")
    blow = Blow(Fault("kill", 0, "scheduler"), running, after=3)
    assert running.run(place.file, lambda: blow.at(place.written())) == TOLD
    assert "the scheduler was lost" in running.told()


@pytest.mark.parametrize("seed", [0, 1, 2, *MANY])
def test_on_local_disk(
    seed: int, tmp_path: Path, tiny_tokenizer: Path, running: Machines, undisturbed: Undisturbed
) -> None:
    place = Place(tmp_path, str(tmp_path), tiny_tokenizer)
    put_aside = disturb(case(seed, "local"), place, running, undisturbed[1])
    found = outcome(place.recipe, corpus.RECORDS)
    assert differences(found, undisturbed[0], put_aside=put_aside) == []


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), *MANY])
def test_on_s3(seed: int, remote: Remote, undisturbed: Undisturbed) -> None:
    with remote.machines() as (running, proxy):
        put_aside = disturb(case(seed, "s3"), remote.place, running, undisturbed[1], proxy)
    found = outcome(remote.place.recipe, corpus.RECORDS)
    assert differences(found, undisturbed[0], put_aside=put_aside) == []


@pytest.mark.slow
def test_every_commit_loses_its_answer(remote: Remote, undisturbed: Undisturbed) -> None:
    for name in corpus.RECORDS:
        remote.place.bring(name)
    with remote.machines() as (running, proxy):
        proxy.schedule = lambda r: "drop" if not r.nth and is_commit(r) else None
        assert running.run(remote.place.file) == DONE, running.told()
    found = outcome(remote.place.recipe, corpus.RECORDS)
    assert differences(found, undisturbed[0], put_aside=False) == []
    kept = sum(not row["reason"] for row in found["documents"])
    counts = f"{len(found['documents'])} rows, {kept} kept, {len(found['duplicates'])} duplicates"
    assert running.told().startswith(counts), "what is done counts, answer or not"


def run_struck(blow: Blow, place: Place, running: Machines, proxy: Proxy | None) -> int:
    """One run, and how its driver ends; a proxy sees each write, a folder is looked at."""
    if proxy is not None:
        proxy.schedule = Outage(blow)
        return running.run(place.file)
    before = place.written()
    return running.run(place.file, lambda: blow.at(place.written() - before))


def disturb(
    chosen: Case, place: Place, running: Machines, total: int, proxy: Proxy | None = None
) -> bool:
    """A run, and a fault, for each file that comes in; then runs without one until all is done.

    Says whether a run put something aside, however it ended.
    """
    put_aside = False
    for name, fault in zip(corpus.RECORDS, chosen.faults, strict=True):
        place.bring(name)
        blow = Blow(fault, running, after=1 + int(fault.moment * total / len(corpus.RECORDS)))
        code = run_struck(blow, place, running, proxy)
        put_aside |= code == PUT_ASIDE or bool(Quarantine(str(place.recipe.lake)).notes())
        what = "strikes" if blow.struck else "does not come to strike"
        print(f"{chosen.seed}, {name}: {fault} {what}, the driver ends with {code}")  # noqa: T201
        if fault.kind == "disk":
            running.end()  # the machine is replaced
    if proxy is not None:
        proxy.schedule = lambda _: None
    assert DONE in (running.run(place.file) for _ in range(2)), running.told()
    return put_aside
