"""Cheap commits are frequent; expensive ones take a bounded share of the time."""

import time
from collections.abc import Iterator

import pytest

from etl.errors import WriteError
from etl.job.commit_policy import CommitPolicy, batch_for_commits


def test_a_commit_is_due_at_256_results() -> None:
    policy = CommitPolicy()
    assert not policy.is_due(1)
    assert policy.is_due(256)
    policy.committed(seconds=0.0)
    assert not policy.is_due(255)
    assert policy.is_due(256)


def test_after_an_expensive_commit_the_next_is_due_only_at_the_maximum() -> None:
    policy = CommitPolicy()
    policy.committed(seconds=60.0)
    assert not policy.is_due(256)
    assert not policy.is_due(16_383)
    assert policy.is_due(16_384)


def test_the_next_commit_waits_ten_times_as_long_as_the_last_one_took() -> None:
    policy = CommitPolicy()
    policy.committed(seconds=0.1)
    start = time.monotonic()
    while not policy.is_due(256):
        time.sleep(0.01)
    assert time.monotonic() - start >= 0.95


def test_every_item_is_in_one_batch_in_order() -> None:
    batches = list(batch_for_commits([number] for number in range(600)))
    assert [number for batch in batches for number in batch] == list(range(600))
    assert len(batches[0]) == 256
    assert list(batch_for_commits([])) == []


def test_items_before_a_write_error_are_still_committed() -> None:
    def items() -> Iterator[list[int]]:
        yield from ([number] for number in range(300))
        raise WriteError("the disk is full")

    batches = batch_for_commits(items())
    assert [*next(batches), *next(batches)] == list(range(300))
    with pytest.raises(WriteError, match="the disk is full"):
        next(batches)
