"""Windows whose length changes with the sample number, compared with streams cut from plain lists."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Remote, Schedule, Shard, TokenDataset
from etl.loader.replay import replay
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    documents,
    group_tokens,
    make_lake,
    merged,
    naive_passes,
    rows_of,
    streams_of,
)

PHASES = [(0, 5), (20, 9), (37, 3)]
each_table = settings(max_examples=20)


def open_dataset(lake: str, phases=PHASES, **options) -> TokenDataset:
    return TokenDataset(lake, seq_len=Schedule(phases), **{"shuffle": MIXED, **options})


@each_table
@given(
    SHAPES,
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=4),
    st.sampled_from([MIXED, False]),
)
def test_each_pass_continues_where_the_one_before_it_ended(new_place, shape, steps, shuffle):
    phases, start = [], 0
    for samples, size in steps:
        phases.append((start, size))
        start += samples
    assume(sum(group_tokens(shape)) > max(size for _, size in phases))
    lake = make_lake(new_place("table"), shape)
    dataset = open_dataset(lake, phases, shuffle=shuffle)
    expected = naive_passes(streams_of(lake, shape, 3, shuffle), phases)
    dropped = [0, 0, 0]
    for number, (epoch, windows) in enumerate(expected):
        dataset.set_epoch(number)
        assert dataset.seq_len == len(windows[0]) - 1
        assert dataset.num_samples == len(windows)
        rows = rows_of(dataset, 2)
        assert sorted(rows) == sorted(windows)
        assert shuffle or rows == windows
        dropped[epoch] += dataset.dropped_tokens
    inputs = sum(len(window) - 1 for epoch, windows in expected for window in windows if epoch == 0)
    assert inputs + dropped[0] + 1 == dataset.num_tokens


def test_passes_follow_each_other_without_set_epoch(lake):
    expected = naive_passes(streams_of(lake, SMALL, 2, MIXED), PHASES)
    dataset = open_dataset(lake)
    for epoch, (_, windows) in enumerate(expected):
        assert sorted(rows_of(dataset, 3)) == sorted(windows)
        assert dataset.epoch == epoch
    assert [len(windows) for _, windows in expected[:3]] == [20, 17, 4]


def test_samples_are_numbered_over_all_passes(lake):
    dataset = open_dataset(lake, format=Format(sample_numbers=True))
    numbers, found = [], []
    for number in range(5):
        passed = [int(sample) for batch in dataset.batches(1) for sample in batch["sample"]]
        epochs, samples = dataset.epochs.find(np.array(passed))
        assert set(epochs.tolist()) == {number}
        found += samples.tolist()
        numbers += passed
    assert numbers == list(range(len(numbers)))
    assert found[:40] == [*range(20), *range(17), *range(3)]


def test_a_state_resumes_at_any_sample_and_world_size(lake):
    dataset = open_dataset(lake)
    passes = [rows_of(dataset) for _ in range(4)]
    for epoch, whole in enumerate(passes[:-1]):
        for consumed in range(len(whole)):
            state = {**dataset.state_dict(consumed=consumed), "epoch": epoch}
            resumed = TokenDataset.from_state(lake, state)
            assert rows_of(resumed, 2) == whole[consumed:]
            if consumed % 8 == 7:
                assert rows_of(resumed, 2) == passes[epoch + 1]
    state = {**dataset.state_dict(consumed=5), "epoch": 1}
    shards = [Shard(rank=rank, world_size=3) for rank in range(3)]
    ranks = [rows_of(TokenDataset.from_state(lake, state, shard=shard), 2) for shard in shards]
    assert merged(ranks, passes[1][5:], 2) == passes[1][5:]
    with pytest.raises(LoaderError, match="another order"):
        open_dataset(lake, [(0, 5), (20, 9)]).load_state_dict(state)
    with pytest.raises(LoaderError, match="another order"):
        TokenDataset(lake, seq_len=5, shuffle=MIXED).load_state_dict(state)


def test_ranks_and_workers_divide_passes_with_different_lanes(lake):
    phases = [(0, 5), (20, 9), (22, 3)]
    alone = open_dataset(lake, phases)
    passes, lanes = [], []
    for _ in range(3):
        passes.append([row[:-1] for row in rows_of(alone)])
        lanes.append(alone.lanes)
    assert lanes == [2, 1, 3]
    loaders = []
    for rank in range(2):
        dataset = open_dataset(lake, phases, shard=Shard(rank=rank, world_size=2))
        batches = dataset.batches(1, drop_last=False)
        loaders.append(DataLoader(batches, batch_size=None, num_workers=2, persistent_workers=True))
    for whole in passes:
        ranks = [[b["input_ids"][0].tolist() for b in loader] for loader in loaders]
        assert merged(ranks, whole) == whole[: len(whole) // 2 * 2]


def test_locate_and_replay_follow_the_schedule(lake):
    dataset = open_dataset(lake)
    owner = {token: doc for doc in documents(SMALL) for token in doc.tokens}
    for epoch in range(3):
        whole = rows_of(dataset)
        for sample, row in enumerate(whole):
            spans = dataset.locate(sample, epoch=epoch)
            assert sum(span.count for span in spans) == len(row)
            for span in spans:
                doc = owner[row[span.start]]
                assert (span.source, span.row) == (doc.source, doc.row)
        replayed = replay(dataset, step=-1)
        assert replayed.epoch == epoch
        spans = [passage.span for passage in replayed.rows[-1].passages]
        assert spans == dataset.locate(len(whole) - 1)


def test_read_ahead_changes_no_sample(lake):
    local, remote = open_dataset(lake), open_dataset(lake)
    index = replace(remote.windows.index, remote=Remote(ahead_bytes=300, request_bytes=700))
    remote.windows = replace(remote.windows, index=index)
    for _ in range(4):
        assert rows_of(remote, 3) == rows_of(local, 3)


def test_other_windows_cannot_change_their_length(lake):
    for wanted in (Format(pack="best_fit"), Format(pad_id=0)):
        with pytest.raises(LoaderError, match="Schedule of seq_len is for windows of consecutive"):
            open_dataset(lake, format=wanted)
    with pytest.raises(LoaderError, match="a window needs 1000 tokens"):
        open_dataset(lake, [(0, 5), (20, 999)])
    dataset = open_dataset(lake)
    dataset.set_epoch(2)
    with pytest.raises(LoaderError, match="an epoch has 4 samples, fewer than the 5"):
        iter(dataset.batches(5))
