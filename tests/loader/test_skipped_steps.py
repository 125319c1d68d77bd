"""Trainings that leave out steps, compared with one that reads and forgets them."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Schedule, Shard, TokenDataset, TokenMixture
from etl.loader.exposures import find_exposures
from etl.loader.replay import replay
from etl.loader.state import find_state, parts_of
from tests.helpers.token_tables import MIXED, make_lake

OPTIONS = {"seq_len": 9, "shuffle": MIXED, "format": Format(sample_numbers=True)}
LEGS = st.lists(
    st.tuples(
        st.booleans(), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(1, 40)
    ),
    min_size=1,
    max_size=5,
)
"""Whether the steps are skipped, the world size, the batch size, ``drop_last``, and the steps."""
GAPS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=3)
"""How many steps later each gap begins, and its steps."""


def rows_of(batch):
    return [tuple(row) for row in zip(*(values.tolist() for values in batch.values()), strict=True)]


def read(open_rank, legs, *, skips):
    """Return the rows of each rank in the legs that are not skipped, and the last state."""
    state, kept = None, []
    for is_skipped, world_size, batch_size, drop_last, num_steps in legs:
        ranks = [open_rank(Shard(rank=rank, world_size=world_size)) for rank in range(world_size)]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(json.loads(json.dumps(state)))
            batches, rows = rank.batches(batch_size, drop_last=drop_last), []
            if is_skipped and skips:
                batches.skip(num_steps)
                continue
            loop = iter(batches)
            for _ in range(num_steps):
                if (batch := next(loop, None)) is None:
                    loop = iter(batches)
                    batch = next(loop)
                rows.append(rows_of(batch))
            if not is_skipped:
                kept.append(rows)
        state = ranks[0].state_dict()
        assert all(rank.state_dict() == state for rank in ranks)
    return kept, state


@pytest.mark.parametrize("is_mixture", [False, True])
@settings(max_examples=15)
@given(legs=LEGS)
def test_later_steps_are_those_of_a_training_that_skips_nothing(lake, other, is_mixture, legs):
    def open_rank(shard):
        lengths = Schedule([(0, 9), (17, 5)])
        options = OPTIONS | {"seq_len": lengths, "shard": shard}
        datasets = {
            name: TokenDataset(url, **options) for name, url in {"web": lake, "code": other}.items()
        }
        if not is_mixture:
            return datasets["web"]
        weights = Schedule([(0, {"web": 2, "code": 1}), (20, {"web": 1, "code": 3})])
        return TokenMixture(datasets, weights=weights, seed=3, num_samples=40)

    skipping, _ = read(open_rank, legs, skips=True)
    reading, _ = read(open_rank, legs, skips=False)
    assert skipping == reading


def is_left_out(step, gaps):
    return any(after <= step < after + num_steps for after, num_steps in gaps)


@dataclass(frozen=True)
class Training:
    """Ranks that read steps of some batch size, and where they stop."""

    ranks: list[Any]
    batch_size: int
    prefetch: int

    def take(self, num_steps):
        """Read steps from the next place on; return the rows of each rank in each."""
        loops: list[Any] = [iter(()) for _ in self.ranks]
        rows: list[Any] = []
        while len(rows) < num_steps:
            batches = [next(loop, None) for loop in loops]
            if batches[0] is None:
                loops = [
                    iter(r.batches(self.batch_size, prefetch=self.prefetch)) for r in self.ranks
                ]
                continue
            rows.append([rows_of(batch) for batch in batches])
        return rows

    def save_and_load(self, fresh):
        """Continue with other datasets."""
        states = [json.loads(json.dumps(rank.state_dict())) for rank in self.ranks]
        assert states == states[:1] * len(states)
        for rank in fresh:
            rank.load_state_dict(states[0])
        return replace(self, ranks=fresh)


@pytest.mark.parametrize("is_mixture", [False, True])
@settings(max_examples=6)
@given(
    gaps=GAPS,
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 2])),
    resumes=st.booleans(),
)
def test_gaps_ahead_are_left_out_when_they_come(lake, other, is_mixture, gaps, sizes, resumes):
    """A training that names gaps, and resumes perhaps, against one that reads all and forgets them."""
    world_size, batch_size, prefetch = sizes

    def open_rank(rank):
        options = {**OPTIONS, "shard": Shard(rank=rank, world_size=world_size)}
        if not is_mixture:
            return TokenDataset(lake, **options)
        datasets = {"web": TokenDataset(lake, **options), "code": TokenDataset(other, **options)}
        return TokenMixture(datasets, weights={"web": 2, "code": 1}, num_samples=31)

    def begin():
        return Training([open_rank(rank) for rank in range(world_size)], batch_size, prefetch)

    kept = [rows for step, rows in enumerate(begin().take(40)) if not is_left_out(step, gaps)]
    training, read = begin(), []
    for after, num_steps in sorted(
        gaps, reverse=True
    ):  # the next step stays the same until the last one
        for rank in training.ranks:
            rank.batches(batch_size).skip(num_steps, after=after)
    for num_steps in (3, 3) if len(kept) > 6 and resumes else ():
        training = training.save_and_load(begin().ranks)
        read += training.take(num_steps)
    assert read + training.take(len(kept) - len(read)) == kept


def test_gaps_hold_on_other_ranks_and_traces_know_them(lake):
    whole = TokenDataset(lake, seq_len=9, shuffle=False)
    assert whole.num_samples == 29
    batches = whole.batches(2)
    batches.skip(2, after=3)  # samples 6 to 9
    batches.skip(1, after=8)
    state = batches.state_dict()
    assert state["skip"] == [[0, 6, 0, 10], [0, 16, 0, 18]]
    ranks = [
        TokenDataset.from_state(lake, state, shard=Shard(rank=r, world_size=2)) for r in (0, 1)
    ]
    loops = [iter(rank.batches(2)) for rank in ranks]
    read = [
        sorted(n for loop in loops for n in next(loop)["input_ids"][:, 0].tolist())
        for _ in range(4)
    ]
    # A step of four samples: of six samples before the gap, two are in no step.
    firsts = [[first + 9 * n for n in range(4)] for first in (0, 90, 162, 198)]
    assert read == firsts
    after = ranks[0].state_dict()
    assert "skip" not in after
    parts = [(part.start, part.stop, part.world_size, part.batch_size) for part in parts_of(after)]
    assert parts == [
        ((0, 0), (0, 4), 2, 2),
        ((0, 4), (0, 10), 1, 0),
        ((0, 10), (0, 14), 2, 2),
        ((0, 14), (0, 18), 1, 0),
        ((0, 18), (0, 26), 2, 2),
    ]
    ids = [f"{file}-{row}" for file, row in ((0, 2), (1, 0), (3, 0), (3, 3))]
    steps = {(e.step, e.sample) for d in find_exposures(ranks[0], ids) for e in d.exposures}
    allowed = {
        (i, sample) for i, first in enumerate((0, 10, 18, 22)) for sample in range(first, first + 4)
    }
    assert steps
    assert steps <= allowed
    first = TokenDataset.from_state(lake, state)
    next(iter(first.batches(2)))
    assert [row.sample for row in replay(first, step=1).rows] == [4, 5]
    with pytest.raises(LoaderError, match="leaves out samples from sample 6 of epoch 0"):
        replay(first, step=2)


def test_gaps_are_refused_where_they_would_be_missed(lake):
    batches = TokenDataset(lake, **OPTIONS).batches(2)
    loop = iter(batches)
    next(loop)
    batches.skip(2, after=3)
    with pytest.raises(LoaderError, match="the loop goes on with a pass that began before"):
        next(loop)
    loader = DataLoader(batches, batch_size=None, num_workers=1)
    with pytest.raises(LoaderError, match="DataLoader workers, or accelerate, read ahead of them"):
        next(iter(loader))
    state = batches.state_dict()
    for wrong in ([0, -1, 0, 4], [0, 1, "a", 4]):
        with pytest.raises(LoaderError, match="a sample that is skipped must be a whole number"):
            batches.load_state_dict({**state, "skip": [wrong]})
    batches.load_state_dict(state)
    with pytest.raises(LoaderError, match="after must be a whole number"):
        batches.skip(2, after=-1)
    for _ in range(31):
        batches.skip(1, after=9)
    with pytest.raises(LoaderError, match="skipped steps 32 times"):
        batches.skip(1, after=9)


@pytest.fixture(scope="module")
def other(new_place):
    return make_lake(new_place("skipped"), [[[13] * 40, [7] * 30], [[200]]])


def test_each_token_is_seen_or_skipped_and_traces_know_which(lake):
    dataset = TokenDataset(lake, seq_len=9, shuffle=False)
    batches = dataset.batches(2)
    loop = iter(batches)
    seen = next(loop)["input_ids"].flatten().tolist()
    batches.skip(3)
    for batch in batches:
        seen += batch["input_ids"].flatten().tolist()
    whole = dataset.num_samples - dataset.num_samples % 2
    assert seen == [*range(18), *range(72, whole * 9)]
    ids = ["0-2", "1-0", "3-2"]
    places = [(e.step, e.sample) for d in find_exposures(dataset, ids) for e in d.exposures]
    assert {sample for _, sample in places}.isdisjoint(range(2, 8))
    assert all(step == (0 if sample < 2 else sample // 2 - 3) for step, sample in places)
    assert any(sample < 2 for _, sample in places)
    assert any(sample >= 8 for _, sample in places)


def test_skips_next_to_each_other_are_recorded_as_one(lake):
    batches = TokenDataset(lake, **OPTIONS).batches(2)
    batches.skip(2)
    batches.skip(0)
    batches.skip(3)
    (part,) = parts_of(batches.state_dict())
    assert (part.start, part.stop) == ((0, 0), (0, 10))


def test_workers_begin_behind_skipped_steps(lake):
    expected = [rows_of(batch) for batch in TokenDataset(lake, **OPTIONS).batches(2)]
    batches = TokenDataset(lake, **OPTIONS).batches(2)
    batches.skip(3)
    loader = DataLoader(batches, batch_size=None, num_workers=2)
    assert [rows_of(batch) for batch in loader] == expected[3:]
    loop = iter(loader)
    next(loop)
    with pytest.raises(LoaderError, match="had read ahead"):
        batches.skip(1)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it
def test_a_stateful_loader_saves_what_was_skipped(lake):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")
    batches = TokenDataset(lake, **OPTIONS).batches(2)
    batches.skip(3)
    loader = torchdata.StatefulDataLoader(batches, batch_size=None, num_workers=2)
    loop = iter(loader)
    next(loop)
    state = find_state(loader.state_dict())
    assert [part.stop for part in parts_of(state)] == [(0, 6), (0, 8)]


def test_a_replay_refuses_skipped_steps(lake):
    dataset = TokenDataset(lake, **OPTIONS)
    batches = dataset.batches(2)
    batches.skip(3)
    with pytest.raises(LoaderError, match="has skipped the samples before the state"):
        replay(dataset, step=-1, batch_size=2)
    next(iter(batches))
    assert [row.sample for row in replay(dataset, step=-1).rows] == [6, 7]
    with pytest.raises(LoaderError, match="the loader began only 1"):
        replay(dataset, step=-2)


def test_a_training_skips_only_so_many_times(lake):
    dataset = TokenDataset(lake, **OPTIONS)
    for _ in range(32):
        next(iter(dataset.batches(1)))
        dataset.batches(1).skip(1)
    next(iter(dataset.batches(1)))
    with pytest.raises(LoaderError, match="skipped steps 32 times"):
        dataset.batches(1).skip(1)
    with pytest.raises(LoaderError, match="num_steps must be a whole number"):
        dataset.batches(1).skip(-1)
