"""Mixtures whose windows change their length, compared with streams cut from plain lists."""

from collections import Counter, defaultdict
from functools import cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.epochs import EqualEpochs
from etl.loader.order.mixture_order import MixtureOrder, compute_shares
from etl.loader.order.mixture_stages import MixtureStages, WindowsOf
from etl.loader.replay import replay
from tests.helpers.token_tables import make_lake, merged, naive_passes, rows_of, streams_of

SHUFFLE = Shuffle(lanes=4, block_tokens=60, run_tokens=100)
SHAPES = {
    "web": [[[40] * 25, [40] * 25], [[40] * 50]],
    "code": [[[13] * 150]],
    "books": [[[500], [500]] * 5],
}
WEIGHTS = {"web": 0.5, "code": 0.3, "books": 0.2}
LENGTHS = [(0, 5), (301, 9), (902, 3)]
PASS = 250  # samples
PASSES = 8
Row = tuple[int, list[int]]


@pytest.fixture(scope="module")
def lakes(new_place):
    """Three tables of 4,000, 1,950 and 5,000 tokens."""
    folder = new_place("stages")
    return {name: make_lake(folder / name, shape) for name, shape in SHAPES.items()}


def open_mixture(lakes, rank=0, world_size=1, lengths=LENGTHS, **options) -> TokenMixture:
    datasets = {
        name: TokenDataset(
            lake,
            seq_len=Schedule(lengths),
            shuffle=SHUFFLE,
            shard=Shard(rank=rank, world_size=world_size),
        )
        for name, lake in lakes.items()
    }
    options = {"weights": WEIGHTS, "seed": 4, "num_samples": PASS, **options}
    return TokenMixture(datasets, **options)


def passes_of(mixture, count=PASSES) -> list[list[Row]]:
    """Return the source and the window of each sample, by pass."""
    return [mixed_rows(mixture) for _ in range(count)]


def mixed_rows(mixture, batch_size=1) -> list[Row]:
    rows = []
    for batch in mixture.batches(batch_size, drop_last=False):
        columns = (batch[name].tolist() for name in ("source", "input_ids", "labels"))
        rows += [(source, [*ids, label[-1]]) for source, ids, label in zip(*columns, strict=True)]
    return rows


@pytest.fixture(scope="module")
def passes(lakes):
    return passes_of(open_mixture(lakes))


def naive_numbers(order: MixtureOrder) -> list[tuple[int, int]]:
    """Return the source of each sample, and its number there: the classes take turns until all have ended."""
    block = cache(order.block)
    sources, wanted = [], defaultdict(list)
    for sample in range(order.num_samples or 0):
        group = sample % order.classes
        phase, number, offset = order.find_block(sample)
        source = int(block(group, phase, number)[0][offset])
        sources.append(source)
        wanted[source, group].append(sample)
    numbers: Counter[int] = Counter()
    result: dict[int, int] = {}
    for turn in range(len(sources)):
        for source, group in sorted(wanted):
            if turn < len(wanted[source, group]):
                result[wanted[source, group][turn]] = numbers[source]
                numbers[source] += 1
    return [(source, result[sample]) for sample, source in enumerate(sources)]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.lists(st.integers(1, 6000), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(1, 3000),
    st.data(),
)
def test_a_stage_takes_consecutive_samples_of_each_source(weights, steps, lanes, change, data):
    starts = np.cumsum([0, *steps]).tolist()
    sizes = st.lists(st.integers(64, 900), min_size=len(weights), max_size=len(weights))
    every = np.full(len(weights), lanes)
    windows = [WindowsOf(5, np.array(data.draw(sizes)), every) for _ in starts]
    later = np.array(data.draw(st.permutations([0.0, *weights[1:]])))
    phases = [(0, np.array(weights, float)), (change, later if later.any() else later + 1)]
    plan = EpochPlan(np.array([64 * 5 + 1], np.int32), 5, 0, None)
    epochs = EqualEpochs.of_plan(plan, seq_len=5, table_digest="")
    stages = MixtureStages(
        Schedule(list(zip(starts, windows, strict=True))),
        Schedule(phases),
        seed=data.draw(st.integers(0, 3)),
        num_samples=None,
        sources={str(number): epochs for number in range(len(weights))},
    )
    taken = np.zeros(len(weights), np.int64)
    for start, end in zip(starts, steps, strict=False):
        stage = stages.of_sample(start)
        assert stages.of_sample(start + end - 1) is stage
        assert stage.taken.tolist() == taken.tolist()
        order = stage.order
        expected = naive_numbers(order)
        block = cache(order.block)
        found = []
        for sample in range(end):
            group = sample % order.classes
            phase, number, offset = order.find_block(sample)
            found.append(tuple(int(each[offset]) for each in block(group, phase, number)))
        assert found == expected
        for source in range(len(weights)):
            numbers = sorted(number for of, number in found if of == source)
            assert numbers == list(range(len(numbers)))
            taken[source] += len(numbers)
    assert stages.of_sample(starts[-1]).taken.tolist() == taken.tolist()


def test_each_source_has_each_window_of_its_passes_once(lakes, passes):
    """Each source is cut like a single table whose lengths change with its own samples."""
    mixture = open_mixture(lakes)
    lengths = dict(LENGTHS)
    sizes = [len(rows) for rows in passes]
    assert sizes[:6] == [250, 51, 250, 250, 101, 250]
    starts = np.cumsum([0, *sizes]).tolist()
    taken = np.zeros(3, np.int64)
    phases: list[dict[int, int]] = [{}, {}, {}]
    for start, rows in zip(starts, passes, strict=False):
        if start in lengths:
            for source in range(3):
                phases[source][int(taken[source])] = lengths[start]
        length = max((at, value) for at, value in LENGTHS if at <= start)[1]
        assert {len(ids) - 1 for _, ids in rows} == {length}
        taken += np.bincount([source for source, _ in rows], minlength=3)
    for source, (name, shape) in enumerate(SHAPES.items()):
        streams = streams_of(lakes[name], shape, 6, SHUFFLE)
        expected = naive_passes(streams, list(phases[source].items()))
        windows = Counter(tuple(ids) for rows in passes for of, ids in rows if of == source)
        last = next(  # the newest pass of the source, which has not been read to its end
            number
            for number in range(len(expected))
            if sum(len(each) for _, each in expected[: number + 1]) >= taken[source]
        )
        complete = Counter(tuple(ids) for _, each in expected[:last] for ids in each)
        rest = windows - complete
        assert complete <= windows
        assert rest <= Counter(tuple(ids) for ids in expected[last][1])
        assert last > 0
    shares = compute_shares(np.array(list(WEIGHTS.values()))) / 4096
    assert taken / taken.sum() == pytest.approx(shares, abs=0.01)
    assert mixture.seq_len == 5
    mixture.set_epoch(2)
    assert mixture.seq_len == 9


def test_weights_and_lengths_change_independently(lakes):
    weights = Schedule([(0, {**WEIGHTS, "code": 0}), (700, {"web": 0, "code": 1, "books": 0})])
    mixture = open_mixture(lakes, weights=weights)
    rows = [row for rows in passes_of(mixture, 6) for row in rows]
    assert [len(ids) for _, ids in rows[300:302]] == [6, 10]
    assert {source for source, _ in rows[:698]} == {0, 2}
    assert {source for source, _ in rows[704:]} == {1}
    names = dict(enumerate(mixture.names))
    mixture.load_state_dict({**mixture.state_dict(consumed=99), "epoch": 3})
    taken = Counter(names[source] for source, _ in rows[:650])
    assert mixture.state_dict()["sources"] == {name: taken[name] for name in mixture.names}
    assert mixture.proportions == {"web": 0.71435546875, "code": 0, "books": 0.28564453125}


def test_samples_are_numbered_over_all_passes(lakes, passes):
    mixture = open_mixture(lakes)
    sizes = [len(rows) for rows in passes]
    numbers = np.arange(sum(sizes))
    epochs, samples = mixture.epochs.find(numbers)
    assert epochs.tolist() == np.repeat(np.arange(PASSES), sizes).tolist()
    assert samples.tolist() == [sample for size in sizes for sample in range(size)]
    assert [mixture.epochs.of(epoch).first_sample for epoch in range(PASSES)] == [
        sum(sizes[:epoch]) for epoch in range(PASSES)
    ]


def test_a_state_resumes_at_every_boundary(lakes, passes):
    mixture = open_mixture(lakes)
    for epoch, whole in enumerate(passes[:-1]):
        for consumed in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
            state = {**mixture.state_dict(consumed=consumed), "epoch": epoch}
            resumed = TokenMixture.from_state(lakes, state)
            before = [*chain.from_iterable(passes[:epoch]), *whole[:consumed]]
            taken = Counter(source for source, _ in before)
            assert resumed.state_dict()["sources"] == {
                name: taken[number] for number, name in enumerate(mixture.names)
            }
            if consumed < len(whole):
                assert mixed_rows(resumed, 7) == whole[consumed:]
            assert mixed_rows(resumed, 4) == passes[epoch + 1]
    for lengths in ([(0, 5), (301, 9)], [(0, 5), (301, 9), (903, 3)]):
        other = open_mixture(lakes, lengths=lengths)
        other.load_state_dict(mixture.state_dict(consumed=200))  # long before the length changes
        mixture.set_epoch(5)
        with pytest.raises(LoaderError, match="another order"):
            other.load_state_dict(mixture.state_dict(consumed=1))
        mixture.set_epoch(0)


@pytest.mark.parametrize("world_size", range(2, 9))
def test_ranks_resume_and_share_all_passes(lakes, passes, world_size):
    epoch = 1 + world_size % 3
    consumed = min(99, len(passes[epoch]))
    state = {**open_mixture(lakes).state_dict(), "epoch": epoch, "consumed": consumed}
    shards = [Shard(rank=rank, world_size=world_size) for rank in range(world_size)]
    ranks = [TokenMixture.from_state(lakes, state, shard=shard) for shard in shards]
    if len(passes[epoch]) > consumed:
        rest = [ids for _, ids in passes[epoch][consumed:]]
        found = merged([rows_of(rank, 2) for rank in ranks], rest, 2)
        assert found == rest[: len(rest) // world_size * world_size]
    for later in (2, 3, 4):
        for rank in ranks:
            rank.set_epoch(later)
        whole = [ids for _, ids in passes[later]]
        found = merged([rows_of(rank, 3) for rank in ranks], whole, 3)
        assert found == whole[: len(whole) // world_size * world_size]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_divide_passes_with_different_lanes(lakes, passes, workers):
    batches = open_mixture(lakes).batches(4, drop_last=False)
    loader = DataLoader(batches, batch_size=None, num_workers=workers, persistent_workers=True)
    for whole in passes[:4]:
        rows = [ids for batch in loader for ids in batch["input_ids"].tolist()]
        assert rows == [ids[:-1] for _, ids in whole]


def test_locate_and_replay_follow_the_lengths(lakes, passes):
    mixture = open_mixture(lakes)
    length = {"web": 40, "code": 13, "books": 500}
    total = {"web": 2000, "code": 1950, "books": 5000}
    for epoch in (0, 1, 2, 5):
        locator = mixture.locator(epoch)
        for sample in range(0, len(passes[epoch]), 17):
            source, ids = passes[epoch][sample]
            name, spans = locator.locate(sample)
            assert name == mixture.names[source]
            assert sum(span.count for span in spans) == len(ids)
            for span in spans:
                assert span.row == ids[span.start] % total[name] // length[name]
        state = {**mixture.state_dict(consumed=8), "epoch": epoch}
        replayed = replay(TokenMixture.from_state(lakes, state), batch_size=4, step=-1)
        assert [row.source for row in replayed.rows] == [
            mixture.names[source] for source, _ in passes[epoch][4:8]
        ]
        spans = [passage.span for passage in replayed.rows[-1].passages]
        assert spans == mixture.locate(7, epoch=epoch)[1]


def test_passes_of_the_default_length_exhaust_a_source(lakes):
    mixture = open_mixture(lakes, num_samples=None, lengths=[(0, 5), (5000, 9)])
    rows = mixed_rows(mixture)
    sizes = [dataset.num_samples for dataset in mixture.datasets]
    taken = np.bincount([source for source, _ in rows])
    assert all(taken <= sizes)
    assert max(taken / sizes) > 0.95
    mixture.set_epoch(100)
    assert mixture.seq_len == 9
    assert mixture.num_samples < 0.6 * len(rows)


def test_datasets_need_one_schedule(lakes):
    mixture = open_mixture(lakes)
    datasets = dict(zip(mixture.names, mixture.datasets, strict=True))
    for seq_len in (5, Schedule([(0, 5), (301, 9), (902, 4)])):
        datasets["web"] = TokenDataset(lakes["web"], seq_len=seq_len, shard=mixture.place.shard)
        with pytest.raises(LoaderError, match="the datasets differ in"):
            TokenMixture(datasets, weights=WEIGHTS)
    with pytest.raises(LoaderError, match="Schedule of seq_len is for windows of consecutive"):
        TokenDataset(lakes["web"], seq_len=Schedule(LENGTHS), format=Format(pack="best_fit"))
