"""Mixtures whose plan changes while they are read, compared with counts of samples in plain lists."""

import itertools
from collections import Counter
from copy import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, PlanChange, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.replay import replay
from tests.helpers.token_tables import make_lake

SHUFFLE = Shuffle(lanes=6, block_tokens=20, run_tokens=50)
NUMBERED = Format(sample_numbers=True)
OPTIONS = {"seq_len": 5, "shuffle": SHUFFLE, "format": NUMBERED}
PASS = 230  # samples of an epoch of the mixture
NAMES = ["web", "code", "books", "new"]
Row = tuple[int, int, list[int]]


@pytest.fixture(scope="module")
def lakes(new_place):
    """Tables with 384 windows or more: none has fewer classes than lanes."""
    folder = new_place("changes")
    shapes = [[[[40] * 25, [40] * 25]], [[[13] * 150]], [[[500]] * 5], [[[7] * 300]]]
    return {
        name: make_lake(folder / name, shape) for name, shape in zip(NAMES, shapes, strict=True)
    }


@pytest.fixture(scope="module")
def own_orders(lakes):
    """Return what finds a window of a source alone, counted over its epochs."""
    orders = {}
    for name, lake in lakes.items():
        dataset = TokenDataset(lake, **OPTIONS)
        epochs = [rows_of(dataset.batches(16, drop_last=False)) for _ in range(6)]
        orders[name] = [window for _, _, window in itertools.chain(*epochs)]
    return lambda name, number: orders[name][number]


def rows_of(batches) -> list[Row]:
    """Return the number, the source and the tokens of each row."""
    rows: list[Row] = []
    for batch in batches:
        sources = batch.get("source", torch.zeros(len(batch["sample"])))
        columns = (each.tolist() for each in (batch["sample"], sources, batch["input_ids"]))
        rows += zip(*columns, strict=True)
    return rows


def open_mixture(lakes, weights, **options) -> TokenMixture:
    names = weights.values[0] if isinstance(weights, Schedule) else weights
    datasets = {name: TokenDataset(lakes[name], **OPTIONS) for name in names}
    return TokenMixture(datasets, weights=weights, **{"seed": 3, "num_samples": PASS, **options})


def check(rows: list[Row], names: list[str], orders, *, classes: int) -> Counter:
    """Check that each sample came once, and in each class the next one of its source; return the counts."""
    rows = sorted(rows)
    assert [sample for sample, _, _ in rows] == list(range(len(rows)))
    counts: Counter[tuple[str, int]] = Counter()
    for sample, source, window in rows:
        name, of_class = names[source], sample % classes
        number = counts[name, of_class] * classes + of_class
        assert window == orders(name, number)
        counts[name, of_class] += 1
    return counts


WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 20), min_size=1)


PLANS = st.lists(
    st.tuples(WEIGHTS, st.integers(1, 4), st.integers(1, 5), st.integers(1, 9), st.integers(0, 3)),
    min_size=4,
    max_size=4,
)


def check_plans(lakes, own_orders, plans) -> None:
    """Each change has other weights, sources, ranks and batches, and a kill after some further steps."""
    mixture = open_mixture(lakes, plans[0][0])
    classes = mixture.lanes
    rows: list[Row] = []
    state = mixture.state_dict()
    for nth, (weights, world_size, batch_size, num_steps, num_lost) in enumerate(plans):
        if PASS - state["consumed"] < batch_size * world_size:
            return  # a step of so many samples would leave out the rest of the epoch
        change = PlanChange(weights=weights) if nth else PlanChange()
        added = [name for name in change.weights or {} if name not in state["datasets"]]
        ranks = []
        for rank in range(world_size):
            shard = Shard(rank=rank, world_size=world_size)
            sources = lakes_of(lakes, state["datasets"])
            sources |= {n: TokenDataset(lakes[n], shard=shard, **OPTIONS) for n in added}
            ranks.append(TokenMixture.from_state(sources, state, change=change, shard=shard))
        loops = [iter(rank.batches(batch_size)) for rank in ranks]
        kept: list[Row] = []
        for step in range(num_steps + num_lost):
            if step == num_steps:
                state = ranks[0].state_dict()
                assert [rank.state_dict() for rank in ranks] == [state] * world_size
            for mixture, loop in zip(ranks, loops, strict=True):
                batch = next(loop, None)
                if batch is None:  # the end of an epoch, which leaves out less than a step
                    left = PASS - mixture.state_dict()["consumed"]
                    assert left < batch_size * world_size
                    return
                kept += rows_of([batch]) if step < num_steps else []
        if not num_lost:
            state = ranks[0].state_dict()
        rows += kept
        mixture = ranks[0]
    counts = check(rows, mixture.names, own_orders, classes=classes)
    taken = {name: sum(counts[name, c] for c in range(classes)) for name in mixture.names}
    assert state["sources"] == taken
    resumed = TokenMixture.from_state(lakes_of(lakes, taken), state)
    for sample, source, window in rows:
        epoch, in_epoch = divmod(sample, PASS)
        name, spans = resumed.locate(in_epoch, epoch=epoch)
        assert name == mixture.names[source]
        assert sum(span.count for span in spans) == len(window) + 1


@settings(max_examples=3)
@given(PLANS)
def test_three_changes_neither_repeat_nor_lose_a_token(lakes, own_orders, plans):
    check_plans(lakes, own_orders, plans)


@pytest.mark.slow
@settings(max_examples=60)
@given(PLANS)
def test_no_three_changes_repeat_or_lose_a_token(lakes, own_orders, plans):
    check_plans(lakes, own_orders, plans)


def test_a_plan_with_the_same_past_is_accepted_and_another_is_not(lakes):
    both = {"web": 1, "code": 1}
    mixture = open_mixture(lakes, both)
    before = list(itertools.islice(mixture.batches(8), 20))
    state = mixture.state_dict()
    planned = open_mixture(lakes, Schedule([(0, both), (160, {"web": 2, "code": 1})]))
    planned.load_state_dict(state)
    changed = TokenMixture.from_state(
        lakes_of(lakes, both), state, change=PlanChange(weights={"web": 2, "code": 1})
    )
    expected = rows_of(changed.batches(7))
    assert rows_of(planned.batches(7)) == expected
    assert [sample for sample, _, _ in rows_of(before) + expected] == list(
        range(160 + len(expected))
    )
    assert Counter(source for _, source, _ in expected)[0] > 38
    for weights in ({"web": 2, "code": 1}, Schedule([(0, both), (159, {"web": 2, "code": 1})])):
        with pytest.raises(LoaderError, match="another order"):
            open_mixture(lakes, weights).load_state_dict(state)


def lakes_of(lakes, names):
    return {name: lakes[name] for name in names}


@pytest.mark.parametrize("prefetch", [0, 3])
def test_weights_are_set_while_training_and_recorded(lakes, own_orders, prefetch):
    mixture = open_mixture(lakes, {"web": 1, "code": 1, "books": 1})
    other = copy(mixture)
    rows = []
    for step, batch in enumerate(mixture.batches(5, prefetch=prefetch)):
        rows += rows_of([batch])
        if step == 9:
            mixture.set_weights({"web": 3, "code": 0, "books": 1}, at=93)
            assert mixture.proportions["code"] > 0.3
            with pytest.raises(LoaderError, match=r"cannot change at sample 49: samples up to"):
                mixture.set_weights({"web": 1, "code": 1, "books": 1}, at=49)
        if step == 30:
            mixture.set_weights({"web": 1, "code": 3, "books": 0}, at=171)
    check(rows, mixture.names, own_orders, classes=mixture.lanes)
    assert {source for sample, source, _ in rows if 93 <= sample < 171} == {0, 2}
    assert {source for sample, source, _ in rows if sample >= 171} == {0, 1}
    state = mixture.state_dict()
    assert [start for start, _ in state["weights"]] == [0, 93, 171]
    lakes = lakes_of(lakes, mixture.names)
    resumed = TokenMixture.from_state(lakes, state)
    assert resumed.state_dict() == state
    again = TokenMixture.from_state(lakes, {**state, "epoch": 0, "consumed": 0})
    assert rows_of(again.batches(5)) == rows
    replayed = replay(resumed, step=-25)
    assert [row.source for row in replayed.rows] == [
        mixture.names[source] for _, source, _ in rows[-125:-120]
    ]
    # A copy keeps its own plan.
    assert [source for _, source, _ in rows_of(other.batches(5))] != [
        source for _, source, _ in rows
    ]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")
def test_weights_are_not_set_behind_the_back_of_workers(lakes):
    mixture = open_mixture(lakes, {"web": 1, "code": 1})
    loader = DataLoader(mixture.batches(5), batch_size=None, num_workers=2, persistent_workers=True)
    loop = iter(loader)
    next(loop)
    with pytest.raises(LoaderError, match="workers of a DataLoader read ahead"):
        mixture.set_weights({"web": 1, "code": 3}, at=200)
    list(loop)
    mixture.set_weights({"web": 0, "code": 1}, at=PASS)
    with pytest.raises(LoaderError, match="set after the workers of this DataLoader had started"):
        list(loader)
    fresh = DataLoader(mixture.batches(5), batch_size=None, num_workers=2)
    assert {source for _, source, _ in rows_of(fresh)} == {1}


def test_changes_that_are_not_possible_say_so(lakes):
    mixture = open_mixture(lakes, {"web": 1, "code": 1})
    next(iter(mixture.batches(8)))
    state = mixture.state_dict()
    two = lakes_of(lakes, ["web", "code"])
    for given_lakes, weights, message in (
        (
            two,
            {"web": 1, "new": 1},
            "lakes are given for web, code, but .* the change are web, code, new",
        ),
        (lakes_of(lakes, ["code"]), {"code": 1}, "lakes are given for code, but"),
        (two, {"web": -1, "code": 1}, "weight of web must be positive"),
        (two, {"web": 1e-9, "code": 1}, "less than 1/4,096"),
    ):
        with pytest.raises(LoaderError, match=message):
            TokenMixture.from_state(given_lakes, state, change=PlanChange(weights=weights))
    for weights, at, message in (
        ({"web": 1}, 50, "weights are given for web, but the datasets are web, code"),
        ({"web": 1, "code": 1}, 7, "cannot change at sample 7"),
        ({"web": 1, "code": 1}, -1, "at must be a whole number"),
    ):
        with pytest.raises(LoaderError, match=message):
            mixture.set_weights(weights, at=at)
    assert mixture.state_dict() == state


def test_weights_change_before_a_length_cuts_the_epochs_of_the_sources(lakes, own_orders):
    def open_scheduled(at):
        lengths = Schedule([(0, 5), (at, 9)])
        options = {**OPTIONS, "seq_len": lengths}
        datasets = {name: TokenDataset(lakes[name], **options) for name in ("web", "code")}
        return TokenMixture(datasets, weights={"web": 1, "code": 2}, seed=3, num_samples=400)

    def change(mixture, consumed, weights):
        state = mixture.state_dict(consumed=consumed)
        two = lakes_of(lakes, mixture.names)
        return TokenMixture.from_state(two, state, change=PlanChange(weights=weights))

    # After 1,900 samples, each source begins at least one other epoch.
    mixture = open_scheduled(1901)
    rows = rows_of(mixture.batches(10))[:100]
    mixture.set_epoch(0)
    rows += rows_of(change(mixture, 100, {"web": 2, "code": 1}).batches(1))
    check(rows, mixture.names, own_orders, classes=mixture.lanes)
    assert len(rows) == 400
    # In 301 samples, none does: how many windows its epoch has depends on the weights.
    mixture = open_scheduled(301)
    for consumed in (100, 299):
        with pytest.raises(
            LoaderError, match="where to end an epoch of a source is already planned"
        ):
            change(mixture, consumed, {"web": 2, "code": 1})
    with pytest.raises(LoaderError, match="the length of the windows changes at sample 301"):
        mixture.set_weights({"web": 2, "code": 1}, at=300)
    mixture.set_epoch(1)
    changed = change(mixture, 10, {"web": 0, "code": 1})
    assert {source for _, source, _ in rows_of(changed.batches(1))} == {1}
