"""Loaders that take single samples: the batches of the plan, with any number of workers, as replay says."""

from itertools import islice

import pytest
from torch.utils.data import DataLoader, IterableDataset

from etl.errors import LoaderError
from etl.loader import Format, Shard, TokenDataset
from etl.loader.replay import replay
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, merged

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create [0-9]+ worker processes"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 calls it
]

SLOW = pytest.mark.slow


def open_dataset(lake, rank=0, world_size=1, **options):
    shard = Shard(rank=rank, world_size=world_size)
    return TokenDataset(lake, seq_len=7, shuffle=MIXED, shard=shard, **options)


def read(loader, count=None):
    return [batch["input_ids"].tolist() for batch in islice(loader, count)]


def replayed(dataset, order, step, batch_size=None):
    """Return the windows of a step that replay names, None if it names none."""
    try:
        rows = replay(dataset, batch_size=batch_size, step=step).rows
    except LoaderError:
        return None
    return [order[row.sample][:-1] for row in rows]


@pytest.mark.parametrize("workers", [0, 2, *(pytest.param(n, marks=SLOW) for n in (1, 3, 12))])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    ("world_size", "batch_size"), [(1, 4), pytest.param(2, 3, marks=SLOW), (3, 5)]
)
def test_every_batch_is_the_one_that_replay_names(lake, world_size, batch_size, workers, drop_last):
    """37 windows: on 3 ranks, the last batches of 5 have 2 rows."""
    order = expected_rows(open_dataset(lake), SMALL)
    ranks = []
    for rank in range(world_size):
        dataset = open_dataset(lake, rank, world_size)
        batches = read(DataLoader(dataset, batch_size, num_workers=workers, drop_last=drop_last))
        ranks.append([row for batch in batches for row in batch])
        fresh = open_dataset(lake, rank, world_size)
        assert batches == read(fresh.batches(batch_size, drop_last=drop_last))
        named = [replayed(fresh, order, step - len(batches)) for step in range(len(batches))]
        assert named == batches
        state = fresh.state_dict()
        assert state["read"][-1]["batch_size"] == batch_size
        for step in (0, -len(batches) - 1):
            assert replayed(fresh, order, step) is None
    rows = merged(ranks, [row[:-1] for row in order], batch_size)
    assert rows == [row[:-1] for row in order][: len(rows)]
    assert (
        len(rows)
        == (36 if world_size > 1 or drop_last else 37) - (drop_last and world_size == 3) * 6
    )


def resumed_batches(lake, changes, world_size):
    """Read one epoch with a new loader after each few steps; return the batches and the windows named."""
    order = expected_rows(open_dataset(lake), SMALL)
    given, named = [], []
    for rank in range(world_size):
        consumed = 0
        for workers, batch_size, steps in changes:
            dataset = open_dataset(lake, rank, world_size)
            if consumed:
                dataset.load_state_dict(dataset.state_dict(consumed=consumed))
            state = dataset.state_dict()
            loader = DataLoader(dataset, batch_size, num_workers=workers)
            batches = read(loader, steps)
            given += batches
            for step in range(len(batches)):
                before = open_dataset(lake, rank, world_size)
                before.load_state_dict(state)
                named.append(replayed(before, order, step, batch_size))
            consumed += steps * batch_size * world_size
    return given, named


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_resume_in_mid_epoch_with_other_workers_is_replayed(lake, world_size):
    changes = [(2, 2, 3), (0, 1, 2), (3, 2, 1), (1, 3, 9)]
    given, named = resumed_batches(lake, changes, world_size)
    assert named == given
    order = [row[:-1] for row in expected_rows(open_dataset(lake), SMALL)]
    rows = [row for batch in given for row in batch]
    assert sorted(rows) == sorted(order[: 37 - 37 % world_size])


def test_a_spawned_worker_reads_whole_batches_too(lake):
    dataset = open_dataset(lake)
    expected = read(dataset.batches(4, drop_last=False))
    spawned = DataLoader(
        Renamed(open_dataset(lake)), 4, num_workers=2, multiprocessing_context="spawn"
    )
    assert [batch["tokens"].tolist() for batch in spawned] == expected


class Renamed(IterableDataset):
    """What programs put between a dataset and its loader."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        for sample in self.dataset:
            yield {"tokens": sample["input_ids"]}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_dataset_in_between_leaves_the_order(lake, workers):
    loader = DataLoader(Renamed(open_dataset(lake)), 4, num_workers=workers)
    expected = read(open_dataset(lake).batches(4, drop_last=False))
    assert [batch["tokens"].tolist() for batch in loader] == expected


class Odd(IterableDataset):
    """Passes on only some samples, and the state of its dataset."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return filter(lambda sample: sample["input_ids"][0] % 2, iter(self.dataset))

    def state_dict(self):
        return self.dataset.state_dict()

    def load_state_dict(self, state):
        self.dataset.load_state_dict(state)


def test_a_dataset_that_drops_rows_has_an_exact_state_or_none(lake):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is missing")
    order = [row[:-1] for row in expected_rows(open_dataset(lake), SMALL)]
    kept = [row for row in order if row[0] % 2]
    source = Odd(open_dataset(lake))
    loader = DataLoader(source, 3)
    iterator = iter(loader)
    rows = [row for _ in range(2) for row in next(iterator)["input_ids"].tolist()]
    resumed = Odd(open_dataset(lake))
    resumed.load_state_dict(source.state_dict())
    rows += [row for batch in read(DataLoader(resumed, 3)) for row in batch]
    assert rows == kept
    stateful = torchdata.StatefulDataLoader(Odd(open_dataset(lake)), 3, num_workers=1)
    with pytest.raises(LoaderError, match="does not pass on all samples"):
        read(stateful, 2)
    ranked = Odd(open_dataset(lake, 0, 2))
    next(iter(DataLoader(ranked, 3)))
    with pytest.raises(LoaderError, match="does not pass on all samples"):
        ranked.state_dict()


def test_samples_that_cannot_be_stacked_keep_the_order(lake):
    wanted = Format(cu_seqlens=True)
    loaders = (
        DataLoader(open_dataset(lake, format=wanted), 4, num_workers=n, collate_fn=list)
        for n in (0, 2)
    )
    alone, workers = (
        [[r["cu_seqlens"].tolist() for r in batch] for batch in each] for each in loaders
    )
    assert alone == workers
    assert [len(batch) for batch in alone] == [4] * 9 + [1]


def test_a_loader_without_batches_returns_the_samples_in_order(lake):
    order = [row[:-1] for row in expected_rows(open_dataset(lake), SMALL)]
    for workers in (0, 2):
        loader = DataLoader(open_dataset(lake), batch_size=None, num_workers=workers)
        assert read(loader) == order


def test_replay_refuses_what_contradicts_the_state(lake):
    dataset = open_dataset(lake)
    read(dataset.batches(4), 3)
    assert replay(dataset, step=-1).order.startswith(
        "of the plan, in batches of 4 on 1 rank from sample 0"
    )
    with pytest.raises(LoaderError, match="records a loader with batches of 4 on 1 rank"):
        replay(dataset, step=-1, batch_size=2)
    assert "(assumed)" in replay(dataset, step=1, batch_size=2).order
    resumed = open_dataset(lake)
    resumed.load_state_dict(dataset.state_dict())
    assert replay(resumed, step=-1) == replay(dataset, step=-1)
    read(resumed.batches(2), 2)
    assert [row.sample for row in replay(resumed, step=-2).rows] == [12, 13]
    with pytest.raises(LoaderError, match="began only 2 steps before the state, at sample 12"):
        replay(resumed, step=-3)
    last = open_dataset(lake)
    read(last.batches(4, drop_last=False))
    assert [row.sample for row in replay(last, step=-1).rows] == [36]
    assert "incomplete" in replay(last, step=-1).order
    with pytest.raises(LoaderError, match="the batch size is unknown"):
        replay(open_dataset(lake))
    with pytest.raises(LoaderError, match="at least 1, not 0"):
        replay(dataset, batch_size=0)


def test_states_of_collating_workers_continue_with_any_loader(lake):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is missing")
    expected = read(open_dataset(lake).batches(4, drop_last=False))
    for steps in (1, 3, 9):
        loader = torchdata.StatefulDataLoader(open_dataset(lake), 4, num_workers=2)
        iterator = iter(loader)
        before = [next(iterator)["input_ids"].tolist() for _ in range(steps)]
        dataset = open_dataset(lake)
        dataset.load_state_dict(loader.state_dict())
        order = expected_rows(dataset, SMALL)
        assert [replayed(dataset, order, step) for step in range(-steps, 0)] == before
        assert before + read(DataLoader(dataset, 4, num_workers=3)) == expected
        del iterator
