"""Saved states: they resume anywhere, and consumed samples are not read again."""

from dataclasses import asdict

import pytest
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Shard, Shuffle, TokenDataset
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, make_lake, merged, rows_of

# The pages of a table with empty documents have more values than tokens.
EMPTY_DOCUMENTS = [[[0, 0, 0, 30, 0, 30, 0, 0, 30]] * 2]


@pytest.mark.parametrize("shuffle", [MIXED, False])
@pytest.mark.parametrize("shape", [SMALL, EMPTY_DOCUMENTS])
def test_resuming_at_any_sample_equals_continuing(place, shape, shuffle):
    lake = make_lake(place, shape)

    def fresh() -> TokenDataset:
        return TokenDataset(lake, seq_len=7, shuffle=shuffle)

    dataset = fresh()
    dataset.set_epoch(2)
    whole = expected_rows(dataset, shape, 2)
    states = [dataset.state_dict()] + [dataset.state_dict() for _ in dataset.batches(1)]
    assert len(states) == len(whole) + 1
    for consumed, state in enumerate(states):
        resumed = fresh()
        resumed.load_state_dict(state)
        assert resumed.epoch == 2
        assert resumed.state_dict() == state
        following = expected_rows(resumed, shape, 3)
        assert rows_of(resumed, 2) == (whole[consumed:] or following)
    for epochs in ((2, 3), (3,)):  # a training loop that counts epochs may begin with either
        resumed.load_state_dict(states[-1])
        rows = []
        for epoch in epochs:
            resumed.set_epoch(epoch)
            rows.append(rows_of(resumed))
        assert rows == ([[], following] if 2 in epochs else [following])


def test_epochs_advance_when_a_pass_ends(place):
    lake = make_lake(place, SMALL)
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    whole = [expected_rows(dataset, SMALL, epoch) for epoch in range(4)]
    assert [rows_of(dataset) for _ in range(3)] == whole[:3]
    assert (dataset.epoch, dataset.state_dict()["consumed"]) == (2, len(whole[2]))
    resumed = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    resumed.load_state_dict(dataset.state_dict(consumed=30))
    with pytest.raises(LoaderError, match=r"in epoch 2, but set_epoch\(0\)(.|\n)*set_epoch\(2\)"):
        resumed.set_epoch(0)
    assert [rows_of(resumed), rows_of(resumed)] == [whole[2][30:], whole[3]]
    resumed.set_epoch(3)  # it was read to its end: it is read again
    assert rows_of(resumed) == whole[3]


def test_a_state_resumes_at_another_world_size(lake):
    def ranks(world_size: int) -> list[TokenDataset]:
        return [
            TokenDataset(
                lake, seq_len=5, shuffle=MIXED, shard=Shard(rank=rank, world_size=world_size)
            )
            for rank in range(world_size)
        ]

    order = [row[:-1] for row in expected_rows(ranks(1)[0], SMALL)]
    state, rows = None, []
    for world_size, batch_size, steps in ((4, 2, 2), (2, 3, 1), (3, 1, 4), (1, 4, 99)):
        datasets = ranks(world_size)
        if state is not None:
            for dataset in datasets:
                dataset.load_state_dict(state)
        iterators = [iter(dataset.batches(batch_size, drop_last=False)) for dataset in datasets]
        for _ in range(steps):
            batches = [next(iterator)["input_ids"].tolist() for iterator in iterators]
            rows += merged(batches, order, batch_size)
            states = [dataset.state_dict() for dataset in datasets]
            assert all(each == states[0] for each in states)
            state = states[0]
            if len(rows) == datasets[0].num_samples:
                break
    assert rows == [row[:-1] for row in expected_rows(datasets[0], SMALL)]


def test_with_workers_the_training_loop_passes_the_consumed_samples(lake):
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED, shard=Shard(rank=1, world_size=2))
    whole = rows_of(dataset, 2)
    state = dataset.state_dict(consumed=3 * 2 * 2)  # three steps of two on two ranks
    resumed = TokenDataset(lake, seq_len=7, shuffle=MIXED, shard=Shard(rank=1, world_size=2))
    resumed.load_state_dict(state)
    loader = DataLoader(resumed.batches(2, drop_last=False), batch_size=None, num_workers=2)
    rows = [row for batch in loader for row in batch["input_ids"].tolist()]
    assert rows == [row[:-1] for row in whole[6:]]


def test_resuming_reads_no_consumed_row_group(place):
    shape = [[[20]] for _ in range(6)]  # a file, a row group, a document of twenty tokens each
    lake = make_lake(place, shape)
    shuffle = Shuffle(lanes=1, block_tokens=10_000, run_tokens=10)  # the whole table in one block
    dataset = TokenDataset(lake, seq_len=5, shuffle=shuffle)
    whole = expected_rows(dataset, shape)
    for consumed in range(len(whole) - 1, 0, -1):
        needed = {token // 20 for row in whole[consumed:] for token in row}
        consumed_files = sorted(set(range(6)) - needed)
        resumed = TokenDataset(lake, seq_len=5, shuffle=shuffle)
        resumed.load_state_dict(dataset.state_dict(consumed=consumed))
        paths = [place / "lake" / "tokens" / f"{file:03d}.parquet" for file in consumed_files]
        contents = [path.read_bytes() for path in paths]
        for path in paths:
            path.unlink()
        assert rows_of(resumed, 3) == whole[consumed:]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)


def test_a_state_consists_of_a_few_integers(lake):
    local = Shuffle(lanes=256)  # a store would get another number by default
    state = TokenDataset(lake, seq_len=10, shuffle=local).state_dict()
    assert state.pop("plan") == TokenDataset(lake, seq_len=10, shuffle=local).state_dict()["plan"]
    shuffle = {"lanes": 256, "block_tokens": 266, "run_tokens": 1}
    position = {"version": 1, "seq_len": 10, "seed": 0, "epoch": 0, "consumed": 0}
    position |= {"padded": 0, "best_fit": 0}
    assert state.pop("tensors") == asdict(Format())
    assert state == {"format": 6, "until": 0, **position, **shuffle}
    assert all(type(value) is int for value in state.values())
