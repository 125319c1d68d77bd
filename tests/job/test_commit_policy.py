"""Cheap commits are frequent; expensive ones take a bounded share of the time."""

import time

from etl.job.commit_policy import CommitPolicy


def test_a_commit_is_due_at_256_results() -> None:
    cadence = CommitPolicy()
    assert not cadence.is_due(1)
    assert cadence.is_due(256)
    cadence.committed(seconds=0.0)
    assert not cadence.is_due(255)
    assert cadence.is_due(256)


def test_after_an_expensive_commit_the_next_is_due_only_at_the_maximum() -> None:
    cadence = CommitPolicy()
    cadence.committed(seconds=60.0)
    assert not cadence.is_due(256)
    assert not cadence.is_due(16_383)
    assert cadence.is_due(16_384)


def test_the_next_commit_waits_ten_times_as_long_as_the_last_one_took() -> None:
    cadence = CommitPolicy()
    cadence.committed(seconds=0.1)
    start = time.monotonic()
    while not cadence.is_due(256):
        time.sleep(0.01)
    assert time.monotonic() - start >= 0.95
