"""Views: which documents are read, how often, on which side of a split, and their columns in batches."""

import gc
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.delta.table import Table
from etl.errors import LoaderError, StorageError
from etl.lake.table_specs import TOKENS
from etl.loader import (
    Expect,
    Format,
    Prefix,
    Schedule,
    Shard,
    Shuffle,
    Split,
    TokenDataset,
    TokenMixture,
    View,
    open_shared,
)
from etl.loader.replay import replay
from etl.loader.views.shared_folders import share_folders
from tests.helpers.document_lakes import (
    MAX_TOKENS,
    Doc,
    make_document_lake,
    naive_is_validation,
    naive_key,
    naive_seed,
    tokens_of,
)
from tests.helpers.rank_processes import run_ranks
from tests.helpers.struck_tables import strike
from tests.helpers.token_tables import rows_of

GERMAN = "lang = 'de' AND quality > 0.2"
SHUFFLE = Shuffle(lanes=3, block_tokens=40, run_tokens=60)
REPEAT = {"quality": [(0.9, 4), (0.5, 1.3), (0, 0.2), (None, 1)]}


@st.composite
def documents(draw: st.DrawFn) -> list[Doc]:
    """Return documents of a few files, with nulls, equal texts, empty and rejected ones."""
    docs = [Doc(source="first", row=0, quality=1.0, lang="de")]
    for source in ("a", "b%20ü", "c")[: draw(st.integers(1, 3))]:
        for row in range(draw(st.integers(0, 12))):
            kept = draw(st.integers(0, 5)) > 0
            doc = Doc(
                source=source,
                row=row * draw(st.integers(1, 3)) + 40 * row,
                length=draw(st.one_of(st.none(), st.integers(0, 40))) if kept else None,
                lang=draw(st.sampled_from(["de", "en", None])),
                quality=draw(st.sampled_from([None, -1.0, 0.0, 0.3, 0.5, 0.7, 0.9, 1.0])),
                text=draw(st.sampled_from([None, *"uvwxyz"])),
                verdict="kept" if kept else "rejected",
            )
            docs.append(doc)
    return docs


def times_of(doc: Doc, view: View) -> int:
    """Return how often a document comes in an epoch, with plain Python."""
    if doc.length is None:
        return 0
    if view.where == GERMAN and not (doc.lang == "de" and (doc.quality or 0) > 0.2):
        return 0
    times = 1.0
    if view.repeat:
        pairs = view.repeat["quality"]
        nulls = [times for limit, times in pairs if limit is None]
        quality = doc.quality or 0
        reached = [t for limit, t in pairs if limit is not None and quality >= limit]
        times = nulls[0] if doc.quality is None else [*reached, 0][0]
    draw = (naive_key(doc, naive_seed("repeat", view.seed)) >> 11) * 2.0**-53
    count = int(times) + (draw < times - int(times))
    if view.split is not None:
        is_validation = naive_is_validation(doc, view.split.share, view.split.seed)
        count *= is_validation == (view.split.side == "validation")
    return count


def expected_times(docs: Sequence[Doc], view: View) -> Counter[int]:
    return +Counter({i: times_of(doc, view) for i, doc in enumerate(docs) if doc.length})


def read_documents(dataset: TokenDataset, batch_size: int = 1) -> list[int]:
    """Return the numbers of the documents of padded batches, whose tokens must be complete."""
    numbers = []
    for batch in dataset.batches(batch_size, drop_last=False):
        for row, length in zip(
            batch["input_ids"].tolist(), batch["num_tokens"].tolist(), strict=True
        ):
            number = row[0] // MAX_TOKENS
            assert row[:length] == list(range(number * MAX_TOKENS, number * MAX_TOKENS + length))
            numbers.append(number)
    return numbers


VIEWS = st.builds(
    View,
    where=st.sampled_from([None, GERMAN]),
    repeat=st.sampled_from([{}, REPEAT]),
    split=st.sampled_from(
        [None, Split(side="train", share=0.4), Split(side="validation", share=0.7)]
    ),
    seed=st.integers(0, 3),
)


@given(documents(), VIEWS, st.booleans(), st.integers(1, 4))
@pytest.mark.slow
def test_each_document_comes_as_often_as_the_view_says(docs, view, shuffled, world_size):
    with tempfile.TemporaryDirectory() as folder:
        lake = make_document_lake(f"{folder}/lake", docs, shuffled=True)
        view = View(**{**vars(view), "columns": ["url", "quality"], "cache": f"{folder}/cache"})
        check_view(f"{lake}/tokens_shuffled" if shuffled else lake, docs, view, world_size)


@given(documents(), VIEWS, st.booleans(), st.integers(1, 3), st.data())
@settings(max_examples=40)
@pytest.mark.slow
def test_struck_rows_of_the_tokens_need_no_document(docs, view, shuffled, world_size, data):
    lost = data.draw(st.sampled_from(["", "a"]))
    struck = data.draw(st.sets(st.sampled_from(docs)))
    struck |= {doc for doc in docs if doc.source == lost}
    live = [replace(doc, length=None) if doc in struck else doc for doc in docs]
    with tempfile.TemporaryDirectory() as folder:
        lake = make_document_lake(f"{folder}/lake", docs, shuffled=True, lost=lost)
        table = f"{lake}/tokens_shuffled" if shuffled else f"{lake}/tokens"
        strike(table, {(doc.source, doc.row) for doc in struck})
        view = View(**{**vars(view), "columns": ["url", "quality"], "cache": f"{folder}/cache"})
        if any(doc.length for doc in live):
            check_view(table, live, view, world_size)


@pytest.mark.parametrize("table", ["tokens", "tokens_shuffled"])
def test_row_groups_between_others_may_have_only_struck_rows(tmp_path, table):
    lake = make_document_lake(str(tmp_path / "lake"), DOCS, shuffled=True)
    struck = [doc for doc in DOCS if 20 <= doc.row < 48 or doc.source == "f1"]
    live = [replace(doc, length=None) if doc in struck else doc for doc in DOCS]
    strike(f"{lake}/{table}", {(doc.source, doc.row) for doc in struck})
    view = View(**{**vars(VIEW), "columns": ["url", "quality"], "cache": str(tmp_path / "cache")})
    check_view(f"{lake}/{table}", live, view, 2)


@pytest.mark.parametrize("options", [{"seq_len": 5}, {"seq_len": 40, "format": Format(pad_id=0)}])
def test_the_files_of_the_cache_are_closed_with_the_dataset(tmp_path, options):
    docs = [Doc(source=source, row=row, lang="de") for source in "abc" for row in range(12)]
    lake = make_document_lake(str(tmp_path / "lake"), docs, shuffled=True)
    view = View(where=GERMAN, columns=["url"], cache=str(tmp_path / "cache"))
    gc.collect()
    gc.disable()  # references alone must suffice
    try:
        dataset = TokenDataset(lake, view=view, shuffle=SHUFFLE, **options)
        read = sum(len(batch["input_ids"]) for batch in dataset.batches(2))
        left = iter(dataset.batches(2))
        next(left)
        dataset.locate(0)
        assert read
        maps = Path("/proc/self/maps")
        assert str(tmp_path) in maps.read_text()
        del dataset, left
        assert str(tmp_path) not in maps.read_text()
    finally:
        gc.enable()


def check_view(table: str, docs: Sequence[Doc], view: View, world_size: int) -> None:
    """Check the documents, the windows and the columns of an epoch, against plain Python."""
    expected = expected_times(docs, view)
    padded = {"seq_len": MAX_TOKENS, "format": Format(pad_id=0), "shuffle": SHUFFLE, "view": view}
    if not expected:
        with pytest.raises(LoaderError, match="the view selects no tokens"):
            TokenDataset(table, **padded)
        return
    dataset = TokenDataset(table, **padded)
    assert Counter(read_documents(dataset)) == expected
    world_size = min(world_size, dataset.num_samples)
    shards = [Shard(rank=rank, world_size=world_size) for rank in range(world_size)]
    parts = (read_documents(TokenDataset(table, shard=shard, **padded)) for shard in shards)
    read = Counter(number for part in parts for number in part)
    assert not read - expected
    assert (expected - read).total() == dataset.num_samples % world_size
    if dataset.num_tokens >= 6:
        check_windows(TokenDataset(table, seq_len=5, shuffle=SHUFFLE, view=view), docs, expected)


def check_windows(dataset: TokenDataset, docs: Sequence[Doc], expected: Counter[int]) -> None:
    """Check the tokens, the columns and the documents of all packed windows."""
    tokens = Counter(t for i, n in expected.items() for t in tokens_of(i, docs[i]) * n)
    assert dataset.num_tokens == tokens.total()
    read: Counter[int] = Counter()
    sample = 0
    for batch in dataset.batches(3, drop_last=False):
        for row in range(len(batch["input_ids"])):
            window = batch["input_ids"][row].tolist()
            read.update(window)
            starts = [0] + [i for i in range(1, 5) if window[i] != window[i - 1] + 1]
            inside = [docs[window[i] // MAX_TOKENS] for i in starts]
            assert batch["url"][row] == [doc.url for doc in inside]
            assert batch["quality"][row] == [doc.quality for doc in inside]
            spans = dataset.locate(sample)
            located = [
                token
                for span in spans
                for number, doc in enumerate(docs)
                if (doc.source, doc.row) == (span.source, span.row)
                for token in tokens_of(number, doc)[span.document_start :][: span.count]
            ]
            assert located == [*window, int(batch["labels"][row, -1])]
            sample += 1
    assert not read - tokens
    assert (tokens - read).total() == dataset.dropped_tokens + 1


DOCS = [
    Doc(source=f"f{i % 4}", row=i, length=3 + i % 9, quality=i % 10 / 10, text=f"text {i}")
    for i in range(60)
]
VIEW = View(where="quality >= 0.1", repeat={"quality": [(0.7, 2.5), (0, 0.5)]}, columns=["url"])


@pytest.fixture(scope="module")
def doc_lake(tmp_path_factory):
    return make_document_lake(str(tmp_path_factory.mktemp("views") / "lake"), DOCS, shuffled=True)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tokenlake" / "loader"


@pytest.mark.parametrize("table", ["tokens", "tokens_shuffled"])
def test_all_settings_of_a_view_together(doc_lake, cache, table):
    split = Split(side="train", share=0.3)
    view = View(where="quality >= 0", repeat=REPEAT, split=split, columns=["url", "quality"])
    check_view(f"{doc_lake}/{table}", DOCS, view, 3)


def test_a_view_can_be_resumed_on_other_ranks_and_replayed(doc_lake, cache):
    dataset = TokenDataset(doc_lake, seq_len=6, shuffle=SHUFFLE, view=VIEW)
    whole = rows_of(dataset)
    seen, state = [], None
    for rank in range(3):
        shard = Shard(rank=rank, world_size=3)
        part = TokenDataset(doc_lake, seq_len=6, shuffle=SHUFFLE, view=VIEW, shard=shard)
        batches = iter(part.batches(2))
        for _ in range(3):
            batch = next(batches)
            seen += batch["input_ids"].tolist()
        state = part.state_dict()
    saved = json.loads(json.dumps(state))
    for rank in range(2):
        rest = TokenDataset.from_state(doc_lake, saved, shard=Shard(rank=rank, world_size=2))
        assert rest.view.settings() == VIEW.settings()
        for batch in rest.batches(1, drop_last=False):
            assert [len(urls) >= 1 for urls in batch["url"]] == [True]
            seen += batch["input_ids"].tolist()
    assert len(seen) >= len(whole) - 1
    assert not Counter(map(tuple, seen)) - Counter(tuple(row[:-1]) for row in whole)
    rows = replay(TokenDataset.from_state(doc_lake, saved), batch_size=4).rows
    assert [sum(p.span.count for p in row.passages) for row in rows] == [7] * 4


def test_a_state_belongs_to_its_view(doc_lake, cache):
    state = TokenDataset(doc_lake, seq_len=6, view=VIEW).state_dict()
    for other in (None, View(where="quality >= 0.2"), View(split=Split(side="train", share=0.1))):
        dataset = TokenDataset(doc_lake, seq_len=6, view=other)
        with pytest.raises(LoaderError, match=r"another order of samples (.|\n)*view="):
            dataset.load_state_dict(state)
    columns = TokenDataset(doc_lake, seq_len=6, view=View(columns=["lang"]))
    columns.load_state_dict(TokenDataset(doc_lake, seq_len=6).state_dict())  # the order is the same


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_read_views_and_columns(doc_lake, cache, workers):
    dataset = TokenDataset(doc_lake, seq_len=6, shuffle=SHUFFLE, view=VIEW)
    alone = [(b["input_ids"].tolist(), b["url"]) for b in dataset.batches(2)]
    dataset = TokenDataset(doc_lake, seq_len=6, shuffle=SHUFFLE, view=VIEW)
    loader = DataLoader(
        dataset.batches(2), batch_size=None, num_workers=workers, multiprocessing_context="fork"
    )
    assert [(b["input_ids"].tolist(), b["url"]) for b in loader] == alone


def test_two_sides_have_each_document_once_and_keep_it(tmp_path, cache):
    docs = [*DOCS, *(Doc(source="more", row=i, text=f"text {i % 70}") for i in range(100))]
    small = make_document_lake(str(tmp_path / "small"), DOCS)
    large = make_document_lake(str(tmp_path / "large"), docs, shuffled=True)
    read = {}
    for lake in (small, f"{large}/tokens", f"{large}/tokens_shuffled"):
        for side in ("train", "validation"):
            view = View(split=Split(side=side, share=0.3))
            dataset = TokenDataset(lake, seq_len=64, format=Format(pad_id=0), view=view)
            read[lake, side] = sorted(read_documents(dataset))
    for lake, count in ((small, 60), (f"{large}/tokens", 160)):
        assert sorted(read[lake, "train"] + read[lake, "validation"]) == list(range(count))
    for side in ("train", "validation"):
        assert read[f"{large}/tokens", side] == read[f"{large}/tokens_shuffled", side]
        assert [i for i in read[f"{large}/tokens", side] if i < 60] == read[small, side]
    validation = {docs[i].text for i in read[f"{large}/tokens", "validation"]}
    assert not validation & {docs[i].text for i in read[f"{large}/tokens", "train"]}
    assert 0.15 < len(read[f"{large}/tokens", "validation"]) / 160 < 0.45


def test_the_second_opening_reads_the_cache(tmp_path, cache):
    lake = make_document_lake(str(tmp_path / "lake"), DOCS)
    rows = rows_of(TokenDataset(lake, seq_len=6, view=VIEW))
    shutil.move(tmp_path / "lake" / "documents" / "verdict=kept", tmp_path / "moved")
    assert rows_of(TokenDataset(lake, seq_len=6, view=VIEW)) == rows
    for path in cache.rglob("times.npy"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StorageError, match="verdict=kept"):
        TokenDataset(lake, seq_len=6, view=VIEW)
    shutil.move(tmp_path / "moved", tmp_path / "lake" / "documents" / "verdict=kept")
    assert rows_of(TokenDataset(lake, seq_len=6, view=VIEW)) == rows
    assert not list(cache.glob("*.part"))


@pytest.mark.slow
def test_only_the_first_opening_imports_polars(doc_lake, cache):
    code = f"""
import sys
from etl.loader import TokenDataset, View
view = View(where="quality >= 0.1", columns=["url"])
batches = list(TokenDataset({doc_lake!r}, seq_len=6, view=view).batches(2))
print("polars" in sys.modules, len(batches))
"""
    command = [sys.executable, "-c", code]
    first, second = (subprocess.check_output(command, text=True).split() for _ in range(2))
    assert first[0] == "True"
    assert second == ["False", first[1]]


def test_a_cache_that_cannot_be_written_is_an_error(doc_lake, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StorageError, match=r"cache of the loader cannot be used(.|\n)*hint: set View"
    ):
        TokenDataset(doc_lake, seq_len=6, view=View(where="row > 1", cache=str(tmp_path / "file")))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda: View(columns=["ulr"]), r"no column 'ulr'(.|\n)*did you mean 'url'"),
        (lambda: View(columns="url"), "columns='url' is not a list"),
        (lambda: View(columns=["labels"]), "has the name of a tensor"),
        (lambda: View(where="quality >"), "is not a valid SQL expression"),
        (lambda: View(where="qualty > 1"), "did you mean 'quality'"),
        (lambda: View(where="quality"), "has the type Float64, not Boolean"),
        (lambda: View(where="content_hash = 'a'"), "not a column"),
        (
            lambda: View(where="quality > 9"),
            r"selects no tokens: of 60 kept documents, it selects 0",
        ),
        (lambda: View(repeat={"qualty": [(0, 1)]}), "no column 'qualty'"),
        (lambda: View(repeat={"lang": [(0, 1)]}), "a numeric column, but lang is string"),
        (
            lambda: View(repeat={"lang_score": [(0, 1)]}),
            r"60 documents have no value in lang_score",
        ),
        (lambda: View(repeat={"quality": [(0, 1), (1, 2)]}), "do not fall"),
        (lambda: View(repeat={"quality": [(0, -1)]}), "not 0 or more"),
        (lambda: View(repeat={"quality": [(0, 101)]}), "but 100 are allowed"),
        (lambda: View(repeat={"quality": [(0, float("nan"))]}), "not 0 or more"),
        (lambda: View(repeat={"quality": []}), "not a list of"),
        (lambda: View(repeat={"quality": [(None, 1), (None, 2)]}), "several pairs for null"),
        (lambda: View(split=Split(side="test", share=0.1)), "side='test'"),
        (lambda: View(split=Split(side="train", share=1)), "not between 0 and 1"),
    ],
)
def test_a_view_that_is_not_valid_is_an_error(doc_lake, cache, view, message):
    with pytest.raises(LoaderError, match=message):
        TokenDataset(doc_lake, seq_len=6, view=view())
    assert not list(cache.glob("rows-*"))


@pytest.mark.parametrize("empty", [False, True])
def test_pages_without_selected_rows_are_not_decompressed(tmp_path, cache, empty):
    docs = [Doc(source="a", row=i, length=40_000 if i == 8 else 30_000) for i in range(16)]
    if empty:
        docs.append(Doc(source="a", row=16, length=0))
    lake = make_document_lake(str(tmp_path / "lake"), docs, layout=TOKENS.layout)
    options = {"seq_len": 89_999, "shuffle": False, "expect": Expect(vocab_size=31_000)}
    with pytest.raises(LoaderError, match="token id 31000 is out of range"):
        rows_of(TokenDataset(lake, **options))
    dataset = TokenDataset(lake, view=View(where="row < 2 OR row >= 15"), **options)
    if empty:  # pages count an empty list as a value, so that all before a row must be read
        with pytest.raises(LoaderError, match="token id 31000 is out of range"):
            rows_of(dataset)
    else:
        assert rows_of(dataset) == [[t for i in (0, 1, 15) for t in tokens_of(i, docs[i])]]


def test_rows_without_a_document_are_an_error(tmp_path, cache):
    lake = make_document_lake(str(tmp_path / "lake"), DOCS, shuffled=True, lost="f2")
    for table in (lake, f"{lake}/tokens_shuffled"):
        with pytest.raises(
            LoaderError, match=r"15 or more rows have no document, such as row \d+ of f2"
        ):
            TokenDataset(table, seq_len=6, view=VIEW)


def test_the_documents_are_those_of_the_version_that_the_tokens_were_made_from(tmp_path, cache):
    lake = make_document_lake(str(tmp_path / "lake"), DOCS)
    rows = rows_of(TokenDataset(lake, seq_len=6, view=VIEW))
    documents = Table.open(f"{lake}/documents")
    paths = [file["path"] for file in documents.files("path")]
    assert documents.commit([], remove=paths, transactions={}).version == 2
    assert rows_of(TokenDataset(lake, seq_len=6, view=VIEW)) == rows
    shutil.rmtree(cache)
    assert rows_of(TokenDataset(lake, seq_len=6, view=VIEW)) == rows


def test_a_table_without_documents_is_an_error(lake, cache):
    with pytest.raises(LoaderError, match="the lineage of the tokens names no version"):
        TokenDataset(lake, seq_len=6, view=VIEW)


def test_repetitions_are_spread_over_an_epoch_without_a_shuffle(doc_lake, cache):
    view = View(repeat={"quality": [(0.9, 3), (0, 1)]})
    dataset = TokenDataset(
        f"{doc_lake}/tokens_shuffled", seq_len=64, format=Format(pad_id=0), view=view, shuffle=False
    )
    order = read_documents(dataset)
    assert len(order) == 54 + 3 * 6
    places = {i: [p for p, n in enumerate(order) if n == i] for i in range(9, 60, 10)}
    assert all(b - a > 10 for found in places.values() for a, b in pairwise(found))
    assert {len(found) for found in places.values()} == {3}


def test_mixtures_of_views_have_the_columns_of_each(doc_lake, cache):
    views = {
        "good": View(where="quality > 0.6", columns=["url"]),
        "rest": View(where="quality <= 0.6", columns=["url"]),
    }
    options = {"seq_len": 6, "shuffle": SHUFFLE}
    datasets = {name: TokenDataset(doc_lake, view=view, **options) for name, view in views.items()}
    mixture = TokenMixture(datasets, weights={"good": 0.5, "rest": 0.5})
    for batch in mixture.batches(4):
        for row, source in enumerate(batch["source"].tolist()):
            numbers = [token // MAX_TOKENS for token in batch["input_ids"][row].tolist()]
            inside = [DOCS[number] for number in dict.fromkeys(numbers)]
            assert all((doc.quality > 0.6) == (source == 0) for doc in inside)
            assert batch["url"][row] == [doc.url for doc in inside]
    state = json.loads(json.dumps(mixture.state_dict()))
    again = TokenMixture.from_state({"good": doc_lake, "rest": doc_lake}, state)
    assert again.columns == ("url",)
    plain = TokenDataset(doc_lake, **options)
    with pytest.raises(LoaderError, match="differ in"):
        TokenMixture({"a": plain, "b": datasets["good"]}, weights={"a": 1, "b": 1})
    named = TokenDataset(doc_lake, view=View(columns=["source"]), **options)
    with pytest.raises(LoaderError, match="the column source of View"):
        TokenMixture({"a": named}, weights={"a": 1})


@pytest.mark.parametrize("shuffle", [True, False])
def test_whole_documents_of_a_view_can_be_packed(doc_lake, cache, shuffle):
    view, best_fit = View(repeat=REPEAT), Format(pack="best_fit", pad_id=0)
    dataset = TokenDataset(doc_lake, seq_len=40, shuffle=shuffle, format=best_fit, view=view)
    expected: Counter[int] = Counter()
    for number, times in expected_times(DOCS, view).items():
        expected.update(tokens_of(number, DOCS[number]) * times)
    seen: Counter[int] = Counter()
    for batch in dataset.batches(3, drop_last=False):
        seen.update(batch["input_ids"].flatten().tolist())
    del seen[0], expected[0]  # also padding
    assert seen == expected


@pytest.mark.parametrize(
    "options",
    [
        {"seq_len": 40, "format": Format(pack="best_fit", pad_id=10**6)},
        {"seq_len": 4, "format": Format(pack="best_fit", pad_id=10**6), "shuffle": False},
        {"seq_len": Schedule([(0, 5), (4, 9), (30, 3)])},
    ],
)
def test_columns_come_with_windows_of_any_kind(doc_lake, cache, options):
    view = View(repeat=REPEAT, columns=["row", "url"])
    options = {"shuffle": SHUFFLE, "view": view, **options}
    dataset = TokenDataset(doc_lake, **options)
    num_rows = 0
    for _ in range(3):
        for batch in dataset.batches(3, drop_last=False):
            for tokens, rows, urls in zip(
                batch["input_ids"].tolist(), batch["row"], batch["url"], strict=True
            ):
                window = [token for token in tokens if token < 10**6]
                starts = [i for i, t in enumerate(window) if not i or t != window[i - 1] + 1]
                inside = [DOCS[window[i] // MAX_TOKENS] for i in starts]
                assert (rows, urls) == ([doc.row for doc in inside], [doc.url for doc in inside])
                num_rows += 1
    assert num_rows > 30


def test_prefixes_of_packed_documents_are_refused(doc_lake, cache, tiny_tokenizer):
    view = View(prefix=Prefix(column="url", tokenizer=str(tiny_tokenizer)))
    with pytest.raises(LoaderError, match="prefix of a View is not for pack='best_fit'"):
        TokenDataset(doc_lake, seq_len=40, format=Format(pack="best_fit"), view=view)


def test_evenness_counts_the_documents_of_the_view(doc_lake, cache):
    view = View(where="source = 'f1'")
    assert TokenDataset(doc_lake, seq_len=6, view=view).evenness(batch_size=2).sources == 1


def test_a_dataset_with_a_view_can_be_sent_to_a_process(doc_lake, cache):
    dataset = TokenDataset(doc_lake, seq_len=6, shuffle=SHUFFLE, view=VIEW)
    batches = [(b["input_ids"].tolist(), b["url"]) for b in dataset.batches(2)]
    assert b".npy" in pickle.dumps(
        dataset.windows.view
    )  # paths of arrays in the cache, not the arrays
    received = pickle.loads(pickle.dumps(dataset))
    received.set_epoch(0)
    assert [(b["input_ids"].tolist(), b["url"]) for b in received.batches(2)] == batches


def _open(lake: str, view: View) -> list[list[int]]:
    return rows_of(open_shared(lambda: TokenDataset(lake, seq_len=6, view=view)))


def test_a_view_can_be_opened_for_all_ranks(doc_lake, tmp_path):
    view = View(repeat=REPEAT, split=Split(side="train", share=0.3), cache=str(tmp_path / "cache"))
    parts = run_ranks(_open, doc_lake, view, folder=tmp_path)
    whole = rows_of(TokenDataset(doc_lake, seq_len=6, view=view))
    assert sorted(parts[0] + parts[1]) == sorted(whole[: len(whole) // 2 * 2])


def test_a_forked_process_does_not_wait_for_polars(doc_lake, tmp_path):
    TokenDataset(doc_lake, seq_len=6, view=View(where="row > 1", cache=str(tmp_path / "cache")))
    view = View(where="row > 2", cache=str(tmp_path / "cache"))
    with pytest.raises(AssertionError, match="forked from one that has evaluated a view"):
        run_ranks(_open, doc_lake, view, folder=tmp_path)


def _share(folder: str) -> list[str]:
    import torch.distributed as dist

    own = Path(folder, str(dist.get_rank()) if dist.get_rank() else "cache")
    folders = [own / name for name in sorted(p.name for p in Path(folder, "cache").iterdir())]
    share_folders(folders)
    share_folders(folders)  # now nothing is sent
    return [p.read_bytes().hex() for folder in folders for p in sorted(folder.iterdir())]


def test_the_ranks_of_other_machines_get_the_cache(doc_lake, tmp_path):
    view = View(where="quality > 0.2", columns=["url"], cache=str(tmp_path / "cache"))
    TokenDataset(doc_lake, seq_len=6, view=view)
    first, *others = run_ranks(_share, str(tmp_path), folder=tmp_path, world_size=3)
    assert first
    assert others == [first, first]


def test_a_view_of_a_lake_in_an_object_store(s3, cache):
    lake = make_document_lake(f"{s3}/lake", DOCS, shuffled=True)
    dataset = TokenDataset(
        f"{lake}/tokens_shuffled", seq_len=64, format=Format(pad_id=0), view=VIEW, shuffle=SHUFFLE
    )
    assert Counter(read_documents(dataset)) == expected_times(
        DOCS, View(repeat=VIEW.repeat)
    ) - Counter(dict.fromkeys(range(0, 60, 10), 9))
