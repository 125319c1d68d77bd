"""Whatever fails at any moment, repeating the job until it is done gives the result of an undisturbed run.

A case has four faults, one for each input file: see ``schedule``. A dozen faults always run, faults of a
failing store with ``make test-slow``, many more with ``make chaos``, and the faults of one seed with ``make
chaos SEED=123``. A seed determines the faults and the number of files written before each, but not the
interleaving of the processes.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl.lake.quarantine import Quarantine
from tests.chaos import corpus
from tests.chaos.checks import Outcome, differences, outcome
from tests.chaos.place import Site
from tests.chaos.processes import DONE, FAILED, QUARANTINED
from tests.chaos.runner import Injection, Machines, Outage, is_commit, machines
from tests.chaos.schedule import Case, Fault, case
from tests.chaos.seeds import MANY
from tests.helpers.s3_proxy import Proxy, faulty

_FEW = MANY[:32]  # of four faults each
_STALL_SECONDS = 2.0

Undisturbed = tuple[Outcome, int]
"""The rows of all tables after one run over all files, and the number of files that it writes."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Processes for local lakes."""
    with machines(tmp_path_factory.mktemp("machines") / "logs", {}) as running:
        yield running


@dataclass(frozen=True)
class Remote:
    """A site on S3, and processes that reach it through a separate proxy."""

    site: Site
    endpoint: str

    @contextmanager
    def machines(self) -> Iterator[tuple[Machines, Proxy]]:
        credentials = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        with faulty(self.endpoint, lambda _: None, stall_s=_STALL_SECONDS) as proxy:
            environment = {**credentials, "AWS_ENDPOINT_URL": proxy.endpoint}
            with machines(self.site.folder / "logs", environment) as running:
                yield running, proxy


@pytest.fixture
def remote(s3: str, s3_endpoint: str, tmp_path: Path, tiny_tokenizer: Path) -> Remote:
    return Remote(Site(tmp_path, s3, tiny_tokenizer), s3_endpoint)


@pytest.fixture(scope="module")
def undisturbed(
    running: Machines, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path
) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    site = Site(folder, str(folder), tiny_tokenizer)
    for name in corpus.RECORDS:
        site.add_input(name)
    assert running.run(site.file) == DONE
    return outcome(site.recipe, corpus.RECORDS), site.num_files()


@pytest.mark.slow
def test_the_undisturbed_result_has_every_kind_of_outcome(undisturbed: Undisturbed) -> None:
    tables, _ = undisturbed
    assert {row["kind"] for row in tables["duplicates"]} == {"exact", "near"}
    reasons = {"gopher_quality.short", "source.null_text", "source.empty_text", None}
    assert {row["reason"] for row in tables["documents"]} == reasons


@pytest.mark.slow
def test_a_lost_scheduler_is_reported(running, tmp_path, tiny_tokenizer) -> None:
    site = Site(tmp_path, str(tmp_path), tiny_tokenizer)
    site.add_input("a.parquet")
    injection = Injection(Fault("kill", 0, "scheduler"), running, after=3)
    assert running.run(site.file, lambda: injection.tick(site.num_files())) == FAILED
    assert "the scheduler was lost" in running.output()


@pytest.mark.parametrize(
    "seed", [*(pytest.param(k, marks=pytest.mark.slow) for k in range(3)), *_FEW]
)
def test_faults_on_local_disk_do_not_change_the_result(
    seed: int,
    tmp_path: Path,
    tiny_tokenizer: Path,
    running: Machines,
    undisturbed: Undisturbed,
    faults: Counter[str],
) -> None:
    site = Site(tmp_path, str(tmp_path), tiny_tokenizer)
    quarantined = disturb(case(seed, "local"), site, running, undisturbed[1], faults)
    actual = outcome(site.recipe, corpus.RECORDS)
    assert differences(actual, undisturbed[0], quarantined=quarantined) == []


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), *_FEW])
def test_faults_on_s3_do_not_change_the_result(
    seed: int, remote: Remote, undisturbed: Undisturbed, faults: Counter[str]
) -> None:
    with remote.machines() as (running, proxy):
        quarantined = disturb(case(seed, "s3"), remote.site, running, undisturbed[1], faults, proxy)
    actual = outcome(remote.site.recipe, corpus.RECORDS)
    assert differences(actual, undisturbed[0], quarantined=quarantined) == []


@pytest.mark.slow
def test_lost_answers_to_all_commits_do_not_change_the_result(
    remote: Remote, undisturbed: Undisturbed
) -> None:
    for name in corpus.RECORDS:
        remote.site.add_input(name)
    with remote.machines() as (running, proxy):
        proxy.schedule = lambda r: "drop" if not r.nth and is_commit(r) else None
        assert running.run(remote.site.file) == DONE, running.output()
    actual = outcome(remote.site.recipe, corpus.RECORDS)
    assert differences(actual, undisturbed[0], quarantined=False) == []
    kept = sum(not row["reason"] for row in actual["documents"])
    counts = f"{len(actual['documents'])} rows, {kept} kept, {len(actual['duplicates'])} duplicates"
    assert running.output().startswith(counts), "the report counts commits without an answer"


def run_injected(injection: Injection, site: Site, running: Machines, proxy: Proxy | None) -> int:
    """Run once with an injection and return the exit code of the driver.

    A proxy counts the files written to S3; in a local folder they are counted directly.
    """
    if proxy is not None:
        proxy.schedule = Outage(injection)
        return running.run(site.file)
    before = site.num_files()
    return running.run(site.file, lambda: injection.tick(site.num_files() - before))


def disturb(
    chosen: Case,
    site: Site,
    running: Machines,
    total: int,
    faults: Counter[str],
    proxy: Proxy | None = None,
) -> bool:
    """Add each input file and run with a fault; then run without faults until all is done.

    ``total`` is the number of files that an undisturbed run writes, and ``faults`` counts the faults
    injected. Returns whether any of the runs quarantined a part of its input.
    """
    quarantined = False
    for name, fault in zip(corpus.RECORDS, chosen.faults, strict=True):
        site.add_input(name)
        injection = Injection(
            fault, running, after=1 + int(fault.moment * total / len(corpus.RECORDS))
        )
        code = run_injected(injection, site, running, proxy)
        quarantined |= code == QUARANTINED or bool(Quarantine(str(site.recipe.lake)).notes())
        faults[f"{chosen.store} {fault.kind}"] += injection.done
        what = "was injected" if injection.done else "was not injected"
        print(f"{chosen.seed}, {name}: {fault} {what}, the driver ended with {code}")  # noqa: T201
        if fault.kind == "disk":
            running.end()  # the machine is replaced
    if proxy is not None:
        proxy.schedule = lambda _: None
    assert DONE in (running.run(site.file) for _ in range(2)), running.output()
    return quarantined
