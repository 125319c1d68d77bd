"""The order of an epoch, compared with a reference that builds it with lists."""

import hashlib
from itertools import groupby

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etl.errors import LoaderError
from etl.loader import Shuffle
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.shuffle_settings import permutation

SHUFFLES = st.builds(
    Shuffle,
    lanes=st.integers(1, 6),
    block_tokens=st.integers(1, 60),
    run_tokens=st.integers(1, 60),
)
GROUPS = st.lists(st.integers(0, 40), min_size=1, max_size=20)


def make_plan(groups, seq_len, *, seed=0, shuffle=None):
    settings = None if shuffle is None else shuffle.resolved(sum(groups))
    return EpochPlan(np.array(groups, np.int32), seq_len, seed, settings)


def naive_order(plan: EpochPlan, epoch: int) -> list[int]:
    """Return the windows in the order of samples, by the five steps described in epoch.py."""
    if plan.shuffle is None:
        return list(range(plan.num_samples))
    sizes = [len(part) for part in np.array_split(np.arange(plan.num_samples), plan.lanes)]
    lanes: list[list[int]] = [[] for _ in sizes]
    first = 0
    for number in permutation(plan.lanes, plan.seed, epoch, "lanes"):
        lanes[number] = list(range(first, first + sizes[number]))
        first += sizes[number]
    shuffled: list[list[int]] = []
    size = plan.block_windows
    for number, lane in enumerate(lanes):
        blocks = [lane[i : i + size] for i in range(0, len(lane), size)]
        shuffled.append([])
        for index, block in enumerate(blocks):
            key = (plan.seed, epoch, "block", number, index)
            order = permutation(len(block), *key).tolist() if len(block) > 1 else [0]
            shuffled[-1] += [block[i] for i in order]
    rounds = max(map(len, shuffled))
    return [lane[i] for i in range(rounds) for lane in shuffled if i < len(lane)]


def naive_groups(plan: EpochPlan, epoch: int) -> list[int]:
    """Return the row groups in the order of the stream."""
    groups = list(range(len(plan.group_tokens)))
    ends = np.cumsum(plan.group_tokens).tolist()
    starts = [0, *ends[:-1]]
    if plan.shuffle is not None:
        size = plan.shuffle.run_tokens
        runs = [list(run) for _, run in groupby(groups, key=lambda g: starts[g] // size)]
        order = permutation(len(runs), plan.seed, epoch, "runs")
        groups = [g for i in order for g in runs[i]]
    return [g for g in groups if plan.group_tokens[g]]


@given(GROUPS, st.integers(1, 30), SHUFFLES | st.none(), st.integers(0, 3), st.integers(0, 2))
def test_order_equals_the_reference(groups, seq_len, shuffle, seed, epoch):
    assume(sum(groups) > seq_len)
    plan = make_plan(groups, seq_len, seed=seed, shuffle=shuffle)
    assert [plan.window(epoch, g) for g in range(plan.num_samples)] == naive_order(plan, epoch)
    stream = plan.stream(epoch)
    assert stream.groups.tolist() == naive_groups(plan, epoch)
    starts = [stream.start(index) for index in range(len(stream.groups) + 1)]
    assert starts == [0, *np.cumsum(plan.group_tokens[stream.groups]).tolist()]


@given(GROUPS, st.integers(1, 30), SHUFFLES, st.integers(0, 2))
def test_each_window_comes_once_and_the_tail_is_counted(groups, seq_len, shuffle, epoch):
    assume(sum(groups) > seq_len)
    plan = make_plan(groups, seq_len, shuffle=shuffle)
    windows = [plan.window(epoch, g) for g in range(plan.num_samples)]
    assert sorted(windows) == list(range(plan.num_samples))
    assert plan.num_samples * seq_len + 1 + plan.dropped_tokens == sum(groups)
    assert 0 <= plan.dropped_tokens < seq_len


@given(GROUPS, st.integers(0, 400), st.integers(1, 60))
def test_places_returns_the_row_groups_of_a_span(groups, start, length):
    stop = min(start + length, sum(groups))
    assume(start < stop)
    stream = make_plan(groups, 1).stream(0) if sum(groups) > 1 else None
    assume(stream is not None)
    owners = [g for g, n in enumerate(groups) for _ in range(n)]
    assert [stream.groups[p] for p in stream.group_indices(start, stop)] == sorted(
        set(owners[start:stop])
    )


def order_digest(plan: EpochPlan, epoch: int) -> str:
    order = [plan.window(epoch, g) for g in range(plan.num_samples)] + plan.stream(
        epoch
    ).groups.tolist()
    return hashlib.sha256(",".join(map(str, order)).encode()).hexdigest()[:16]


def test_order_is_pinned():
    shuffle = Shuffle(lanes=2, block_tokens=32, run_tokens=1)
    small = make_plan([30, 12, 55], 8, seed=17, shuffle=shuffle)
    assert [small.window(1, g) for g in range(12)] == [3, 2, 1, 0, 4, 5, 7, 6, 8, 9, 10, 11]
    assert small.stream(1).groups.tolist() == [1, 0, 2]
    shuffle = Shuffle(lanes=3, block_tokens=64, run_tokens=40)
    plan = make_plan([7, 0, 30, 12, 55, 3, 9, 41] * 5, 8, seed=17, shuffle=shuffle)
    assert order_digest(plan, 3) == "05fd9c2830a7cfb5"


def test_shuffling_differs_by_seed_and_epoch_and_mixes():
    groups = [100] * 200
    shuffle = Shuffle(lanes=8, block_tokens=200, run_tokens=100)

    def order(seed, epoch):
        """Return the first token of each sample, by its number in the table."""
        plan = make_plan(groups, 10, seed=seed, shuffle=shuffle)
        tokens = np.array([plan.window(epoch, g) for g in range(plan.num_samples)]) * 10
        return plan.stream(epoch).groups[tokens // 100] * 100 + tokens % 100

    orders = [order(0, 0), order(0, 1), order(1, 0), np.arange(1999) * 10]
    for index, order_tokens in enumerate(orders):
        assert all(np.mean(order_tokens == other) < 0.01 for other in orders[index + 1 :])
    # Sixteen consecutive samples come from all eight lanes, and so from eight row groups or more.
    assert all(len(set(orders[0][i : i + 16] // 100)) >= 8 for i in range(0, 1900, 16))


def test_ranks_share_row_groups_only_at_lane_borders():
    plan = make_plan([100] * 400, 10, shuffle=Shuffle(lanes=8, block_tokens=200, run_tokens=100))
    stream = plan.stream(0)
    opened: list[set[int]] = []
    for rank in range(4):
        windows = [plan.window(0, g) for g in range(rank, plan.num_samples, 4)]
        opened.append({p for w in windows for p in stream.group_indices(w * 10, w * 10 + 11)})
    assert sum(map(len, opened)) <= 400 + 8


def test_ten_million_row_groups_fit_in_100_mb():
    plan = make_plan([1_500_000] * 1_000_000, 2048, shuffle=Shuffle())
    stream = plan.stream(0)
    assert plan.num_tokens == 1_500_000_000_000
    held = plan.group_tokens.nbytes + stream.groups.nbytes + stream.marks.nbytes
    assert held * 10 <= 100_000_000
    assert plan.window(0, plan.num_samples - 1) < plan.num_samples


@pytest.mark.parametrize(
    ("groups", "seq_len", "message"),
    [
        ([5, 5], 10, "a window needs 11 tokens, but the table has only 10"),
        ([], 1, "has only 0"),
        ([5], 0, "seq_len must be at least 1, not 0"),
    ],
)
def test_a_table_too_small_for_one_window_is_refused(groups, seq_len, message):
    with pytest.raises(LoaderError, match=message):
        make_plan(groups, seq_len)


def test_settings_must_be_positive():
    with pytest.raises(LoaderError, match="lanes of Shuffle must be at least 1, not 0"):
        Shuffle(lanes=0)


def test_fingerprint_depends_on_everything_that_decides_the_order():
    prints = {
        make_plan([30, 12, 55], seq_len, seed=seed, shuffle=shuffle).fingerprint(digest)
        for seq_len in (8, 9)
        for seed in (0, 1)
        for shuffle in (None, Shuffle(), Shuffle(lanes=2))
        for digest in ("a", "b")
    }
    assert len(prints) == 24
