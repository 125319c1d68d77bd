"""Document boundaries in packed batches, and padded documents, compared with plain lists."""

from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Shard, TokenDataset
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    documents,
    group_tokens,
    make_lake,
    merged,
)

EVERYTHING = Format(document_ids=True, position_ids=True, cu_seqlens=True, ignore_boundaries=True)
PADDED = Format(pad_id=999)
each_table = settings(max_examples=20)


@each_table
@given(SHAPES, st.integers(1, 30), st.sampled_from([*WRITERS]), st.integers(1, 3))
def test_boundaries_are_those_of_the_documents(new_place, shape, seq_len, writer, batch_size):
    assume(sum(group_tokens(shape)) > seq_len * batch_size)
    lake = make_lake(new_place("table"), shape, **WRITERS[writer])
    begins = {doc.tokens.start for doc in documents(shape) if doc.tokens}
    plain = TokenDataset(lake, seq_len=seq_len, shuffle=MIXED).batches(batch_size)
    dataset = TokenDataset(lake, seq_len=seq_len, shuffle=MIXED, format=EVERYTHING)
    for batch, bare in zip(dataset.batches(batch_size), plain, strict=True):
        assert torch.equal(batch["input_ids"], bare["input_ids"])
        ends = []
        for row in range(batch_size):
            document, position = 0, 0
            for column, token in enumerate(batch["input_ids"][row].tolist()):
                if column and token in begins:
                    document, position = document + 1, 0
                if position == 0:
                    ends.append(row * seq_len + column)
                assert batch["document_ids"][row, column] == document
                assert batch["position_ids"][row, column] == position
                position += 1
                label = bare["labels"][row, column].item()
                expected = -100 if label in begins else label
                assert batch["labels"][row, column] == expected
        ends.append(batch_size * seq_len)
        assert batch["cu_seqlens"].tolist() == ends
        assert batch["cu_seqlens"].dtype == torch.int32
        longest = max(b - a for a, b in pairwise(ends))
        assert batch["max_seqlen"].item() == longest


def test_a_batch_contains_only_the_requested_tensors(lake):
    names = {"document_ids", "position_ids", "cu_seqlens"}
    for name in names:
        dataset = TokenDataset(lake, seq_len=9, format=Format(**{name: True}))
        batch = next(iter(dataset.batches(2)))
        assert batch.keys() & names == {name}
        assert (batch["labels"] >= 0).all()
    bare = next(iter(TokenDataset(lake, seq_len=9).batches(2)))
    assert bare.keys() == {"input_ids", "labels"}
    sample = next(iter(TokenDataset(lake, seq_len=9, format=EVERYTHING)))
    assert sample["position_ids"].shape == (9,)
    assert sample["cu_seqlens"][-1] == 9


def test_the_greatest_length_stays_on_the_cpu(lake):
    dataset = TokenDataset(lake, seq_len=9, format=EVERYTHING)
    batch = next(iter(dataset.batches(2, device="meta")))
    devices = {name: values.device.type for name, values in batch.items()}
    assert devices.pop("max_seqlen") == "cpu"
    assert {*devices.values()} == {"meta"}


@each_table
@given(
    SHAPES,
    st.integers(1, 30),
    st.sampled_from([MIXED, False, True]),
    st.sampled_from([*WRITERS]),
    st.integers(0, 1),
)
def test_each_document_is_a_row(new_place, shape, seq_len, shuffle, writer, epoch):
    full = {doc.tokens.start: doc for doc in documents(shape) if doc.tokens}
    assume(full)
    lake = make_lake(new_place("table"), shape, **WRITERS[writer])
    dataset = TokenDataset(lake, seq_len=seq_len, shuffle=shuffle, format=PADDED)
    dataset.set_epoch(epoch)
    seen: list[int] = []
    for batch in dataset.batches(2, drop_last=False):
        for row in zip(*(batch[name].tolist() for name in batch), strict=True):
            input_ids, labels, mask, num_tokens = row
            tokens = list(full[input_ids[0]].tokens)
            rest = seq_len - len(tokens)
            assert input_ids == tokens[:seq_len] + [999] * rest
            assert labels == (tokens[1 : seq_len + 1] + [-100] * seq_len)[:seq_len]
            assert mask == [1] * min(len(tokens), seq_len) + [0] * rest
            assert num_tokens == len(tokens)
            (part,) = dataset.locate(len(seen))
            doc = full[input_ids[0]]
            assert (part.source, part.row, part.row_group) == (doc.source, doc.row, doc.row_group)
            assert part.count == min(len(tokens), seq_len + 1)
            seen.append(input_ids[0])
    assert sorted(seen) == sorted(full)
    assert dataset.num_samples == len(full)
    assert dataset.dropped_tokens == 0
    if shuffle is False:
        assert seen == sorted(seen)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_padded_documents_are_distributed_and_resumed_like_windows(lake):
    def open_dataset(rank=0, world_size=1):
        return TokenDataset(
            lake,
            seq_len=12,
            shuffle=MIXED,
            format=PADDED,
            shard=Shard(rank=rank, world_size=world_size),
        )

    def firsts(iterable):
        return [ids[0] for batch in iterable for ids in batch["input_ids"].tolist()]

    whole = firsts(open_dataset().batches(1))
    assert len(whole) == sum(bool(doc.tokens) for doc in documents(SMALL))
    ranks = [firsts(open_dataset(rank, 3).batches(1)) for rank in range(3)]
    assert merged(ranks, whole) == whole[:12]
    workers = DataLoader(open_dataset().batches(2), batch_size=None, num_workers=3)
    assert firsts(workers) == whole
    for consumed in range(len(whole)):
        resumed = open_dataset()
        resumed.load_state_dict(resumed.state_dict(consumed=consumed))
        assert firsts(resumed.batches(1)) == whole[consumed:]
    state = resumed.state_dict(consumed=5)
    assert firsts(TokenDataset.from_state(lake, state).batches(1)) == whole[5:]
    windows = TokenDataset(lake, seq_len=12, shuffle=MIXED)
    with pytest.raises(LoaderError, match="another order"):
        windows.load_state_dict(open_dataset().state_dict())


def test_padding_and_packing_options_cannot_be_combined():
    with pytest.raises(LoaderError, match="pad_id=0"):
        Format(pad_id=0, cu_seqlens=True)


def test_labels_need_not_be_shifted(lake):
    shifted = next(
        iter(TokenDataset(lake, seq_len=30, shuffle=MIXED, format=EVERYTHING).batches(4))
    )
    wanted = Format.huggingface()
    batch = next(iter(TokenDataset(lake, seq_len=30, shuffle=MIXED, format=wanted).batches(4)))
    assert torch.equal(batch["labels"][:, 1:], shifted["labels"][:, :-1])
    assert (batch["labels"][:, 1:] == -100).any()
    assert torch.equal(batch["cu_seq_lens_q"], shifted["cu_seqlens"])
    assert torch.equal(batch["cu_seq_lens_k"], shifted["cu_seqlens"])
    assert batch["max_length_q"] == batch["max_length_k"] == shifted["max_seqlen"].item()
    assert type(batch["max_length_q"]) is int
    loader = DataLoader(
        TokenDataset(lake, seq_len=30, shuffle=MIXED, format=wanted).batches(4),
        batch_size=None,
        num_workers=1,
    )
    sent = next(iter(loader))
    assert sent.keys() == batch.keys()
    assert type(sent["max_length_q"]) is int
    padded = next(
        iter(TokenDataset(lake, seq_len=12, format=Format.huggingface(pad_id=9)).batches(4))
    )
    inside = padded["attention_mask"].bool()
    assert torch.equal(padded["labels"][inside], padded["input_ids"][inside])
    assert (padded["labels"][~inside] == -100).all()


def test_a_state_keeps_the_format(lake):
    for wanted in (EVERYTHING, PADDED, Format.huggingface()):
        state = TokenDataset(lake, seq_len=9, format=wanted).state_dict()
        assert TokenDataset.from_state(lake, state).format == wanted
        assert TokenDataset.from_state(lake, state, format=PADDED if wanted.pad_id else Format())
