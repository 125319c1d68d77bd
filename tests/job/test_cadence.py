"""Commits come often while they are cheap, and take a bounded share of the time when they are not."""

import time

from etl.job.cadence import Cadence


def test_many_results_are_due_at_once_and_few_are_not() -> None:
    cadence = Cadence()
    assert not cadence.is_due(1)
    assert cadence.is_due(256)
    cadence.committed(seconds=0.0)
    assert not cadence.is_due(255)
    assert cadence.is_due(256)


def test_a_costly_commit_is_waited_for_until_too_much_is_held() -> None:
    cadence = Cadence()
    cadence.committed(seconds=60.0)
    assert not cadence.is_due(256)
    assert not cadence.is_due(16_383)
    assert cadence.is_due(16_384)


def test_the_wait_is_ten_times_the_cost() -> None:
    cadence = Cadence()
    cadence.committed(seconds=0.1)
    begun = time.monotonic()
    while not cadence.is_due(256):
        time.sleep(0.01)
    assert time.monotonic() - begun >= 0.95
