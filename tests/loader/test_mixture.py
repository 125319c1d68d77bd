"""Mixtures: shares, order, ranks and state, compared with a reference that counts samples one by one."""

from collections import Counter
from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake.commit_info import to_commit_info
from etl.loader import Format, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.fetch.token_stream import TokenStream
from etl.loader.order.mixture_order import BLOCK, MixtureOrder, compute_shares
from etl.loader.replay import replay
from tests.helpers.token_tables import make_lake

SHUFFLE = Shuffle(lanes=3, block_tokens=60, run_tokens=100)
WEIGHTS = {"web": 0.5, "code": 0.3, "books": 0.2}


@pytest.fixture(scope="module")
def lakes(new_place):
    """Three tables of 800, 390 and 1,000 windows of five tokens."""
    folder = new_place("mixture")
    shapes = {
        "web": [[[40] * 25, [40] * 25], [[40] * 50]],
        "code": [[[13] * 150]],
        "books": [[[500], [500]] * 5],
    }
    return {name: make_lake(folder / name, shape) for name, shape in shapes.items()}


def mixture_of(lakes, rank=0, world_size=1, **options):
    datasets = {
        name: TokenDataset(
            lake, seq_len=5, shuffle=SHUFFLE, shard=Shard(rank=rank, world_size=world_size)
        )
        for name, lake in lakes.items()
    }
    return TokenMixture(datasets, weights=WEIGHTS, **{"seed": 4, "num_samples": 1500, **options})


def rows_of(mixture, batch_size=1):
    return [
        (source, ids)
        for batch in mixture.batches(batch_size, drop_last=False)
        for source, ids in zip(batch["source"].tolist(), batch["input_ids"].tolist(), strict=True)
    ]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12))
def test_shares_are_within_one_sample_of_the_weights(weights):
    shares = compute_shares(np.array(weights))
    assert shares.sum() == BLOCK
    assert shares.min() >= 1
    exact = np.array(weights) / sum(weights) * BLOCK
    if exact.min() >= 1:
        assert np.abs(shares - exact).max() < 1


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, BLOCK), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 3),
    st.data(),
)
def test_counts_equal_those_of_samples_taken_one_by_one(weights, classes, seed, data):
    sizes = np.array(data.draw(st.lists(st.integers(64, 900), min_size=len(weights), max_size=4)))
    sizes = np.resize(sizes, len(weights))
    later = np.array(data.draw(st.permutations([0, *weights[1:]])), np.float64)
    phases = [np.array(weights, np.float64), later if later.any() else np.ones(len(weights))]
    shares = np.stack([compute_shares(phase) for phase in phases])
    firsts = (0, data.draw(st.integers(1, 5000)))
    mixing = MixtureOrder(shares, sizes, classes, seed, firsts)
    taken: Counter[tuple[int, int]] = Counter()
    block = cache(mixing.block)
    for sample in range(9000):
        if sample % 1000 == 0:
            expected = [sum(taken[k, group] for group in range(classes)) for k in range(len(sizes))]
            assert mixing.counts(sample).tolist() == expected
        group = sample % classes
        phase, number, offset = mixing.find_block(sample)
        assert phase == mixing.phase(sample) == (sample >= firsts[1])
        sources, numbers = block(group, phase, number)
        source = sources[offset]
        assert numbers[offset] == taken[source, group] * classes + group
        taken[source, group] += 1
    for group in range(classes):
        for phase in (0, 1):
            sources, _ = mixing.block(group, phase, 1)
            assert np.bincount(sources, minlength=len(weights)).tolist() == shares[phase].tolist()


def test_each_source_keeps_its_own_order_and_repeats(lakes):
    mixture = mixture_of(lakes, num_samples=4096)
    rows = rows_of(mixture, 8)
    assert mixture.proportions == pytest.approx(WEIGHTS, abs=1 / BLOCK)
    assert mixture.lanes == 3
    counts = Counter(source for source, _ in rows)
    assert mixture.state_dict()["sources"] == {n: counts[i] for i, n in enumerate(mixture.names)}
    for number, dataset in enumerate(mixture.datasets):
        for group in range(3):
            own = [
                ids
                for sample, (source, ids) in enumerate(rows)
                if source == number and sample % 3 == group
            ]
            samples = []
            for epoch in range(6):
                dataset.set_epoch(epoch)
                samples += [sample["input_ids"].tolist() for sample in dataset]
            assert own == samples[group::3][: len(own)]
            assert 3 * len(own) > dataset.num_samples or number != 1  # the small one repeats


@pytest.fixture(scope="module")
def scheduled(lakes):
    """A mixture whose weights change at samples 300 and 900; its first source comes from the second on."""
    phases = [
        (0, {"web": 0, "code": 3, "books": 1}),
        (300, {"web": 1, "code": 1, "books": 2}),
        (900, {"web": 1, "code": 0, "books": 0}),
    ]

    def open_mixture(rank=0, world_size=1):
        plain = mixture_of(lakes, rank, world_size)
        datasets = dict(zip(plain.names, plain.datasets, strict=True))
        return TokenMixture(datasets, weights=Schedule(phases), num_samples=700, seed=5)

    return open_mixture


def test_weights_change_with_the_sample_number_over_epochs(lakes, scheduled):
    mixture = scheduled()
    rows = rows_of(mixture, 8) + rows_of(mixture, 8)
    counts = [
        Counter(source for source, _ in part) for part in (rows[:300], rows[300:900], rows[900:])
    ]
    for count, shares in zip(counts, ([0, 0.75, 0.25], [0.25, 0.25, 0.5], [1, 0, 0]), strict=True):
        assert [count[k] / count.total() for k in range(3)] == pytest.approx(shares, abs=0.01)
    fresh = scheduled()
    assert fresh.proportions == {"web": 0, "code": 0.75, "books": 0.25}
    for consumed in (0, 299, 300, 650, 700, 899, 901, 1399):
        epoch, in_epoch = divmod(consumed, 700)
        state = {**fresh.state_dict(consumed=in_epoch), "epoch": epoch}
        resumed = TokenMixture.from_state(lakes, state)
        assert rows_of(resumed, 4) == rows[consumed : 700 * (epoch + 1)]
        resumed.load_state_dict(state)
        taken = Counter(source for source, _ in rows[:consumed])
        assert resumed.state_dict()["sources"] == {n: taken[k] for k, n in enumerate(fresh.names)}
        name, _ = resumed.locate(in_epoch)
        assert name == fresh.names[rows[consumed][0]]
        assert replay(resumed, batch_size=1).rows[0].source == name


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_order_of_a_schedule(scheduled, world_size):
    whole = rows_of(scheduled())
    ranks = [rows_of(scheduled(rank, world_size), 4) for rank in range(world_size)]
    for first in range(0, 700 // world_size, 4):
        step = [row for rank in ranks for row in rank[first : first + 4]]
        start = first * world_size
        assert sorted(step) == sorted(whole[start : start + len(step)])


def test_each_batch_contains_several_sources(lakes):
    sources = [source for source, _ in rows_of(mixture_of(lakes), 8)]
    windows = [sources[i : i + 30] for i in range(0, 1500, 30)]
    assert all(5 <= window.count(0) <= 25 for window in windows)


@pytest.mark.parametrize("pad_id", [None, 0])
def test_each_token_is_read_about_once(place, monkeypatch, pad_id):
    """Even if samples of a source come slightly out of order, across the borders of its blocks."""
    copied = 0
    copy = TokenStream.copy

    def copy_and_count(tape, start, tokens, *rest):
        nonlocal copied
        copied += len(tokens)
        copy(tape, start, tokens, *rest)

    monkeypatch.setattr(TokenStream, "copy", copy_and_count)
    shuffle = Shuffle(lanes=4, block_tokens=100, run_tokens=4000)  # three lanes, four classes
    datasets = {
        name: TokenDataset(
            make_lake(place / name, [[[5] * 200] * 10]),
            seq_len=5,
            shuffle=shuffle,
            format=Format(pad_id=pad_id),
        )
        for name in ("a", "b", "c")
    }
    mixture = TokenMixture(datasets, weights={"a": 5, "b": 4, "c": 3})
    used = sum(batch["input_ids"].numel() for batch in mixture.batches(8))
    assert used > 20_000
    assert copied < 1.05 * used  # 1.15 if lanes kept only one block


@pytest.mark.parametrize("world_size", [2, 3, 4, 6])
def test_ranks_share_one_order(lakes, world_size):
    whole = rows_of(mixture_of(lakes))
    ranks = [rows_of(mixture_of(lakes, rank, world_size), 4) for rank in range(world_size)]
    for first in range(0, 1500 // world_size, 4):
        step = [row for rank in ranks for row in rank[first : first + 4]]
        start = first * world_size
        assert sorted(step) == sorted(whole[start : start + len(step)])


def test_a_mixture_resumes_at_any_sample(lakes):
    mixture = mixture_of(lakes)
    whole = rows_of(mixture)
    mixture.set_epoch(1)
    whole += rows_of(mixture)
    assert len(whole) == 3000
    for consumed in (0, 1, 700, 1499, 1500, 1501, 2999):
        epoch, in_epoch = divmod(consumed, 1500)
        state = {**mixture.state_dict(consumed=in_epoch), "epoch": epoch}
        resumed = mixture_of(lakes)
        resumed.load_state_dict(state)
        rest = rows_of(resumed, 7)
        assert rest == whole[consumed : 1500 * (epoch + 1)]
        counts = Counter(source for source, _ in whole[:consumed])
        resumed.load_state_dict(state)
        sources = resumed.state_dict()["sources"]
        assert sources == {name: counts[number] for number, name in enumerate(resumed.names)}
    workers = DataLoader(mixture_of(lakes).batches(4), batch_size=None, num_workers=2)
    rows = [ids for batch in workers for ids in batch["input_ids"].tolist()]
    assert rows == [ids for _, ids in whole[:1500]]
    for change in ({"seed": 5}, {"num_samples": 1400}):
        with pytest.raises(LoaderError, match="another order"):
            mixture_of(lakes, **change).load_state_dict(mixture.state_dict())


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it
def test_a_stateful_loader_resumes_and_its_state_fits_a_dataset(lakes):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader(mixture, workers):
        batches = mixture.batches(4, drop_last=False)
        return torchdata.StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    def take(iterable, count=9999):
        return [ids for b in islice(iterable, count) for ids in b["input_ids"].tolist()]

    whole = [ids for _, ids in rows_of(mixture_of(lakes))]
    first = loader(mixture_of(lakes), 2)
    before = take(first, 5)
    resumed = loader(mixture_of(lakes), 2)
    resumed.load_state_dict(first.state_dict())
    assert before + take(resumed) == whole
    alone = mixture_of(lakes)
    alone.load_state_dict(first.state_dict())
    assert before + take(alone.batches(3, drop_last=False)) == whole


def test_a_sample_is_located_in_its_source(lakes):
    mixture = mixture_of(lakes)
    rows = rows_of(mixture)
    for sample in range(0, 1500, 97):
        source, ids = rows[sample]
        name, parts = mixture.locate(sample)
        assert name == mixture.names[source]
        length = {"web": 40, "code": 13, "books": 500}[name]
        assert parts[0].row == ids[0] % {"web": 2000, "code": 1950, "books": 9999}[name] // length
    with pytest.raises(LoaderError, match="sample index 1500 is out of range.* has 1500 samples"):
        mixture.locate(1500)


def test_a_mixture_keeps_the_format_of_its_datasets(lakes):
    wanted = Format(cu_seqlens=True, ignore_boundaries=True)
    both = Format(cu_seqlens=True, ignore_boundaries=True, position_ids=True)
    batches = []
    for form in (wanted, both):
        datasets = {n: TokenDataset(url, seq_len=20, format=form) for n, url in lakes.items()}
        mixture = TokenMixture(datasets, weights=WEIGHTS, num_samples=64)
        batches.append(next(iter(mixture.batches(32))))
    first, second = batches
    names = {"input_ids", "labels", "source", "cu_seqlens", "max_seqlen"}
    assert first.keys() == names
    assert second.keys() == names | {"position_ids"}
    assert all(torch.equal(first[name], second[name]) for name in names)
    begins = (second["position_ids"].reshape(-1) == 0).nonzero().reshape(-1).tolist()
    assert first["cu_seqlens"].tolist() == [*begins, 640]
    padded = {n: TokenDataset(url, seq_len=9, format=Format(pad_id=0)) for n, url in lakes.items()}
    mixture = TokenMixture(padded, weights=WEIGHTS)
    for batch in islice(mixture.batches(4), 3):
        assert batch["attention_mask"].shape == (4, 9)


def test_errors_state_the_mistake(lakes):
    datasets = {name: TokenDataset(lake, seq_len=5) for name, lake in lakes.items()}
    for weights, message in (
        ({"web": 1}, "weights are given for web, but the datasets are web, code, books"),
        ({**WEIGHTS, "code": 0}, "weight of code must be positive and finite, not 0"),
        ({**WEIGHTS, "code": float("nan")}, "weight of code must be .*, not nan"),
    ):
        with pytest.raises(LoaderError, match=message):
            TokenMixture(datasets, weights=weights)
        with pytest.raises(LoaderError, match=message):
            TokenMixture(datasets, weights=Schedule([(0, weights)]))
    for starts in ([], [1], [0, 5, 5], [0, 9, 3]):
        with pytest.raises(LoaderError, match="begin with the samples"):
            Schedule([(start, WEIGHTS) for start in starts])
    with pytest.raises(LoaderError, match="at least one dataset"):
        TokenMixture({}, weights={})
    other = {**datasets, "code": TokenDataset(lakes["code"], seq_len=6)}
    with pytest.raises(LoaderError, match=r"differ in \(seq_len.*code has \(6, Shard"):
        TokenMixture(other, weights=WEIGHTS)
    local = Shuffle(lanes=256)  # a store would get another number by default
    datasets = {n: TokenDataset(lake, seq_len=5, shuffle=local) for n, lake in lakes.items()}
    mixture = TokenMixture(datasets, weights=WEIGHTS)
    # Four classes have 97 samples each of the smallest source, and may be one sample ahead.
    assert mixture.num_samples == 4 * 96 * 4096 // 1229


def test_tables_of_different_tokenizers_cannot_be_mixed(place):
    lakes = {name: make_lake(place / name, [[[40] * 30]]) for name in ("a", "b", "c")}

    def write(name, digit):
        record = {
            "name": f"tok{digit}",
            "sha256": digit * 64,
            "vocab_size": 9,
            "bos_id": None,
            "eos_id": None,
            "append_eos": False,
            "prepend_bos": False,
        }
        Table.open(f"{lakes[name]}/tokens").commit(
            [], transactions={}, commit_info=to_commit_info({"tokenizer": record})
        )

    def mix():
        datasets = {name: TokenDataset(lake, seq_len=5) for name, lake in lakes.items()}
        return TokenMixture(datasets, weights=dict.fromkeys(lakes, 1))

    write("a", "1")
    write("c", "1")
    assert mix().num_samples  # nothing is known of b
    write("b", "2")
    with pytest.raises(LoaderError, match=r"a has tok1 \(sha256 1111.* b has tok2 \(sha256 222"):
        mix()
