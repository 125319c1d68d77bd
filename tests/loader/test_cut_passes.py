"""Passes that a loop leaves before their end: the next one continues, or is refused."""

from itertools import islice

import pytest
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import TokenDataset, TokenMixture
from tests.helpers.token_tables import MIXED, SMALL, expected_rows

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create [23] worker processes")


def open_dataset(lake, **options):
    return TokenDataset(lake, seq_len=7, shuffle=MIXED, **options)


def epochs(lake, count):
    return [[row[:-1] for row in expected_rows(open_dataset(lake), SMALL, e)] for e in range(count)]


def take(loader, count):
    return [row for batch in islice(loader, count) for row in batch["input_ids"].tolist()]


def loaders(dataset):
    return {
        "batches": dataset.batches(3),
        "prefetch": dataset.batches(3, prefetch=5),
        "DataLoader": DataLoader(dataset.batches(3), batch_size=None),
        "rows": DataLoader(dataset, batch_size=3, drop_last=True),
    }


@pytest.mark.parametrize("kind", ["batches", "prefetch", "DataLoader", "rows"])
@pytest.mark.parametrize("limit", [1, 4, 5, 12])
def test_a_loop_with_a_limit_sees_every_window_once(lake, kind, limit):
    expected = [row for epoch in epochs(lake, 3) for row in epoch[:36]]
    loader = loaders(open_dataset(lake))[kind]
    seen: list[list[int]] = []
    while len(seen) < 100:
        part = take(loader, limit)
        seen += part
        assert len(part) <= 3 * limit
    assert seen == expected[: len(seen)]


def test_kinds_of_loaders_can_alternate(lake):
    expected = [row for epoch in epochs(lake, 2) for row in epoch[:36]]
    dataset = open_dataset(lake)
    seen: list[list[int]] = []
    for kind in ["batches", "prefetch", "DataLoader", "rows"] * 2:
        seen += take(loaders(dataset)[kind], 2)
    # Workers begin where this process is, too.
    seen += take(DataLoader(dataset.batches(3), batch_size=None, num_workers=2), 99)
    assert seen == expected[: len(seen)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("as_rows", [False, True])
def test_workers_that_ran_ahead_do_not_repeat_in_silence(lake, as_rows, persistent):
    dataset = open_dataset(lake)
    data, batch_size = (dataset, 3) if as_rows else (dataset.batches(3), None)
    loader = DataLoader(data, batch_size=batch_size, num_workers=2, persistent_workers=persistent)
    first = take(loader, 2)
    for again in (loader, DataLoader(dataset.batches(3), batch_size=None), dataset.batches(3)):
        with pytest.raises(LoaderError, match="(?s)cut short.*load_state_dict.*repeat=True"):
            take(again, 1)
    dataset.load_state_dict(dataset.state_dict(samples_seen=6))
    whole = epochs(lake, 1)[0]
    assert first + take(loader, 99) == (whole if as_rows else whole[:36])


def test_an_epoch_that_is_selected_may_follow_a_cut_one(lake):
    dataset = open_dataset(lake)
    loader = DataLoader(dataset.batches(3), batch_size=None, num_workers=2)
    take(loader, 2)
    dataset.set_epoch(0)  # it is the one that was cut short
    with pytest.raises(LoaderError, match="cut short"):
        take(loader, 1)
    dataset.set_epoch(1)
    assert take(loader, 99) == epochs(lake, 2)[1][:36]


@pytest.mark.parametrize("workers", [0, 2])
def test_repeat_begins_again(lake, workers):
    dataset = open_dataset(lake, repeat=True)
    loader = DataLoader(dataset.batches(3), batch_size=None, num_workers=workers)
    expected = epochs(lake, 2)
    for _ in range(3):
        assert take(loader, 4) == expected[0][:12]
    assert take(loader, 99) == expected[0][:36]
    assert take(loader, 4) == expected[1][:12]


def test_a_mixture_continues_and_repeats_as_its_datasets(lake):
    for repeat in (False, True):
        mixture = TokenMixture({"a": open_dataset(lake, repeat=repeat)}, weights={"a": 1})
        first, second = take(mixture.batches(3), 2), take(mixture.batches(3), 2)
        assert (first == second) == repeat
        assert first + second == (first * 2 if repeat else epochs(lake, 1)[0][:12])


def test_counts_of_samples_are_checked(lake):
    dataset = open_dataset(lake)
    state = dataset.state_dict()
    for name, value in [("consumed", 38), ("consumed", -1), ("epoch", -1), ("consumed", 3.0)]:
        with pytest.raises(
            LoaderError, match=f"{name} (is 38 samples, but epoch 0 has 37|must be)"
        ):
            dataset.load_state_dict({**state, name: value})
    wrong: list[object] = ["3", None, 2.5, True, [3]]
    for each in wrong:
        for key in ("consumed", "epoch"):
            with pytest.raises(LoaderError, match=f"{key} must be a whole number"):
                dataset.load_state_dict({**state, key: each})
    for counts in (
        {"consumed": 38},
        {"consumed": 1.5},
        {"samples_seen": -3},
        {"samples_seen": "9"},
    ):
        with pytest.raises(LoaderError, match=next(iter(counts))):
            dataset.state_dict(**counts)
    with pytest.raises(LoaderError, match="both consumed and samples_seen"):
        dataset.state_dict(consumed=3, samples_seen=3)
    numbers = {"worker": 0, "workers": 1, "steps": 1, "stride": 3, "end": 36}
    for key in numbers:
        with pytest.raises(LoaderError, match=f"{key} must be a whole number"):
            dataset.load_state_dict({**state, **numbers, key: "x"})
    for epoch in (-1, "1", 0.5):
        with pytest.raises(LoaderError, match="epoch must be"):
            dataset.set_epoch(epoch)
    with pytest.raises(LoaderError, match="(?s)38 samples.*samples_seen"):
        dataset.state_dict(consumed=38)


def test_samples_are_counted_over_all_epochs(lake):
    """Incomplete steps at the end of an epoch are in no batch, and are not counted."""
    expected = epochs(lake, 4)
    for batch_size, drop_last in ((5, True), (5, False), (4, True), (37, True)):
        dataset = open_dataset(lake)
        batches = dataset.batches(batch_size, drop_last=drop_last)
        seen = 0
        for _ in range(3):
            for batch in batches:
                seen += len(batch["input_ids"])
                assert batches.state_dict(samples_seen=seen) == dataset.state_dict()
                assert dataset.state_dict(samples_seen=seen) == dataset.state_dict()
    assert seen == 3 * 37
    fresh = open_dataset(lake)
    assert fresh.state_dict(samples_seen=30)["consumed"] == 30
    with pytest.raises(LoaderError, match=r"(?s)size of the steps is unknown.*dataset.batches"):
        fresh.state_dict(samples_seen=38)
    state = fresh.batches(5).state_dict(samples_seen=2 * 35 + 10)
    fresh.load_state_dict(state)
    assert take(fresh.batches(5), 1) == expected[2][10:15]
