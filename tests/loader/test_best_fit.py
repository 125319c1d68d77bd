"""Best-fit packing: each token once, fitting documents whole, on any ranks, and again after any resume."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Remote, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.batches.plan_units import plan_units
from etl.loader.fetch.token_stream import TokenStream
from etl.loader.order.best_fit_packing import (
    UnitWindows,
    count_windows,
    cut,
    divide,
    interleave,
    pack,
)
from etl.loader.order.evenness import variance_ratio
from etl.loader.replay import replay
from tests.helpers.paths import at, copy
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    Shape,
    documents,
    group_tokens,
    make_lake,
    merged,
)

PAD = 10**6
BEST_FIT = Format(pack="best_fit", pad_id=PAD)
MARKED = replace(BEST_FIT, document_ids=True, position_ids=True, cu_seqlens=True)
SMALL_UNITS = Shuffle(lanes=2, block_tokens=40, run_tokens=10)
each_table = settings(max_examples=20)


def naive_pieces(shape: Shape, seq_len: int) -> list[range]:
    return [
        doc.tokens[start : start + seq_len]
        for doc in documents(shape)
        for start in range(0, len(doc.tokens), seq_len)
    ]


def naive_windows(pieces: list[int], seq_len: int) -> list[list[int]]:
    """The numbers of the pieces of each window, packed with lists."""
    windows: list[list[int]] = []
    for piece in sorted(range(len(pieces)), key=lambda i: (-pieces[i], i)):
        rooms = [seq_len - sum(pieces[i] for i in window) for window in windows]
        fitting = [w for w, room in enumerate(rooms) if room >= pieces[piece]]
        if fitting:
            windows[min(fitting, key=lambda w: (rooms[w], w))].append(piece)
        else:
            windows.append([piece])
    return sorted(sorted(window) for window in windows)


def rows_of(dataset: TokenDataset | TokenMixture, batch_size: int = 1) -> list[list[int]]:
    batches = dataset.batches(batch_size, drop_last=False)
    return [row for batch in batches for row in batch["input_ids"].tolist()]


def segments(batch: dict[str, torch.Tensor]) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield the tokens, labels and positions of each segment of a batch, without the padding."""
    names = ("document_ids", "input_ids", "labels", "position_ids")
    for row in zip(*(batch[name].tolist() for name in names), strict=True):
        ids, *columns = (np.array(column) for column in row)
        for number in range(ids.max() + 1):
            tokens, labels, positions = (column[ids == number].tolist() for column in columns)
            if tokens[0] == PAD:
                assert set(tokens) == {PAD}
                assert set(labels) == {-100}
            else:
                yield tokens, labels, positions


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(12, 20))
def test_windows_are_those_of_best_fit_decreasing(pieces: list[int], seq_len: int) -> None:
    windows = pack(np.array(pieces, np.int64), seq_len)
    expected = naive_windows(pieces, seq_len)
    assert [np.flatnonzero(windows == w).tolist() for w in range(len(expected))] == expected
    assert count_windows(np.array(pieces, np.int64), seq_len) == len(expected)


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), max_size=5),
    st.integers(1, 20),
    st.integers(20, 200),
)
def test_units_are_bounded_and_have_the_announced_windows(
    chunks: list[list[int]], seq_len: int, max_tokens: int
) -> None:
    arrays = [np.array(chunk, np.int64) for chunk in chunks]
    lengths = np.concatenate([np.zeros(0, np.int64), *arrays])
    options = {"seq_len": seq_len, "max_tokens": max_tokens}
    parts = [interleave([array], seq_len) for array in arrays]
    alone = [(tokens.tolist(), windows) for tokens, windows in divide(parts, **options)]
    whole = divide([interleave([lengths], seq_len)], **options)
    assert alone == [(tokens.tolist(), windows) for tokens, windows in whole]
    strands = interleave(arrays, seq_len) if arrays else interleave([lengths], seq_len)
    num_strands = max(len(arrays), 1)
    units = list(divide([strands], num_strands=num_strands, **options))
    bases = np.cumsum([0, *(int(array.sum()) for array in arrays)])[:-1] if arrays else [0]
    starts = [base + np.cumsum([0, *array]) for base, array in zip(bases, arrays, strict=False)]
    firsts, pieces = np.array(bases), []
    for tokens, num_windows in units:
        assert tokens.sum() <= max_tokens
        spans = [*map(range, firsts.tolist(), (firsts + tokens).tolist())]
        windows = UnitWindows.of(zip(starts, spans, strict=True), seq_len)
        assert len(windows.firsts) == num_windows + 1
        for window in range(num_windows):
            part = windows.pieces(window)
            assert 0 < windows.counts[part].sum() <= seq_len
            pieces += [*zip(windows.tokens[part], windows.counts[part], strict=True)]
        firsts += tokens
    assert [count for _, count in sorted(pieces)] == cut(lengths, seq_len).tolist()


@each_table
@given(
    SHAPES,
    st.integers(1, 45),
    st.sampled_from([True, False, MIXED, SMALL_UNITS]),
    st.sampled_from([*WRITERS]),
    st.integers(0, 2),
)
def test_each_token_comes_once_and_no_fitting_document_is_cut(
    new_place, shape, seq_len, shuffle, writer, epoch
):
    assume(sum(group_tokens(shape)))
    lake = make_lake(new_place("table"), shape, **WRITERS[writer])
    dataset = TokenDataset(lake, seq_len=seq_len, shuffle=shuffle, format=MARKED)
    dataset.set_epoch(epoch)
    ends = {doc.tokens.stop - 1 for doc in documents(shape)}
    found, rows = [], 0
    for batch in dataset.batches(3, drop_last=False):
        rows += len(batch["input_ids"])
        starts = (batch["position_ids"] == 0).flatten().nonzero()[:, 0].tolist()
        assert batch["cu_seqlens"].tolist() == [*starts, batch["input_ids"].numel()]
        assert batch["max_seqlen"] == max(b - a for a, b in pairwise(batch["cu_seqlens"].tolist()))
        for tokens, labels, positions in segments(batch):
            assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))
            assert labels == [-100 if token in ends else token + 1 for token in tokens]
            assert positions == list(range(len(tokens)))
            found.append((tokens[0], len(tokens)))
    expected = [(piece[0], len(piece)) for piece in naive_pieces(shape, seq_len)]
    assert sorted(found) == expected
    assert rows == dataset.num_samples
    used = sum(group_tokens(shape))
    assert dataset.padding == pytest.approx(1 - used / (rows * seq_len))
    assert dataset.dropped_tokens == 0


@settings(max_examples=10)
@given(
    SHAPES,
    st.integers(5, 30),
    st.sampled_from([True, MIXED, SMALL_UNITS]),
    st.tuples(st.integers(1, 3), st.integers(2, 8)),
)
def test_ranks_share_one_order(new_place, shape, seq_len, shuffle, steps):
    assume(sum(group_tokens(shape)))
    batch_size, world_size = steps
    lake = make_lake(new_place("table"), shape)

    def ranks(world_size):
        shards = [Shard(rank=rank, world_size=world_size) for rank in range(world_size)]
        options = {"seq_len": seq_len, "shuffle": shuffle, "format": BEST_FIT}
        return [TokenDataset(lake, shard=shard, **options) for shard in shards]

    [alone] = ranks(1)
    whole = rows_of(alone, batch_size)
    assume(len(whole) >= world_size)
    rows = [rows_of(dataset, batch_size) for dataset in ranks(world_size)]
    assert merged(rows, whole, batch_size) == whole[: len(whole) - len(whole) % world_size]


def open_small(lake: str, **options) -> TokenDataset:
    return TokenDataset(lake, seq_len=12, shuffle=SMALL_UNITS, format=BEST_FIT, **options)


def test_a_state_resumes_at_any_sample_and_world_size(lake):
    dataset = open_small(lake)
    dataset.set_epoch(1)
    whole = rows_of(dataset)
    for consumed in range(len(whole)):
        state = {**dataset.state_dict(consumed=consumed), "epoch": 1}
        resumed = TokenDataset.from_state(lake, state)
        assert resumed.format == BEST_FIT
        assert rows_of(resumed, 2) == whole[consumed:]
    state, rows = {**dataset.state_dict(consumed=0), "epoch": 1}, list[list[int]]()
    for world_size, batch_size, steps in ((4, 2, 1), (2, 3, 1), (3, 1, 2), (1, 4, 99)):
        datasets = [
            TokenDataset.from_state(lake, state, shard=Shard(rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        iterators = [iter(each.batches(batch_size, drop_last=False)) for each in datasets]
        for _ in range(steps):
            if len(rows) == len(whole):
                break
            batches = [next(iterator)["input_ids"].tolist() for iterator in iterators]
            rows += merged(batches, whole, batch_size)
            states = [each.state_dict() for each in datasets]
            assert all(each == states[0] for each in states)
            state = states[0]
    assert rows == whole
    with pytest.raises(LoaderError, match="another order"):
        TokenDataset(lake, seq_len=12, shuffle=SMALL_UNITS).load_state_dict(state)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_keep_the_order(lake, workers):
    whole = rows_of(open_small(lake))
    ranks = []
    for rank in range(2):
        dataset = open_small(lake, shard=Shard(rank=rank, world_size=2))
        batches = dataset.batches(2, drop_last=False)
        loader = DataLoader(batches, batch_size=None, num_workers=workers)
        ranks.append([row for batch in loader for row in batch["input_ids"].tolist()])
    assert merged(ranks, whole, 2) == whole[: len(whole) // 2 * 2]


def test_samples_may_be_taken_in_any_order(lake):
    dataset = open_small(lake)
    whole = rows_of(dataset)
    samples = [*range(len(whole) - 1, -1, -2), 4, 4, 7, *range(len(whole))]
    with dataset.reader(0) as reader:
        assert reader.batch(samples)["input_ids"].tolist() == [whole[g] for g in samples]


def test_epochs_differ_in_order_but_not_in_windows(lake):
    dataset = open_small(lake)
    first, second = rows_of(dataset), rows_of(dataset)
    assert first != second
    assert sorted(first) == sorted(second)
    ordered = TokenDataset(lake, seq_len=12, shuffle=False, format=BEST_FIT)
    firsts = [row[0] for row in rows_of(ordered)]
    assert firsts == sorted(firsts)


def test_locate_and_replay_return_the_documents_of_each_window(lake):
    dataset = open_small(lake)
    owner = {token: doc for doc in documents(SMALL) for token in doc.tokens}
    whole = rows_of(dataset)
    dataset.set_epoch(0)
    for sample, row in enumerate(whole):
        ids = [token for token in row if token != PAD]
        spans = dataset.locate(sample)
        assert [row[span.start + i] for span in spans for i in range(span.count)] == ids
        for span in spans:
            doc = owner[row[span.start]]
            assert (span.source, span.row, span.row_group) == (doc.source, doc.row, doc.row_group)
            assert doc.tokens[span.document_start] == row[span.start]
    replayed = replay(dataset, batch_size=3, step=1)
    assert [row.sample for row in replayed.rows] == dataset.step_samples(1, 3)
    for replayed_row in replayed.rows:
        located = dataset.locate(replayed_row.sample)
        assert [passage.span for passage in replayed_row.passages] == located


def test_evenness_counts_the_tokens_of_each_window(new_place):
    lake = make_lake(new_place("table"), [[[16] * 8, [3, 0, 5, 40] * 4]] * 8)
    shuffle = Shuffle(lanes=3, block_tokens=200, run_tokens=300)
    dataset = TokenDataset(lake, seq_len=16, shuffle=shuffle, format=BEST_FIT)
    even = dataset.evenness(batch_size=24)
    batches = []
    for start in range(0, dataset.num_samples // 24 * 24, 24):
        batches.append(Counter[str]())
        for sample in range(start, start + 24):
            for span in dataset.locate(sample):
                batches[-1][span.source] += span.count
    assert even.batches == len(batches)
    assert even.sources_per_batch == pytest.approx(np.mean([len(batch) for batch in batches]))
    names = sorted({source for batch in batches for source in batch})
    entries = [(i, names.index(s), n) for i, b in enumerate(batches) for s, n in b.items()]
    columns = [np.array(column) for column in zip(*entries, strict=True)]
    assert even.window_ratio == pytest.approx(variance_ratio(*columns, draw_tokens=16))


def test_units_of_sorted_files_have_documents_of_several_places(new_place):
    """Alone, documents of 7 tokens leave 3 of the 10 tokens of a window, which those of 3 tokens fill."""
    shape = [[[7] * 3] * 8, [[3] * 7] * 8]
    lake = make_lake(new_place("table"), shape)
    shuffle = Shuffle(lanes=2, block_tokens=80, run_tokens=21)
    dataset = TokenDataset(lake, seq_len=10, shuffle=shuffle, format=BEST_FIT)
    assert dataset._plan.num_strands == 4
    assert dataset.padding < 0.08
    tokens = [token for row in rows_of(dataset, 3) for token in row if token != PAD]
    assert sorted(tokens) == list(range(sum(group_tokens(shape))))
    sources = [{span.source for span in dataset.locate(g)} for g in range(dataset.num_samples)]
    assert sum(len(each) == 2 for each in sources) > len(sources) / 3


def test_models_of_transformers_get_unshifted_labels(lake):
    options = {"seq_len": 12, "shuffle": False}
    wanted = Format.huggingface(pack="best_fit")
    ours = TokenDataset(lake, format=wanted, **options)
    shifted = TokenDataset(lake, format=replace(BEST_FIT, position_ids=True), **options)
    for batch, other in zip(ours.batches(4), shifted.batches(4), strict=True):
        assert batch["cu_seq_lens_q"].equal(batch["cu_seq_lens_k"])
        starts = batch["position_ids"] == 0
        assert starts.equal(other["position_ids"] == 0)
        padding = other["input_ids"] == PAD
        assert (batch["input_ids"][padding] == 0).all()
        expected = batch["input_ids"].masked_fill(padding | starts, -100)
        assert batch["labels"].equal(expected)
        # What the model learns after its own shift is what we would have shifted.
        inside = other["labels"][:, :-1] != -100
        assert batch["labels"][:, 1:][inside].equal(other["labels"][:, :-1][inside])


def as_if_remote(dataset: TokenDataset, remote: Remote) -> TokenDataset:
    """Make a dataset read its local files like remote ones."""
    index = replace(dataset.windows.index, remote=remote)
    dataset.windows = replace(dataset.windows, index=index)
    return dataset


@each_table
@given(
    SHAPES,
    st.integers(1, 45),
    st.sampled_from([True, False, MIXED, SMALL_UNITS]),
    st.tuples(st.sampled_from([0, 300, 5000]), st.sampled_from([1, 700, 1 << 20])),
)
def test_read_ahead_changes_no_sample(new_place, shape, seq_len, shuffle, sizes):
    assume(sum(group_tokens(shape)))
    lake = make_lake(new_place("table"), shape)

    def open_dataset():
        return TokenDataset(lake, seq_len=seq_len, shuffle=shuffle, format=BEST_FIT)

    remote = as_if_remote(open_dataset(), Remote(ahead_bytes=sizes[0], request_bytes=sizes[1]))
    local = open_dataset()
    for dataset in (local, remote):
        dataset.load_state_dict(dataset.state_dict(consumed=local.num_samples // 3))
    assert rows_of(remote, 3) == rows_of(local, 3)


def test_a_table_in_an_object_store_has_the_same_samples(s3, lake):
    remote = str(copy(lake, at(f"{s3}/lake")))
    assert rows_of(open_small(remote), 2) == rows_of(open_small(lake), 2)


def test_a_mixture_takes_each_window_once_and_reads_each_token_about_once(new_place, monkeypatch):
    copied = 0
    copy_tokens = TokenStream.copy

    def copy_and_count(stream, start, tokens, *rest):
        nonlocal copied
        copied += len(tokens)
        copy_tokens(stream, start, tokens, *rest)

    monkeypatch.setattr(TokenStream, "copy", copy_and_count)
    shuffle = Shuffle(lanes=4, block_tokens=200, run_tokens=500)
    place = new_place("mixed")
    datasets = {
        name: TokenDataset(
            make_lake(place / name, [[[5, 3, 9, 14] * 8] * 5] * 3),
            seq_len=10,
            shuffle=shuffle,
            format=MARKED,
        )
        for name in ("a", "b")
    }
    mixture = TokenMixture(datasets, weights={"a": 3, "b": 2})
    rows: dict[int, list[tuple[int, ...]]] = {0: [], 1: []}
    used = 0
    for batch in mixture.batches(8):
        used += int((batch["input_ids"] != PAD).sum())
        for source, ids in zip(batch["source"].tolist(), batch["input_ids"].tolist(), strict=True):
            rows[source].append(tuple(ids))
        list(segments(batch))
        assert batch["cu_seqlens"][-1] == batch["input_ids"].numel()
    for each in rows.values():
        assert len(set(each)) == len(each) > 50
    assert copied < used + 2 * 4 * 200  # two lanes read the unit at their border
    state = mixture.state_dict(consumed=40)
    resumed = TokenMixture.from_state(
        {name: str(place / name / "lake") for name in datasets}, state
    )
    mixture.set_epoch(0)
    assert rows_of(resumed, 4) == rows_of(mixture)[40:]


def test_wrong_lengths_and_wrong_settings_are_refused(new_place, lake):
    with pytest.raises(LoaderError, match="pack='first_fit', but the only way"):
        Format(pack="first_fit")
    with pytest.raises(LoaderError, match="seq_len must be at least 1"):
        TokenDataset(lake, seq_len=0, format=BEST_FIT)
    with pytest.raises(LoaderError, match="the table has only 0"):
        TokenDataset(make_lake(new_place("empty"), [[[0, 0]]]), seq_len=4, format=BEST_FIT)
    index = TokenDataset(lake, seq_len=4).windows.index
    wrong = replace(index, group_tokens=index.group_tokens + np.int32(1))
    with pytest.raises(LoaderError, match="num_tokens adds up to 22, but the row group has 23"):
        plan_units(wrong, 4, 0, None)
