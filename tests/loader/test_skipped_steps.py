"""Trainings that leave out steps, compared with one that reads and forgets them."""

import json

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
