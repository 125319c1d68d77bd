"""TokenDataset on real tables: order, ranks and workers, and the documents behind a sample."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Shard, TokenDataset
from etl.loader.batches.packed import PackedReader
from etl.loader.fetch.row_group_files import LocalFiles
from etl.loader.fetch.token_stream import RowGroups
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    documents,
    expected_rows,
    group_tokens,
    make_lake,
    merged,
    rows_of,
)

many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
SETTINGS = st.sampled_from([True, False, MIXED])
each_table = settings(max_examples=20)


@each_table
@given(SHAPES, st.integers(1, 30), SETTINGS, st.sampled_from([*WRITERS]), st.integers(0, 2))
def test_every_window_comes_once_and_in_order_for_any_table(
    new_place, shape, seq_len, shuffle, writer, epoch
):
    assume(sum(group_tokens(shape)) > seq_len)
    lake = make_lake(new_place("table"), shape, **WRITERS[writer])
    for world_size in (1, 2, 3, 4, 6):
        ranks = []
        for rank in range(world_size):
            dataset = TokenDataset(
                lake,
                seq_len=seq_len,
                shuffle=shuffle,
                shard=Shard(rank=rank, world_size=world_size),
            )
            dataset.set_epoch(epoch)
            if len(dataset) == 0:
                with pytest.raises(
                    LoaderError, match=f"fewer than the {3 * world_size} of one step"
                ):
                    rows_of(dataset, 3)
                return
            ranks.append(rows_of(dataset, 3))
            assert len(ranks[-1]) == len(dataset)
        expected = expected_rows(dataset, shape, epoch)
        kept = len(expected) - dataset.dropped_samples
        assert merged(ranks, expected, 3) == expected[:kept]
        tokens = sorted(token for row in expected for token in row[:-1])
        assert len(set(tokens)) == len(tokens) == dataset.num_samples * seq_len
        assert len(tokens) + 1 + dataset.dropped_tokens == dataset.num_tokens


def test_labels_are_the_inputs_shifted_by_one(lake):
    for batch in TokenDataset(lake, seq_len=16).batches(4):
        assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
        assert batch["input_ids"].shape == batch["labels"].shape == (4, 16)
        assert batch["input_ids"].is_contiguous()
        assert batch["labels"].is_contiguous()
        assert torch.equal(batch["input_ids"][:, 1:], batch["labels"][:, :-1])


def test_without_shuffling_the_table_is_read_from_front_to_back(lake):
    dataset = TokenDataset(lake, seq_len=10, shuffle=False)
    assert rows_of(dataset) == [list(range(i, i + 11)) for i in range(0, 260, 10)]
    assert dataset.dropped_tokens == 5


def test_samples_and_batches_have_the_same_rows(lake):
    dataset = TokenDataset(lake, seq_len=9, shuffle=MIXED)
    samples = [sample["input_ids"].tolist() for sample in dataset]
    dataset.set_epoch(0)
    batches = [row for batch in dataset.batches(4) for row in batch["input_ids"].tolist()]
    assert len(dataset) == len(samples)
    assert len(dataset.batches(4)) == len(batches) // 4
    assert samples[: len(batches)] == batches
    assert len(dataset.batches(4, drop_last=False)) == 8


@many_workers
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("world_size", [1, 3])
def test_workers_keep_the_order(lake, world_size, workers):
    ranks = []
    for rank in range(world_size):
        dataset = TokenDataset(
            lake, seq_len=7, shuffle=MIXED, shard=Shard(rank=rank, world_size=world_size)
        )
        loader = DataLoader(
            dataset.batches(2, drop_last=False), batch_size=None, num_workers=workers
        )
        ranks.append([row for batch in loader for row in batch["input_ids"].tolist()])
    expected = [row[:-1] for row in expected_rows(dataset, SMALL)]
    assert merged(ranks, expected, 2) == expected[: len(expected) - dataset.dropped_samples]


@many_workers
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_a_plain_dataloader_keeps_the_order(lake, workers):
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    loader = DataLoader(dataset, batch_size=4, num_workers=workers)
    rows = [row for batch in loader for row in batch["labels"].tolist()]
    expected = [row[1:] for row in expected_rows(dataset, SMALL)]
    assert rows == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_persistent_workers_see_set_epoch(lake, method):
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    loader = DataLoader(
        dataset.batches(2),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        rows = [row for batch in loader for row in batch["input_ids"].tolist()]
        expected = [row[:-1] for row in expected_rows(dataset, SMALL, epoch)]
        assert rows == expected[: len(rows)]
        assert len(rows) == len(expected) // 2 * 2


@each_table
@given(SHAPES, st.integers(1, 30), st.integers(0, 2))
def test_locate_returns_the_document_of_each_token(new_place, shape, seq_len, epoch):
    assume(sum(group_tokens(shape)) > seq_len)
    lake = make_lake(new_place("table"), shape)
    dataset = TokenDataset(lake, seq_len=seq_len, shuffle=MIXED)
    owner = {token: doc for doc in documents(shape) for token in doc.tokens}
    for sample, row in enumerate(expected_rows(dataset, shape, epoch)):
        parts = dataset.locate(sample, epoch=epoch)
        assert sum(part.count for part in parts) == seq_len + 1
        for part in parts:
            tokens = row[part.start : part.start + part.count]
            doc = owner[tokens[0]]
            first = doc.tokens[part.document_start]
            assert tokens == list(range(first, first + part.count))
            assert (part.source, part.row, part.id) == (
                doc.source,
                doc.row,
                f"{doc.file}-{doc.row}",
            )
            assert (part.file, part.row_group) == (f"{doc.file:03d}.parquet", doc.row_group)


def test_there_may_be_more_ranks_than_lanes(lake):
    for seq_len in (1, 7):
        ranks = [
            rows_of(
                TokenDataset(
                    lake, seq_len=seq_len, shuffle=MIXED, shard=Shard(rank=rank, world_size=8)
                )
            )
            for rank in range(8)
        ]
        dataset = TokenDataset(lake, seq_len=seq_len, shuffle=MIXED)
        expected = expected_rows(dataset, SMALL)
        assert merged(ranks, expected) == expected[: len(expected) // 8 * 8]


def test_samples_may_be_taken_in_any_order(place):
    shape = [[[30] * 9] * 2]  # row groups of several pages
    dataset = TokenDataset(make_lake(place, shape), seq_len=7, shuffle=MIXED)
    expected = [row[:-1] for row in expected_rows(dataset, shape)]
    plan, samples = dataset._plan, [*range(75, -1, -2), 4, 4, 20]
    with PackedReader(dataset.windows.index, plan, epoch=0, batch_format=Format()) as gatherer:
        assert gatherer.batch(samples)["input_ids"].tolist() == [expected[g] for g in samples]


@pytest.mark.local_only
def test_more_files_than_may_be_open_are_read_in_any_order(place):
    shape = [[[2], [2]] for _ in range(70)]
    index = TokenDataset(make_lake(place, shape), seq_len=7).windows.index
    groups = RowGroups(index, LocalFiles(index))
    order = [*range(140), *range(139, -1, -1), *range(0, 140, 7)]
    read = [int(next(groups.pieces(group)).tokens[0]) for group in order]
    assert read == [2 * group for group in order]


def test_samples_returned_one_by_one_are_views_of_what_is_read_together(lake):
    rows = [sample["input_ids"] for sample in TokenDataset(lake, seq_len=7, shuffle=MIXED)]
    assert len({row.untyped_storage().data_ptr() for row in rows}) == -(-len(rows) // 8)
    assert [row.tolist() for row in rows] == [
        row[:-1] for row in expected_rows(TokenDataset(lake, seq_len=7, shuffle=MIXED), SMALL)
    ]
