"""Ranks are those of the moment of iteration: of torch.distributed, a mesh, a group, or the environment."""

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Shard, TokenDataset, open_shared
from etl.loader.ranks import Rank
from etl.loader.steps import Steps
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, make_lake, merged, rows_of


def windows(dataset, epoch=0):
    return expected_rows(dataset, SMALL, epoch)


def read_dataset(dataset, workers):
    loader = DataLoader(dataset.batches(2), batch_size=None, num_workers=workers)
    return [row for batch in loader for row in batch["input_ids"].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_built_before_the_process_group_is_divided(lake, tmp_path, workers):
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    assert (dataset.rank, dataset.world_size, len(dataset)) == (0, 1, 37)
    ranks = run_ranks(read_dataset, dataset, workers, folder=tmp_path)
    expected = [row[:-1] for row in windows(dataset)]
    assert merged(ranks, expected, 2) == expected[:36]


def read_of_groups(lake):
    """Read by tensor-parallel ranks, which need the same samples, and by one group of a single rank."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    groups = [dist.new_group([rank]) for rank in range(2)]
    own = groups[dist.get_rank()]
    shards = [
        Shard(mesh=mesh["dp"]),
        Shard(mesh=mesh),
        Shard(mesh=mesh["tp"]),
        Shard(process_group=own),
        Shard(rank=0, world_size=1),
    ]
    rows = [rows_of(TokenDataset(lake, seq_len=7, shuffle=MIXED, shard=shard)) for shard in shards]
    messages = []
    for shard in (
        Shard(rank=1 - dist.get_rank(), world_size=2),
        Shard(rank=1, world_size=3),
        Shard(process_group=groups[1 - dist.get_rank()]),
    ):
        try:
            TokenDataset(lake, seq_len=7, shard=shard).batches(1).__iter__()
        except LoaderError as error:
            messages.append(str(error))
    return rows, messages


def test_meshes_and_groups_name_the_ranks_that_divide_the_data(place, tmp_path):
    lake = make_lake(place, SMALL)
    whole = windows(TokenDataset(lake, seq_len=7, shuffle=MIXED))
    (first, messages), (second, _) = run_ranks(read_of_groups, lake, folder=tmp_path)
    for number in (0, 3, 4):
        assert first[number] == second[number] == whole
    for number in (1, 2):
        assert merged([first[number], second[number]], whole) == whole[:36]
    assert "rank 1 of 2 does not fit torch.distributed, where this process is rank 0" in messages[0]
    assert "rank 1 of 3 does not fit" in messages[1]
    assert "not in the process group" in messages[2]


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 20), st.integers(0, 99))
def test_a_step_is_divided_among_the_ranks(batch_size, world_size, lanes, first):
    step = range(first, first + batch_size * world_size)
    parts = []
    for rank in range(world_size):
        steps = Steps(
            batch_size=batch_size, rank=Rank(rank, world_size), lanes=lanes, drop_last=True
        )
        own = list(steps.samples(step))
        assert own == sorted(own)
        assert len(own) == batch_size
        if lanes % world_size == 0:
            assert {sample % lanes % world_size for sample in own} == {rank}
        parts += own
    assert sorted(parts) == list(step)


def test_a_shard_names_the_ranks_in_one_way():
    with pytest.raises(LoaderError, match="more than one of mesh, process_group, and rank"):
        Shard(rank=0, world_size=2, process_group=object())
    with pytest.raises(LoaderError, match="rank None is not valid for world size 2"):
        Shard(world_size=2)


def open_once(lake):
    """Open a dataset on rank 0, and return the windows of this rank and what it has read to open it."""
    opened = []

    def open_dataset():
        opened.append(lake)
        return TokenDataset(lake, seq_len=7, shuffle=MIXED)

    dataset = open_shared(open_dataset)
    epochs = [rows_of(dataset, 2), rows_of(dataset, 2)]
    try:
        open_shared(lambda: TokenDataset(f"{lake}/nothing", seq_len=7))
    except LoaderError as error:
        return epochs, opened, str(error)
    return epochs, opened, ""


def test_rank_0_can_open_a_dataset_for_all(lake, tmp_path):
    (first, opened, message), (second, none, same) = run_ranks(open_once, lake, folder=tmp_path)
    alone = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    for epoch in (0, 1):
        expected = windows(alone, epoch)
        assert merged([first[epoch], second[epoch]], expected, 2) == expected[:36]
    assert (opened, none) == ([lake], [])
    assert "no token table found" in message
    assert message == same
    assert open_shared(lambda: alone) is alone
