"""Evaluations: each window once, in one order, in equally many steps on any number of ranks and workers."""

import copy
import pickle
from itertools import islice

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import (
    Evaluation,
    Format,
    LossLog,
    Schedule,
    Shard,
    TokenDataset,
    TokenMixture,
    View,
    open_shared,
)
from etl.loader.batches.document_boundaries import PER_BATCH
from tests.helpers.document_lakes import Doc, make_document_lake
from tests.helpers.paths import at
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    documents,
    expected_rows,
    make_lake,
)

WORLD_SIZES = (1, 3, 5, 8, 64)
FORMATS = {
    "packed": Format(),
    "boundaries": Format(
        document_ids=True, position_ids=True, cu_seqlens=True, ignore_boundaries=True
    ),
    "huggingface": Format.huggingface(),
    "best fit": Format(pack="best_fit", cu_seqlens=True, position_ids=True, sample_numbers=True),
    "best fit for huggingface": Format.huggingface(pack="best_fit"),
    "padded": Format(pad_id=7),
    "padded for huggingface": Format.huggingface(pad_id=7),
}


def on_ranks(world_size, open_dataset, batch_size=4):
    """Return the batches of an evaluation on each rank."""
    shards = [Shard(rank=rank, world_size=world_size) for rank in range(world_size)]
    return [[*open_dataset(shard).evaluation(batch_size)] for shard in shards]


def rows_of(batches):
    """Return the windows in batches by their numbers, each as its tensors; each must come once."""
    rows = {}
    for batch in batches:
        for row, (sample, weight) in enumerate(
            zip(batch["sample"].tolist(), batch["weight"].tolist(), strict=True)
        ):
            assert weight == (sample >= 0)
            if not weight:
                assert set(batch["labels"][row].tolist()) == {-100}
                continue
            assert sample not in rows
            rows[sample] = {
                name: values[row] if isinstance(values, list) else values[row].tolist()
                for name, values in batch.items()
                if name not in (*PER_BATCH, "sample", "weight")
            }
    return rows


def naive_lengths(positions):
    """Return the document starts in a batch and its end, from positions that restart at 0."""
    flat = positions.flatten().tolist()
    return [i for i, position in enumerate(flat) if position == 0] + [len(flat)]


@settings(max_examples=40)
@given(
    SHAPES,
    st.integers(1, 30),
    st.sampled_from([True, False, MIXED]),
    st.integers(1, 6),
    st.integers(1, 9),
)
def test_each_window_comes_once_on_any_number_of_ranks(
    tmp_path_factory, shape, seq_len, shuffle, batch_size, world_size
):
    tokens = sum(length for groups in shape for lengths in groups for length in lengths)
    shape = shape if tokens > seq_len else [*shape, [[seq_len + 1]]]
    lake = make_lake(at(str(tmp_path_factory.mktemp("evaluation"))), shape)

    def open_dataset(shard):
        return TokenDataset(lake, seq_len=seq_len, shuffle=shuffle, shard=shard)

    ranks = on_ranks(world_size, open_dataset, batch_size)
    whole = open_dataset(Shard())
    windows = expected_rows(whole, shape)
    steps = -(-len(windows) // (batch_size * world_size))
    assert {len(batches) for batches in ranks} == {steps}
    assert {tuple(batch["labels"].shape) for batches in ranks for batch in batches} == {
        (batch_size, seq_len)
    }
    rows = rows_of(batch for batches in ranks for batch in batches)
    assert [[*rows[n]["input_ids"], rows[n]["labels"][-1]] for n in sorted(rows)] == windows
    # A step has consecutive windows, and a rank's are ascending.
    stride = batch_size * world_size
    for batches in ranks:
        for step, batch in enumerate(batches):
            samples = [n for n in batch["sample"].tolist() if n >= 0]
            assert samples == sorted(samples)
            assert all(n // stride == step for n in samples)


@pytest.fixture(scope="module")
def document_lake(new_place):
    docs = [
        Doc(source=source, row=row, length=length, lang=lang)
        for source, lang in (("a", "de"), ("b", None))
        for row, length in enumerate((7, 1, 30, 0, 12, 64, 2, 9))
    ]
    return make_document_lake(str(new_place("documents")), docs)


@pytest.mark.parametrize("is_mixture", [False, pytest.param(True, marks=pytest.mark.local_only)])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shuffle", [False, MIXED])
def test_windows_and_padding_are_valid_in_each_format(document_lake, name, is_mixture, shuffle):
    view = View(columns=["lang", "id"])

    def open_dataset(shard):
        options = {"seq_len": 8, "shuffle": shuffle, "view": view, "shard": shard}
        options["format"] = FORMATS[name]
        if not is_mixture:
            return TokenDataset(document_lake, **options)
        datasets = {s: TokenDataset(document_lake, seed=i, **options) for i, s in enumerate("xy")}
        return TokenMixture(datasets, weights={"x": 0.7, "y": 0.3})

    numbered = [
        {**batch, "sample": torch.tensor([number]), "weight": torch.ones(1)}
        for number, batch in enumerate(open_dataset(Shard()).batches(1, drop_last=False))
    ]
    windows = rows_of(numbered)
    last = {key: value for key, value in windows[len(windows) - 1].items() if key != "labels"}
    for world_size in (1, 3):
        ranks = on_ranks(world_size, open_dataset, batch_size=8)
        batches = [batch for rank in ranks for batch in rank]
        assert rows_of(batches) == windows
        for batch in batches:
            for row in torch.nonzero(batch["weight"] == 0).flatten().tolist():
                padding = {
                    k: batch[k][row] if isinstance(batch[k], list) else batch[k][row].tolist()
                    for k in last
                }
                assert padding == last
            for lengths in {"cu_seqlens", "cu_seq_lens_q"} & batch.keys():
                assert batch[lengths].tolist() == naive_lengths(batch["position_ids"])


@pytest.mark.local_only  # opens a dataset for each of many ranks
def test_losses_by_window_number_are_equal_on_any_number_of_ranks(lake):
    """Each rank has its own table of losses, which an all-reduce would add up."""
    torch.manual_seed(0)
    head = torch.nn.Sequential(torch.nn.Embedding(266, 8), torch.nn.Linear(8, 266))

    def losses_of(batch, *, is_toy):
        if is_toy:
            return (batch["labels"] * (batch["labels"] != -100)).sum(1).double()
        logits = head(batch["input_ids"])
        losses = torch.nn.functional.cross_entropy(logits.mT, batch["labels"], reduction="none")
        return losses.double().sum(1)

    def total(world_size, batch_size, *, is_toy):
        shards = [Shard(rank=rank, world_size=world_size) for rank in range(world_size)]
        tables = []
        for shard in shards:
            evaluation = TokenDataset(lake, seq_len=7, shard=shard).evaluation(batch_size)
            table = torch.zeros(evaluation.num_samples + 1, dtype=torch.float64)
            for batch in evaluation:
                table[batch["sample"]] = losses_of(batch, is_toy=is_toy)
            tables.append(table[:-1])
        return torch.stack(tables).sum(0).sum().item()

    with torch.no_grad():
        exact = total(1, 4, is_toy=True)
        assert exact == sum(
            sum(row[1:]) for row in expected_rows(TokenDataset(lake, seq_len=7), SMALL)
        )
        assert {total(n, b, is_toy=True) for n in WORLD_SIZES for b in (1, 4)} == {exact}
        expected = total(1, 4, is_toy=False)
        for world_size in WORLD_SIZES:
            found = total(world_size, 5, is_toy=False)
            assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("context", "seq_len"),
    [("fork", 1), ("fork", 7), ("fork", 40), ("spawn", 7), ("persistent", 7)],
)
def test_workers_deliver_the_same_batches_again_and_again(lake, context, seq_len):
    dataset = TokenDataset(lake, seq_len=seq_len, shuffle=MIXED, shard=Shard(rank=1, world_size=3))
    evaluation = dataset.evaluation(2)
    expected = [*evaluation]
    options = {"multiprocessing_context": "spawn"} if context == "spawn" else {}
    loader = DataLoader(
        evaluation,
        batch_size=None,
        num_workers=2,
        persistent_workers=context != "fork",
        **options,
    )
    assert len(loader) == len(expected)
    assert len([*islice(loader, 1)]) == 1  # cut short, as a sanity check does
    for _ in range(2):
        batches = [*loader]
        assert [b["sample"].tolist() for b in batches] == [b["sample"].tolist() for b in expected]
        for batch, other in zip(batches, expected, strict=True):
            assert batch.keys() == other.keys()
            assert all(torch.equal(batch[name], other[name]) for name in batch)
            assert batch["weight"].dtype == torch.float32


def test_an_evaluation_does_not_move_the_training(lake):
    undisturbed = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    expected = [b["input_ids"].tolist() for _ in range(2) for b in undisturbed.batches(4)]
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    evaluation = dataset.evaluation(4)
    first = [batch["input_ids"].tolist() for batch in evaluation]
    seen = []
    for _ in range(2):
        for batch in dataset.batches(4):
            seen.append(batch["input_ids"].tolist())
            state = dataset.state_dict()
            assert next(iter(evaluation))["input_ids"].tolist() == first[0]
            if len(seen) in (1, 5, 9, 12):
                assert [b["input_ids"].tolist() for b in evaluation] == first
            assert dataset.state_dict() == state
    assert seen == expected
    assert [b["input_ids"].tolist() for b in dataset.evaluation(4)] == first  # in epoch 2


def test_a_thread_prepares_batches_ahead(lake):
    dataset = TokenDataset(lake, seq_len=7)
    plain = [batch["sample"].tolist() for batch in dataset.evaluation(4)]
    ahead = dataset.evaluation(4, prefetch=2, device="cpu")
    assert [batch["sample"].tolist() for batch in ahead] == plain
    assert next(iter(ahead))["sample"].tolist() == plain[0]
    meta = next(iter(dataset.evaluation(4, device="meta")))
    assert meta["weight"].device.type == "meta"


def test_copies_are_evaluations_of_their_own(lake):
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    evaluation = dataset.evaluation(4)
    expected = [batch["input_ids"].tolist() for batch in evaluation]
    opened = open_shared(lambda: TokenDataset(lake, seq_len=7, shuffle=MIXED))
    others = [
        pickle.loads(pickle.dumps(evaluation)),
        copy.deepcopy(evaluation),
        pickle.loads(pickle.dumps(dataset)).evaluation(4),
        opened.evaluation(4),
    ]
    for other in others:
        assert isinstance(other, Evaluation)
        assert [batch["input_ids"].tolist() for batch in other] == expected


def test_window_numbers_name_documents_and_losses(lake, tmp_path):
    marks = Format(document_ids=True, sample_numbers=True)
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED, format=marks)
    by_address = {(d.source, d.row): d.tokens for d in documents(SMALL)}
    assert len([*dataset.batches(4)]) == 9
    assert len([*islice(dataset.batches(4), 2)]) == 2  # in epoch 1
    with LossLog(dataset, run="evaluation", folder=str(tmp_path)) as log:
        for step, batch in enumerate(dataset.evaluation(5)):
            log.write(step, batch, torch.ones(batch["labels"].shape))
            for sample, row in zip(batch["sample"].tolist(), batch["input_ids"], strict=True):
                tokens: list[int] = []
                for span in dataset.locate(sample, epoch=0) if sample >= 0 else ():
                    document = by_address[span.source, span.row][span.document_start :]
                    tokens += document[: span.count]
                assert tokens[:7] == (row.tolist() if sample >= 0 else [])
    (file,) = tmp_path.rglob("*.parquet")
    logged = pq.read_table(file)
    assert sorted(set(logged["sample"].to_pylist())) == [*range(37)]
    assert sum(logged["num_tokens"].to_pylist()) == 37 * 7


def test_what_cannot_be_evaluated_is_refused(lake):
    dataset = TokenDataset(lake, seq_len=7)
    with pytest.raises(LoaderError, match="batch_size must be at least 1, not 0"):
        dataset.evaluation(0)
    with pytest.raises(LoaderError, match="prefetch must be at least 0, not -1"):
        dataset.evaluation(1, prefetch=-1)
    changing = TokenDataset(lake, seq_len=Schedule([(0, 7), (10, 9)]))
    mixture = TokenMixture({"a": changing}, weights={"a": 1})
    for each in (changing, mixture):
        with pytest.raises(LoaderError, match=r"windows of one length(.|\n)*hint: open"):
            each.evaluation(1)
    in_workers = DataLoader(dataset.evaluation(1, device="cpu"), batch_size=None, num_workers=1)
    with pytest.raises(LoaderError, match="a DataLoader worker cannot copy batches to a device"):
        next(iter(in_workers))


def test_one_length_of_a_schedule_is_evaluated(lake):
    plain = TokenDataset(lake, seq_len=7).evaluation(4)
    constant = TokenDataset(lake, seq_len=Schedule([(0, 7)])).evaluation(4)
    assert [b["input_ids"].tolist() for b in plain] == [b["input_ids"].tolist() for b in constant]
