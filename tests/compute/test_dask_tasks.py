"""Each unit is returned once with its answer; errors of tasks become TokenlakeErrors."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._expr import SingletonExpr
from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.connect import raise_if_scheduler_lost
from etl.compute.dask_tasks import map_unordered
from etl.errors import ClusterError, StageError, StorageError
from tests.helpers.cluster import cluster

_META = pd.DataFrame({"result": pd.Series(dtype=object)})


def _raise(error: Exception) -> pd.DataFrame:
    raise error


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (OSError(28, "no space left"), StageError, r"keys: a task failed \(OSError\(28, 'no space"),
        (StorageError("cannot be written", where="s3://x"), StorageError, "^s3://x: cannot be wr"),
    ],
)
def test_errors_of_tasks_become_tokenlake_errors(client: Client, raised, kind, text) -> None:
    frame = dd.from_map(_raise, [raised], meta=_META)
    with pytest.raises(kind, match=text):
        compute_frame(client, frame, label="keys")


def test_a_lost_scheduler_is_reported() -> None:
    with cluster() as client:
        future = client.submit(abs, -1)
        assert future.result() == 1
    with (
        pytest.raises(ClusterError, match="the scheduler was lost"),
        raise_if_scheduler_lost(client),
    ):
        client.gather([future])


def test_a_newer_client_of_this_process_is_not_waited_for(client: Client) -> None:
    released = threading.Event()
    with Client(client.scheduler.address, set_as_default=True) as newer:
        assert newer.loop is not client.loop
        newer.loop.add_callback(released.wait)
        try:
            units = [(number,) for number in range(3)]
            found = dict(map_unordered(client, abs, units, label="read", time_limit=60))
            frame = compute_frame(client, dd.from_map(_frame, [1, 2], meta=_META), label="keys")
        finally:
            released.set()
    assert found == {unit: unit[0] for unit in units}
    assert list(frame["result"]) == [1, 2]


def test_no_other_thread_makes_expressions(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    make = SingletonExpr.__new__

    def record(*args: Any, **kwargs: Any) -> Any:
        threads.add(threading.current_thread().name)
        return make(*args, **kwargs)

    monkeypatch.setattr(SingletonExpr, "__new__", record)
    frame = dd.from_map(_frame, [1, 2], meta=_META)
    held = hold_frame(client, frame.repartition(npartitions=1), label="keys")
    assert list(compute_frame(client, held, label="keys")["result"]) == [1, 2]
    assert threads == {threading.main_thread().name}


def _frame(result: int) -> pd.DataFrame:
    return pd.DataFrame({"result": pd.Series([result], dtype=object)})


class _Largest(SchedulerPlugin):
    """Records the size of the largest task result in bytes."""

    name = "largest"
    num_bytes = 0

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **known: Any) -> None:
        if finish == "memory":
            self.num_bytes = max(self.num_bytes, known.get("nbytes") or 0)


def test_no_worker_holds_a_whole_frame(client: Client) -> None:
    client.register_plugin(_Largest())
    try:
        frame = dd.from_map(_numbers, range(8), meta=_numbers(0))
        whole = compute_frame(client, frame, label="test")
        largest = client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.plugins["largest"].num_bytes
        )
    finally:
        client.unregister_scheduler_plugin("largest")
    assert whole["number"].tolist() == [k for k in range(8) for _ in range(1000)]
    assert 8_000 <= largest < 16_000, "each part has a thousand int64"


def _numbers(number: int) -> pd.DataFrame:
    return pd.DataFrame({"number": np.full(1000, number)})


def _answer(number: int, _name: str) -> str:
    if number % 100 == 7:
        raise StorageError(f"number {number}")
    return str(number)


def test_each_of_many_units_is_returned_once_with_its_answer_or_error(client: Client) -> None:
    taken = []

    def units() -> Iterator[tuple[int, str]]:
        for number in range(1300):
            taken.append(number)
            yield number, "name"

    answers = {}
    for count, (unit, answer) in enumerate(map_unordered(client, _answer, units(), label="test")):
        assert unit not in answers
        assert len(taken) - count <= 1024, "units of later waves are at the scheduler"
        answers[unit] = answer
    assert sorted(answers) == [(number, "name") for number in range(1300)]
    for (number, _), answer in answers.items():
        if number % 100 == 7:
            assert isinstance(answer, StorageError)
            assert answer.what == f"number {number}"
        else:
            assert answer == str(number)
    assert list(map_unordered(client, _answer, [], label="test")) == []


def test_closing_the_iterator_cancels_the_remaining_units(client: Client) -> None:
    answers = map_unordered(
        client, _answer, [(number, "name") for number in range(600)], label="closed"
    )
    next(answers)
    answers.close()
    deadline = time.monotonic() + 30
    while client.run_on_scheduler(_count_tasks, "closed"):
        assert time.monotonic() < deadline, "cancelled tasks are still at the scheduler"
        time.sleep(0.05)


def _count_tasks(label: str, dask_scheduler: Scheduler | None = None) -> int:
    assert dask_scheduler is not None
    return sum(label in str(key) for key in dask_scheduler.tasks)
