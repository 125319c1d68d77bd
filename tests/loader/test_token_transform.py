"""Transformed documents in batches, compared with documents that are transformed in plain lists."""

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake.commit_info import to_commit_info
from etl.loader import (
    FillInTheMiddle,
    Format,
    Prefix,
    Schedule,
    Shard,
    TokenDataset,
    TokenMixture,
    View,
)
from etl.loader.exposures import find_exposures
from etl.loader.fetch.token_transform import TransformedDocuments
from etl.loader.replay import open_saved, replay
from etl.schemas import TokenizerRecord
from tests.helpers.document_lakes import Doc, make_document_lake, tokens_of
from tests.helpers.struck_tables import strike
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    documents,
    group_tokens,
    make_lake,
)


@dataclass(frozen=True)
class Backwards:
    """Reverses a document, and puts tokens before it that say with which seed."""

    rate: float = 0.6
    num_added: int = 2

    def settings(self):
        return {"rate": self.rate, "num_added": self.num_added}

    def check(self, tokenizers):
        del tokenizers

    def __call__(self, tokens, seed):
        return np.append([90_000 + seed % 1000] * self.num_added, tokens[::-1]).astype(np.int32)


FIM = FillInTheMiddle(prefix=70_000, suffix=70_001, middle=70_002)
KINDS: dict[str, dict[str, Any]] = {
    "windows": {"seq_len": 9},
    "padded": {"seq_len": 9, "format": Format(pad_id=0)},
    "best fit": {"seq_len": 9, "format": Format(pack="best_fit")},
    "two lengths": {"seq_len": Schedule([(0, 5), (31, 9)])},
    "in order": {"seq_len": 9, "shuffle": False},
}


def expected_documents(dataset, shape, epoch):
    """Return the tokens of each document in an epoch, by file and row, and how many are transformed."""
    transformed = dataset.windows.index.in_epoch(epoch).transformed
    by_group = defaultdict(list)
    for doc in documents(shape):
        by_group[doc.file, doc.row_group].append(doc)
    groups = [(f, g) for f, groups in enumerate(shape) for g in range(len(groups))]
    expected, count = {}, 0
    for number, key in enumerate(groups):
        docs = [doc for doc in by_group[key] if doc.tokens]
        chosen, seeds = transformed.is_transformed(number), transformed.seeds(number)
        count += int(chosen.sum())
        for doc, is_chosen, seed in zip(docs, chosen.tolist(), seeds.tolist(), strict=True):
            tokens = np.array(doc.tokens, np.int32)
            changed = transformed.transform(tokens, seed) if is_chosen else tokens
            expected[f"{doc.file}-{doc.row}"] = changed.tolist()
    return expected, count


def check_epoch(dataset, shape, *, pass_number):
    """Check every row of a pass against its documents; return how often each token came."""
    epoch = dataset.windows.epochs.plan(pass_number).stream_epoch_of(pass_number)
    expected, count = expected_documents(dataset, shape, epoch)
    assert count == int(len(expected) * dataset.windows.index.transformed.transform.rate + 1e-9)
    seen: Counter[tuple[str, int]] = Counter()
    numbers = itertools.count()
    for batch in dataset.batches(3, drop_last=False):
        for inputs, labels in zip(
            batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True
        ):
            row = [*inputs, labels[-1]]
            for span in dataset.locate(next(numbers), epoch=pass_number):
                stop = min(span.start + span.count, len(row))
                part = expected[span.id][span.document_start : span.document_start + span.count]
                if row[span.start : stop][-1:] == [-100]:
                    stop -= 1
                assert row[span.start : stop] == part[: stop - span.start]
                offsets = range(span.document_start, span.document_start + span.count)
                places = zip(offsets, range(span.start, len(inputs)), strict=False)
                seen.update((span.id, offset) for offset, _ in places)
    return seen, {(name, i) for name, tokens in expected.items() for i in range(len(tokens))}


@pytest.mark.parametrize("transform", [FIM, Backwards()], ids=["fim", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_transformed_documents_and_each_token_once(lake, kind, transform):
    options = {"shuffle": MIXED, **KINDS[kind], "transform": transform}
    dataset = TokenDataset(lake, **options)
    plain = TokenDataset(lake, **{**options, "transform": None})
    assert dataset.num_tokens > plain.num_tokens
    for number in range(3):
        seen, every = check_epoch(dataset, SMALL, pass_number=number)
        assert set(seen.values()) == {1}
        if kind == "best fit":
            assert seen.keys() == every
        elif kind == "windows":
            assert len(every) - len(seen) == dataset.dropped_tokens + 1
        assert seen.keys() <= every


@settings(max_examples=25)
@given(
    SHAPES,
    st.integers(1, 30),
    st.sampled_from([*WRITERS]),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(0, 1000),
)
def test_any_table_is_transformed(new_place, shape, seq_len, writer, rate, seed):
    assume(sum(group_tokens(shape)) > seq_len)
    lake = make_lake(new_place("table"), shape, **WRITERS[writer])
    boundaries = Format(document_ids=True)
    options = {"seq_len": seq_len, "shuffle": MIXED, "seed": seed, "format": boundaries}
    dataset = TokenDataset(lake, transform=Backwards(rate=rate), **options)
    seen, every = check_epoch(dataset, shape, pass_number=0)
    assert len(every) - len(seen) == dataset.dropped_tokens + 1


def rows_of(batches):
    return [row for batch in batches for row in batch["input_ids"].tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_it_resumes_at_any_sample_on_any_ranks(lake, kind):
    options = {"shuffle": MIXED, **KINDS[kind], "transform": FIM}
    dataset = TokenDataset(lake, **options)
    dataset.set_epoch(1)
    whole = rows_of(dataset.batches(1))
    for consumed in range(len(whole)):
        state = json.loads(json.dumps(dataset.state_dict(consumed=consumed)))
        world_size = consumed % 3 + 1
        ranks = [
            TokenDataset.from_state(lake, state, shard=Shard(rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        rows = [row for rank in ranks for row in rows_of(rank.batches(1))]
        left = whole[consumed:]
        left = left[: len(left) - len(left) % world_size]
        if left:  # else the next epoch
            assert sorted(rows) == sorted(left)
    loader = DataLoader(TokenDataset(lake, **options).batches(2), batch_size=None, num_workers=2)
    assert rows_of(loader) == rows_of(TokenDataset(lake, **options).batches(2))


def test_epochs_cut_the_same_documents_elsewhere(lake):
    dataset = TokenDataset(lake, seq_len=9, transform=FIM, shuffle=False)
    first, second = (expected_documents(dataset, SMALL, epoch)[0] for epoch in (0, 1))
    changed = [name for name, tokens in first.items() if 70_000 in tokens]
    assert changed == [name for name, tokens in second.items() if 70_000 in tokens]
    assert sum(first[name] != second[name] for name in changed) > len(changed) // 2
    other = TokenDataset(lake, seq_len=9, transform=FIM, shuffle=False, seed=1)
    assert expected_documents(other, SMALL, 0)[0] != first


@pytest.fixture(scope="module")
def other(new_place):
    return make_lake(new_place("transformed"), [[[13] * 40, [7] * 30], [[200]]])


def test_a_mixture_transforms_one_source_and_replays_it(lake, other):
    def open_mixture():
        code = TokenDataset(lake, seq_len=9, shuffle=MIXED, transform=FIM)
        web = TokenDataset(other, seq_len=9, shuffle=MIXED)
        return TokenMixture({"code": code, "web": web}, weights={"code": 1, "web": 1}, seed=3)

    rows = rows_of(open_mixture().batches(2))
    mixture = open_mixture()
    loop = iter(mixture.batches(2))
    read = rows_of(next(loop) for _ in range(7))
    state = json.loads(json.dumps(mixture.state_dict()))
    lakes = {"code": lake, "web": other}
    resumed = TokenMixture.from_state(lakes, state)
    assert read + rows_of(resumed.batches(2)) == rows
    again = open_saved([f"{name}={url}" for name, url in lakes.items()], state, shard=Shard())
    replayed = replay(again, step=-3)
    for row, found in zip(rows[8:10], replayed.rows, strict=True):
        assert sum(passage.span.count for passage in found.passages) == len(row) + 1
    special = {70_000, 70_001, 70_002}
    assert any(special & {*row} for row in rows)
    assert all(
        found.source == "code"
        for found, row in zip(replayed.rows, rows[8:10], strict=True)
        if special & {*row}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_traces_find_the_windows_of_transformed_documents(lake, kind):
    dataset = TokenDataset(lake, **{"shuffle": MIXED, **KINDS[kind], "transform": FIM})
    for _ in range(2):
        rows_of(dataset.batches(1))
    expected: dict[str, set[tuple[int, int, int, int]]] = defaultdict(set)
    for epoch in range(2):
        for sample in range(dataset.epochs.of(epoch).num_samples):
            for span in dataset.locate(sample, epoch=epoch):
                expected[span.id or ""].add((epoch, sample, span.start, span.count))
    for seen in find_exposures(dataset, [*expected]):
        places = {(e.epoch, e.sample, e.span.start, e.span.count) for e in seen.exposures}
        assert places == expected[seen.id]


def test_views_and_struck_rows_have_transformed_documents(tmp_path):
    docs = [Doc(source=f"f{i % 3}", row=i, length=(i * 7) % 23) for i in range(60)]
    lake = make_document_lake(str(tmp_path / "lake"), docs, shuffled=True)
    strike(f"{lake}/tokens", {(doc.source, doc.row) for doc in docs[:5]})
    view = View(
        where="row < 50", repeat={"row": [(20, 2), (0, 1)]}, columns=["row"], cache=str(tmp_path)
    )
    for pack in (None, "best_fit"):
        own = Format(pack=pack, document_ids=True)
        dataset = TokenDataset(
            f"{lake}/tokens", seq_len=11, view=view, transform=Backwards(), format=own
        )
        resumed = TokenDataset.from_state(
            f"{lake}/tokens", dataset.state_dict(consumed=4), transform=Backwards()
        )
        assert rows_of(resumed.batches(1)) == rows_of(dataset.batches(1))[4:]
        dataset.set_epoch(0)
        texts: Counter[int] = Counter()
        for sample, batch in enumerate(dataset.batches(1)):
            inputs, ids = batch["input_ids"][0].tolist(), batch["document_ids"][0].tolist()
            spans = [span for span in dataset.locate(sample) if span.start < 11]
            assert [span.row for span in spans] == batch["row"][0]
            for number, span in enumerate(spans):
                mine = [token for token, n in zip(inputs, ids, strict=True) if n == number]
                own_tokens = set(tokens_of(span.row, docs[span.row]))
                assert {t for t in mine if t < 90_000} <= own_tokens
                texts.update(t for t in mine if t < 90_000)
        if pack:
            assert texts == Counter(
                token
                for i, doc in enumerate(docs)
                if 5 <= i < 50
                for token in tokens_of(i, doc) * (2 if i >= 20 else 1)
            )


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(0, 2**64 - 1), st.booleans())
def test_the_middle_can_be_put_back(tokens, seed, is_spm):
    fim = FillInTheMiddle(prefix=2000, suffix=2001, middle=2002, spm_rate=float(is_spm))
    made = fim(np.array(tokens, np.int32), seed)
    assert made.dtype == np.int32
    prefix, suffix, middle = (made.tolist().index(number) for number in (2000, 2001, 2002))
    ids = made.tolist()
    if is_spm:
        assert (prefix, suffix) == (0, 1)
        rest = ids[middle + 1 :]
        assert any(
            rest[:cut] + rest[cut:] + ids[2:middle] == tokens for cut in range(len(rest) + 1)
        )
    else:
        assert prefix == 0
        assert ids[1:suffix] + ids[middle + 1 :] + ids[suffix + 1 : middle] == tokens


def test_cuts_and_modes_are_evenly_random():
    fim = FillInTheMiddle(prefix=20, suffix=21, middle=22)
    tokens = np.arange(2, dtype=np.int32)
    made = Counter(tuple(fim(tokens, seed).tolist()) for seed in range(9000))
    # Of the nine pairs of two cuts in three places, the pairs of different places come twice. SPM shows only
    # where the suffix begins; with an empty prefix, both look the same.
    expected = {
        (20, 21, 22, 0, 1): 2 / 9 + 5 / 9,
        (20, 21, 1, 22, 0): 2 / 9 + 3 / 9,
        (20, 21, 0, 1, 22): 1 / 9 + 1 / 9,
        (20, 0, 21, 22, 1): 2 / 9,
        (20, 0, 21, 1, 22): 1 / 9,
        (20, 0, 1, 21, 22): 1 / 9,
    }
    assert {ids: n / 4500 for ids, n in made.items()} == pytest.approx(expected, abs=0.03)


def record(**changes):
    fields = {"name": "tiny", "sha256": "a" * 64, "vocab_size": 80_000, "bos_id": 7, "eos_id": 0}
    return TokenizerRecord.model_validate(
        {**fields, "append_eos": True, "prepend_bos": True, **changes}
    )


def test_bos_and_eos_stay_at_the_ends():
    docs = np.array([4], np.int32)
    transformed = TransformedDocuments.of(FIM, docs, seed=0, tokenizers=[record()])
    for tokens in ([7, 1, 2, 0], [7, 0], [7], [0], [1, 2], [7, 7, 0, 0]):
        made = transformed.apply(np.array(tokens, np.int32), 5).tolist()
        assert sorted(made) == sorted([*tokens, 70_000, 70_001, 70_002])
        assert (made[0] == 7) == (tokens[0] == 7)
        assert tokens[-1] != 0 or made[-1] == 0


def test_ids_are_checked_against_the_tokenizer(place, tmp_path):
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE())
    names = ["<end>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"]
    tokenizer.add_special_tokens(names)
    path = str(tmp_path / "tokenizer.json")
    tokenizer.save(path)
    fim = FillInTheMiddle.of_tokenizer(path, rate=1.0)
    assert (fim.prefix, fim.suffix, fim.middle, fim.rate) == (1, 2, 3, 1.0)
    with pytest.raises(
        LoaderError, match="<PRE> is not a special token of the tokenizer, which has <end>"
    ):
        FillInTheMiddle.of_tokenizer(path, prefix="<PRE>")
    lake = make_lake(place, SMALL)
    with pytest.raises(LoaderError, match="lineage names no tokenizer"):
        TokenDataset(lake, seq_len=9, transform=fim)
    known = record(sha256=fim.tokenizer, vocab_size=4, bos_id=None, prepend_bos=False)
    lineage = {"tokenizer": known.model_dump(), "action": "append"}
    Table.open(f"{lake}/tokens").commit([], transactions={}, commit_info=to_commit_info(lineage))
    dataset = TokenDataset(lake, seq_len=9, transform=fim)
    state = json.loads(json.dumps(dataset.state_dict()))
    assert rows_of(TokenDataset.from_state(lake, state).batches(1)) == rows_of(dataset.batches(1))
    for wrong, message in (
        (FillInTheMiddle(prefix=1, suffix=2, middle=4), "middle=4 of FillInTheMiddle is not an id"),
        (FillInTheMiddle(prefix=0, suffix=2, middle=3), "prefix=0 of FillInTheMiddle is not an id"),
        (
            FillInTheMiddle(prefix=1, suffix=2, middle=3, tokenizer="b" * 64),
            "ids of another tokenizer",
        ),
    ):
        with pytest.raises(LoaderError, match=message):
            TokenDataset(lake, seq_len=9, transform=wrong)
    for fields, message in (
        ({"prefix": 1, "suffix": 1, "middle": 2}, "are not three ids"),
        ({"prefix": 1, "suffix": 2, "middle": 3, "rate": 1.5}, "rate=1.5"),
    ):
        with pytest.raises(LoaderError, match=message):
            FillInTheMiddle(**fields)


def test_what_a_transform_cannot_be_is_refused(lake):
    options = {"seq_len": 9, "shuffle": MIXED}
    dataset = TokenDataset(lake, transform=Backwards(), **options)
    state = dataset.state_dict()
    with pytest.raises(
        LoaderError, match=r"transform Backwards of your own(.|\n)*transform=\.\.\."
    ):
        TokenDataset.from_state(lake, state)
    TokenDataset.from_state(lake, state, transform=Backwards())
    for given_ in (None, FIM, Backwards(rate=0.61)):
        with pytest.raises(LoaderError, match="another order of samples .*transform="):
            TokenDataset(lake, transform=given_, **options).load_state_dict(state)
    with pytest.raises(LoaderError, match="rate=2"):
        TokenDataset(lake, transform=Backwards(rate=2), **options)

    class Growing(Backwards):
        def __call__(self, tokens, seed):
            return np.append(super().__call__(tokens, seed), [1])

    broken = TokenDataset(lake, transform=Growing(), **options)
    with pytest.raises(LoaderError, match=r"Growing returned int64 of shape(.|\n)*num_added=2"):
        rows_of(broken.batches(1))


def test_prefixes_of_a_view_are_not_for_transforms(tmp_path, tiny_tokenizer):
    docs = [Doc(source="f", row=i) for i in range(9)]
    lake = make_document_lake(str(tmp_path / "lake"), docs)
    view = View(prefix=Prefix(column="url", tokenizer=str(tiny_tokenizer)), cache=str(tmp_path))
    with pytest.raises(LoaderError, match="prefix of a View is not for a transform"):
        TokenDataset(lake, seq_len=9, view=view, transform=Backwards())
