"""A shuffle returns exactly the rows that it was given, or says that it does not."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Task
from dask.utils import key_split
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from etl.compute import compute_frames
from etl.compute.compute_frames import MAX_RESTARTS, compute_frame, hold_frame, restart_lost_frames
from etl.compute.connect import follow_client
from etl.compute.frame_shuffles import shuffle_by_range, shuffle_by_value, split_at
from etl.compute.frame_tasks import map_frames
from etl.compute.row_checksums import sum_rows
from etl.compute.verified_shuffle import fuse_shuffles
from etl.errors import HeldFrameError, ShuffleError
from tests.helpers.listeners import Recorder
from tests.helpers.shuffle_faults import Fault, install
from tests.helpers.shuffle_frames import PARTS, ROWS, frame, read, values

LOSSES = ["lost shard", "doubled rows", "lost partition", "swapped partition"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start two workers inside this process."""
    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_frames, "_PAUSE", 0.01)


@pytest.fixture(scope="module")
def expected() -> list[tuple[str, ...]]:
    return values(pd.concat(map(read, range(PARTS))))


def test_each_shuffle_keeps_all_rows_and_brings_equal_values_together(
    client: Client, expected: list[tuple[str, ...]]
) -> None:
    starts = [-(2**61), 0, 2**60]
    shuffled = {
        "value": shuffle_by_value(frame(), "value", 4),
        "one": shuffle_by_value(frame(), "value", 1),
        "range": shuffle_by_range(frame(), "value", 3),
        "start": split_at(frame(), "value", starts),
        "again": shuffle_by_range(shuffle_by_value(frame(), "value", 4), "value", 3),
    }
    for name, result in shuffled.items():
        parts = client.gather(client.compute(result.to_delayed()))
        assert values(pd.concat(parts)) == expected, name
        assert parts[0].dtypes.equals(result._meta.dtypes), name
    parts = client.gather(client.compute(shuffled["start"].to_delayed()))
    assert [(part["value"] >= starts[1]).all() for part in parts] == [False, True, True]
    assert (parts[1]["value"] < starts[2]).all()


def test_rows_are_sent_and_read_by_the_tasks_that_make_and_use_them() -> None:
    """Between two tasks, a worker holds as many frames as it makes before the scheduler has answered."""

    def names(*results: dd.DataFrame) -> Counter[str]:
        graph = fuse_shuffles(dd.concat(list(results)).optimize().__dask_graph__())
        return Counter(key_split(key) for key, node in graph.items() if isinstance(node, Task))

    made = map_frames("made.here", lambda rows: rows, frame(), meta=frame()._meta)
    shuffled = shuffle_by_value(made, "value", 4)
    used, used_again = (
        map_frames(name, lambda rows: rows, shuffled, meta=shuffled._meta)
        for name in ("used.once", "used.again")
    )
    once = {"read": PARTS, "shuffle-barrier": 1, "used.once": 4}
    assert names(used) == once
    assert names(used, used_again) == {**once, "used.again": 4, "p2pverified": 4}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_shuffle_with_wrong_rows_starts_again(
    client: Client, tmp_path: Path, expected: list[tuple[str, ...]], kind: str
) -> None:
    listener, fault = Recorder(), Fault(kind, tmp_path / "done")
    remove = install(fault)
    try:
        with follow_client(client, listener):
            rows = compute_frame(client, shuffle_by_value(frame(), "value", 5), label="test")
    finally:
        remove()
    assert fault.marker.exists()
    assert values(rows) == expected
    warning = next(line for line in listener.lines if "starting again" in line)
    assert warning.startswith("warning: test: partition ")


def test_a_shuffle_that_always_loses_rows_is_an_error(client: Client, tmp_path: Path) -> None:
    listener = Recorder()
    remove = install(Fault("lost partition", tmp_path / "done", always=True))
    try:
        with (
            follow_client(client, listener),
            pytest.raises(ShuffleError, match=r"^test: partition \d of 5 .* has 0 rows instead of"),
        ):
            hold_frame(client, shuffle_by_value(frame(), "value", 5), label="test")
    finally:
        remove()
    assert sum("starting again" in line for line in listener.lines) == MAX_RESTARTS
    assert len(compute_frame(client, frame(), label="test")) == ROWS * PARTS


def test_a_held_frame_that_fails_later_is_held_again(client: Client, tmp_path: Path) -> None:
    """As after a worker that held a part has died, and Dask fails to compute the part again."""
    attempts = []

    def count() -> int:
        held = client.persist(shuffle_by_value(frame(), "value", 5))  # may fail, as when it is lost
        attempts.append(held)
        return len(compute_frame(client, held, label="test"))

    remove = install(Fault("lost partition", tmp_path / "done"))
    try:
        assert restart_lost_frames(client, count, label="test") == ROWS * PARTS
        assert len(attempts) == 2
        remove()
        remove = install(Fault("lost partition", tmp_path / "done", always=True))
        with pytest.raises(HeldFrameError, match=r"attempt 4 of 4"):
            restart_lost_frames(client, count, label="test")
    finally:
        remove()


rows_of_numbers = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.integers(0, 3)), max_size=20
)


@given(rows_of_numbers, st.randoms())
def test_sums_depend_on_the_rows_of_each_part_alone(rows, rng) -> None:
    def sums(rows) -> pd.DataFrame:
        keys, ranks, parts = zip(*rows, strict=True) if rows else ((), (), ())
        columns = {"key": np.array(keys, np.int64), "rank": np.array(ranks, np.float64)}
        return sum_rows(pd.DataFrame(columns), np.array(parts, np.int64), 4)

    known = sums(rows)
    counts = [sum(part == number for *_, part in rows) for number in range(4)]
    assert known["rows"].tolist() == counts
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert sums(shuffled).equals(known)
    if rows:
        (key, rank, part), *others = shuffled
        assert not sums(others).equals(known)
        for changed in ((key ^ 1, rank, part), (key, -1.5, part), (key, rank, (part + 1) % 4)):
            assert sums([changed, *others]).equals(known) == (changed == (key, rank, part))
