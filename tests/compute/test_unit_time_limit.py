"""Work that takes too much time or memory is quarantined with its reason, and the workers continue."""

import math
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distributed import Client, Worker

from etl.compute.cluster import Cluster
from etl.compute.dask_tasks import map_unordered
from etl.compute.unit_time_limit import run_with_time_limit
from etl.errors import LimitError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl

_CODE = """\
import time
def is_good(document):
    while document["text"] == "sleep":
        time.sleep(0.01)
    return True
"""
_MB = 1 << 20
_BALLAST: list[bytes] = []


def test_work_within_the_limit_is_not_interrupted() -> None:
    assert run_with_time_limit(lambda: "text", 60, may_end_process=False) == "text"
    before = threading.active_count()
    for _ in range(50):
        assert run_with_time_limit(lambda: "text", 60, may_end_process=False) == "text"
    assert threading.active_count() == before


@pytest.mark.parametrize("seconds", [1e10, 1e300, math.inf])
def test_a_limit_may_be_longer_than_timers_are(process_client: Client, seconds: float) -> None:
    answers = map_unordered(process_client, abs, [(-1,)], label="abs", time_limit=seconds)
    assert list(answers) == [((-1,), 1)]


def test_a_limit_that_expires_as_the_work_ends_has_one_outcome() -> None:
    """Wherever the interruption occurs, the outcome is the text or the error, and nothing follows."""
    outcomes = set()
    for step in range(200):
        try:
            outcomes.add(
                run_with_time_limit(
                    lambda: str(time.sleep(0.002)), 0.0015 + step * 5e-6, may_end_process=False
                )
            )
        except LimitError:
            outcomes.add("late")
        sum(range(1000))
    assert outcomes <= {"None", "late"}


def test_slow_work_is_interrupted_without_retries_and_the_worker_continues(client: Client) -> None:
    units = [("sleep",), ("swallow",), ("nothing",)]
    answers = dict(map_unordered(client, _hang, units, label="hang", time_limit=5.0))
    process = answers["nothing",]
    assert int(str(process)) in client.run(_pid).values(), "the worker was not restarted"
    for how in ("sleep", "swallow"):
        error = answers[how,]
        assert isinstance(error, LimitError)
        assert error.what == "it took longer than 5 s"


@pytest.mark.slow
def test_a_split_that_takes_too_long_is_quarantined(client: Client, tmp_path: Path) -> None:
    (tmp_path / "slow_filters.py").write_text(_CODE)
    python = {"call": "slow_filters:is_good", "per": "document", "folder": str(tmp_path)}
    recipe = Recipe(
        name="limits",
        source={"path": str(tmp_path / "*.jsonl"), "columns": {"text": "body"}},
        lake=str(tmp_path / "lake"),
        stages=[{"python": python}],
    )
    for number, name in enumerate("abc"):
        write_jsonl(tmp_path / f"{name}.jsonl", records(10 * number, 10 * number + 10))
    assert run(recipe, cluster=client).ok
    write_jsonl(tmp_path / "d.jsonl", [{"body": "sleep"}])
    write_jsonl(tmp_path / "e.jsonl", records(90, 100))
    report = run(recipe, cluster=client, time_limit=5.0)
    (note,) = report.quarantined
    assert note.source.endswith("d.jsonl")
    assert note.error.startswith("it took longer than 5 s")
    assert report.rows == 10, "the other new file is read"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["regex", "memory"])
def test_work_that_kills_its_worker_is_reported(how: str) -> None:
    with Cluster(workers=1, memory_limit="600MiB").connect() as client:
        units = [(how,), ("nothing",)]
        answers = dict(map_unordered(client, _hang, units, label="hang", time_limit=3.0))
    assert isinstance(answers[how,], LimitError)
    assert "workers died on it" in str(answers[how,])
    assert isinstance(answers["nothing",], str)


@pytest.mark.slow
def test_a_worker_short_of_memory_gets_no_new_work() -> None:
    with Cluster(workers=2, memory_limit="800MiB").connect() as client:
        full, other = client.scheduler_info()["workers"]
        client.run(_fill, 800 * _MB, workers=[full])
        _wait_for_status(client, full, "paused")
        answers = [
            text
            for _, text in map_unordered(client, _slow_pid, [(n,) for n in range(8)], label="pid")
        ]
        assert set(answers) == {str(client.run(_pid)[other])}
        client.run(_empty, workers=[full])
        _wait_for_status(client, full, "running")


def _hang(how: str) -> str:
    while how == "sleep":
        time.sleep(0.01)
    while how == "swallow":
        with suppress(Exception):
            time.sleep(0.01)
    if how == "regex":  # holds the GIL for years
        re.match("(a+)+$", "a" * 60 + "b")
    while how == "memory":
        _BALLAST.append(b"x" * (8 << 20))
    return str(psutil.Process().pid)


def _pid() -> int:
    return psutil.Process().pid


def _slow_pid(number: int) -> str:
    time.sleep(0.05)
    return str(psutil.Process().pid)


def _fill(limit: int, dask_worker: Worker) -> None:
    """Allocate memory until the worker is paused (0.8 of its limit), but not terminated (0.95)."""
    dask_worker.ballast = b"x" * int(0.87 * limit - psutil.Process().memory_info().rss)


def _empty(dask_worker: Worker) -> None:
    del dask_worker.ballast


def _wait_for_status(client: Client, address: str, status: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if client.scheduler_info()["workers"][address]["status"] == status:
            return
        time.sleep(0.1)
    pytest.fail(f"the worker did not become {status} within 30 s")
