"""A process that hangs, is stopped or dies fails its test with what it was doing, and is replaced."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.drivers import Driver
from tests.chaos.pauses import Paused, Stop
from tests.chaos.processes import DONE
from tests.chaos.runner import machines
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import SHORT, rows

_READING = Stop("worker", 0, "open_input raw")
_STACKS = re.compile(
    r"its threads:\n(Current t|T)hread 0x.*\n  File "
)  # at most 100 frames of each


@pytest.fixture
def site(small: SmallSite) -> SmallSite:
    small.write("a.jsonl", rows("a", [SHORT]))
    return small


def test_a_driver_that_hangs_is_described_and_replaced(site: SmallSite, first: Driver) -> None:
    assert isinstance(first.start("plain", site, _READING), Paused)
    report = failure_of(first, first.resume, limit_s=0.02)  # the rest of the job takes longer
    assert report.startswith("the driver first hangs: nothing came from it for 0.02 seconds")
    assert "job: plain, which last paused before open_input raw" in report
    assert _STACKS.search(report)
    assert first.run("plain", site).code == DONE


def test_a_driver_that_was_stopped_is_described(site: SmallSite, first: Driver) -> None:
    os.kill(first.pid, signal.SIGSTOP)
    report = failure_of(first, lambda: first.run("plain", site))
    assert "is T (stopped)" in report
    assert _STACKS.search(report)
    assert first.run("plain", site).code == DONE


def test_a_driver_that_dies_is_described(site: SmallSite, first: Driver) -> None:
    assert isinstance(first.start("plain", site, _READING), Paused)
    os.kill(first.pid, signal.SIGKILL)
    report = failure_of(first, first.resume)
    assert report.startswith("the driver first has died\njob: plain, which last paused before open")
    assert "ended with -9" in report
    assert first.run("plain", site).code == DONE


def failure_of(driver: Driver, do: Callable[[], object], limit_s: float = 1.0) -> str:
    """Return the message of the failure of a driver that is waited for so many seconds."""
    usual_s, driver.limit_s = driver.limit_s, limit_s
    try:
        with pytest.raises(pytest.fail.Exception) as failed:
            do()
    finally:
        driver.limit_s = usual_s
    return str(failed.value)


@pytest.mark.slow
def test_machines_that_hang_are_described(tmp_path: Path, site: SmallSite) -> None:
    begun = time.monotonic()

    def stop_driver() -> None:
        (driver,) = running.victims("driver")
        if running.limit_s == limit_s and (site.lake / "documents").exists():
            assert driver.pid is not None
            os.kill(driver.pid, signal.SIGSTOP)
            running.limit_s = time.monotonic() - begun + 1

    with machines(tmp_path / "logs", {}) as running:
        limit_s = running.limit_s
        with pytest.raises(pytest.fail.Exception) as failed:
            running.run(site.file, stop_driver)
        report = str(failed.value)
        assert report.startswith("the driver hangs: it has not ended for ")
        assert "is T (stopped)" in report
        for name in ("driver", "scheduler", "worker"):
            assert f"\n{name}: process" in report
            assert 'tests/chaos/processes.py", line' in report.partition(f"\n{name}: process")[2]
        running.limit_s = limit_s
        assert running.run(site.file) == DONE, running.output()
