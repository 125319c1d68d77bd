"""torchdata's StatefulDataLoader: it resumes, also with other numbers of workers and ranks."""

from itertools import islice

import pytest

from etl.errors import LoaderError
from etl.loader import Shard, TokenDataset
from etl.loader.state import find_state
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, merged

torchdata = pytest.importorskip(
    "torchdata.stateful_dataloader", reason="torchdata is not installed"
)

SLOW = pytest.mark.slow
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create [23] worker processes"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 calls it
]


def open_dataset(lake, rank=0, world_size=1):
    return TokenDataset(
        lake, seq_len=5, shuffle=MIXED, shard=Shard(rank=rank, world_size=world_size)
    )


def loader_of(dataset, workers, batch_size=2, **options):
    batches = dataset.batches(batch_size, drop_last=False)
    return torchdata.StatefulDataLoader(batches, batch_size=None, num_workers=workers, **options)


def take(loader, count):
    return [batch["input_ids"].tolist() for batch in islice(loader, count)]


def flat(batches):
    return [row for batch in batches for row in batch]


@pytest.mark.parametrize(("workers", "prefetch"), [(0, 0), (0, 3), (1, 0), (2, 0), (3, 0)])
def test_the_loader_resumes_from_its_own_state(lake, workers, prefetch):
    epochs = [[row[:-1] for row in expected_rows(open_dataset(lake), SMALL, e)] for e in (0, 1)]

    def fresh():
        batches = open_dataset(lake).batches(2, drop_last=False, prefetch=prefetch)
        return torchdata.StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    for count in (0, 1, 4, 27):
        loader = fresh()
        iterator = iter(loader)
        before = flat(next(iterator)["input_ids"].tolist() for _ in range(count))
        resumed = fresh()
        resumed.load_state_dict(loader.state_dict())
        rest = flat(batch["input_ids"].tolist() for batch in resumed)
        # Nothing is left of the epoch after 27 steps: the next one follows.
        assert before + rest == epochs[0] + (epochs[1] if count == 27 else [])
        del iterator


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_collates_samples_resumes_too(lake, workers):
    def fresh():
        return torchdata.StatefulDataLoader(open_dataset(lake), batch_size=4, num_workers=workers)

    whole = take(fresh(), 99)
    assert flat(whole) == [row[:-1] for row in expected_rows(open_dataset(lake), SMALL)]
    loader = fresh()
    before = take(loader, 3)
    state = loader.state_dict()
    resumed = fresh()
    resumed.load_state_dict(state)
    assert before + take(resumed, 99) == whole
    if workers:
        one, other = state["_snapshot"]["_worker_snapshots"].values()
        one["dataset_state"]["steps"] += 2
        with pytest.raises(LoaderError, match="not at consecutive steps"):
            open_dataset(lake).load_state_dict({"workers": [one, other]})


def test_a_state_resumes_with_other_numbers_of_workers_and_ranks(lake):
    order = [row[:-1] for row in expected_rows(open_dataset(lake), SMALL)]
    state, rows = None, []
    for world_size, workers, batch_size, steps in (
        (1, 2, 2, 3),
        (2, 3, 1, 4),
        (3, 0, 2, 1),
        (4, 1, 1, 2),
        (6, 0, 1, 1),
        (2, 2, 2, 1),
        (1, 0, 4, 99),
    ):
        states, step_rows = [], []
        for rank in range(world_size):
            dataset = open_dataset(lake, rank, world_size)
            if state is not None:
                dataset.load_state_dict(state)
            loader = loader_of(dataset, workers, batch_size)
            step_rows.append(take(loader, steps))
            states.append(loader.state_dict())
        rows += [
            row for step in zip(*step_rows, strict=True) for row in merged(step, order, batch_size)
        ]
        state = {"model": [1.0], "loader": states[0]}
        assert all(find_state(each) == find_state(states[0]) for each in states)
    assert rows == [row[:-1] for row in expected_rows(dataset, SMALL)]


def test_a_state_that_does_not_fit_is_refused(lake):
    dataset = open_dataset(lake)
    loader = loader_of(dataset, 2)
    take(loader, 3)
    other = loader_of(open_dataset(lake), 2, batch_size=3)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(LoaderError, match="saved with 2 samples per step .* this loader has 3"):
        take(other, 1)
    dataset = open_dataset(lake)
    rare = loader_of(dataset, 2, snapshot_every_n_steps=3)
    iterator = iter(rare)
    next(iterator)
    with pytest.raises(LoaderError, match="between two snapshots"):
        dataset.load_state_dict(rare.state_dict())
    with pytest.raises(LoaderError, match="no state of a TokenDataset"):
        dataset.load_state_dict({"model": {"epoch": 1}})
    with pytest.raises(LoaderError, match="the loader reads ahead"):
        dataset.state_dict()
    state = dataset.state_dict(consumed=0)
    with pytest.raises(LoaderError, match="2 dataset states that differ"):
        dataset.load_state_dict({"a": state, "b": {**state, "epoch": 1}})


def epochs_of(lake, count):
    return [[r[:-1] for r in expected_rows(open_dataset(lake), SMALL, e)] for e in range(count)]


def slow_unless(*quick):
    """Return all cases of two numbers of workers, and whether they persist; slow except for a few."""
    cases = [(a, b, p) for a in (0, 2) for b in (0, 1, 2, 3) for p in (False, True) if b or not p]
    return [case if case in quick else pytest.param(*case, marks=SLOW) for case in cases]


@pytest.mark.parametrize(
    ("saved_with", "workers", "persistent"),
    slow_unless((2, 0, False), (0, 2, True), (2, 3, False)),
)
def test_epochs_follow_each_other_whatever_resumes(lake, saved_with, workers, persistent):
    """After 11 steps of the second epoch, and after its last step, with any number of workers."""
    epochs = epochs_of(lake, 4)
    first = loader_of(open_dataset(lake), saved_with)
    assert flat(take(first, 99)) == epochs[0]
    iterator = iter(first)
    for steps in (11, 16):
        rows = [next(iterator)["input_ids"].tolist() for _ in range(steps)]
        state = first.state_dict()
        dataset = open_dataset(lake)
        dataset.load_state_dict(state)
        resumed = loader_of(dataset, workers, persistent_workers=persistent)
        rest = epochs[1][22:] if steps == 11 else []
        passes = [flat(take(resumed, 99)) for _ in range(2)]
        assert passes == [p for p in (rest, *epochs[2:]) if p][:2]
    assert len(rows) == 16
    del iterator


@pytest.mark.parametrize(
    ("steps", "persistent"),
    [
        (25, False),
        (27, True),
        *(pytest.param(steps, p, marks=SLOW) for steps in (1, 13, 26) for p in (False, True)),
    ],
)
def test_a_loader_with_workers_continues_with_the_next_epochs(lake, steps, persistent):
    """Wherever its own state was saved, and in turns of workers that do not begin with the first."""
    epochs = epochs_of(lake, 3)
    loader = loader_of(open_dataset(lake), 2, persistent_workers=persistent)
    before = flat(take(loader, steps))
    state = loader.state_dict()
    dataset = open_dataset(lake)
    resumed = loader_of(dataset, 2, persistent_workers=persistent)
    resumed.load_state_dict(state)
    rest = [p for p in (epochs[0][len(before) :], *epochs[1:]) if p]
    assert flat(take(resumed, 99)) == rest[0]
    iterator = iter(resumed)
    begun = flat(next(iterator)["input_ids"].tolist() for _ in range(3))
    again = loader_of(open_dataset(lake), 2)
    again.load_state_dict(resumed.state_dict())
    assert begun + flat(take(again, 99)) == rest[1]
    dataset.load_state_dict({**dataset.state_dict(consumed=0), "epoch": 2})
    assert flat(take(resumed, 99)) == epochs[2]
    del iterator


@pytest.mark.slow
def test_a_pass_of_workers_that_was_cut_short_continues_from_the_loaders_state(lake):
    epochs = epochs_of(lake, 2)
    for persistent in (False, True):
        loader = loader_of(open_dataset(lake), 2, persistent_workers=persistent)
        assert flat(take(loader, 5)) == epochs[0][:10]
        with pytest.raises(LoaderError, match="cut short"):
            take(loader, 5)
        loader = loader_of(open_dataset(lake), 2, persistent_workers=persistent)
        seen = []
        for _ in range(11):
            seen += flat(take(loader, 5))
            loader.load_state_dict(loader.state_dict())
        assert seen == [row for epoch in epochs for row in epoch][: len(seen)]
