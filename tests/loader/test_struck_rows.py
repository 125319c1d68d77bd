"""Struck rows of a token table are not read, wherever it is read: as if they were not in its files."""

import pickle
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from upath import UPath

from etl.delta.table import Table
from etl.errors import LoaderError, TableError
from etl.exports.huggingface import read_documents
from etl.exports.megatron import export_megatron
from etl.loader import Format, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.check_table import sample_ends
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.read_index import read_index
from etl.loader.replay import replay
from tests.helpers.megatron_files import read_megatron
from tests.helpers.paths import at, copy
from tests.helpers.struck_tables import strike
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    Document,
    Shape,
    documents,
    make_lake,
)

MakeBoth = Callable[..., tuple[str, str]]
SMALL_UNITS = Shuffle(lanes=2, block_tokens=40, run_tokens=10)
FORMATS: dict[str, dict[str, Any]] = {
    "packed": {"seq_len": 7, "shuffle": MIXED},
    "in order": {"seq_len": 7, "shuffle": False},
    "boundaries": {
        "seq_len": 5,
        "shuffle": MIXED,
        "format": Format(document_ids=True, position_ids=True, cu_seqlens=True),
    },
    "windows": {"seq_len": Schedule([(0, 4), (6, 9)]), "shuffle": MIXED},
    "padded": {"seq_len": 12, "shuffle": MIXED, "format": Format(pad_id=0)},
    "best fit": {
        "seq_len": 16,
        "shuffle": SMALL_UNITS,
        "format": Format(pack="best_fit", pad_id=0, document_ids=True),
    },
}


def choose(shape: Shape, kind: str) -> list[Document]:
    """Return the documents of a kind."""
    docs = [*documents(shape)]
    ends = {(doc.file, doc.row_group): doc for doc in docs}
    chosen = {
        "scattered": docs[1::3],
        "first": docs[:1],
        "last": docs[-1:],
        "last of row groups": [*ends.values()],
        "row groups": [doc for doc in docs if (doc.file, doc.row_group) in ((0, 1), (2, 2))],
        "file": [doc for doc in docs if doc.file == 2],
        "empty": [doc for doc in docs if not doc.tokens],
        "most": docs[:9] + docs[10:],
    }
    return chosen[kind]


KINDS = ("scattered", "first", "last", "last of row groups", "row groups", "file", "empty", "most")


def addresses_of(docs: Collection[Document]) -> set[tuple[str, int]]:
    return {(doc.source, doc.row) for doc in docs}


def make_both(
    folder: UPath, shape: Shape, struck: Collection[Document], **options: Any
) -> tuple[str, str]:
    """Return a lake with struck documents, and one without them."""
    lake = make_lake(folder / "struck", shape, **options)
    strike(f"{lake}/tokens", addresses_of(struck))
    return lake, make_lake(folder / "plain", shape, left_out=struck, **options)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> MakeBoth:
    """Return a function that returns the same lakes, read-only, for the same arguments."""

    @cache
    def make(kind: str, writer: str = "plain") -> tuple[str, str]:
        folder = UPath(tmp_path_factory.mktemp("both"))
        return make_both(folder, SMALL, choose(SMALL, kind), **WRITERS[writer])

    return make


def as_lists(batches: Any) -> list[dict[str, Any]]:
    return [{name: values.tolist() for name, values in batch.items()} for batch in batches]


def read_passes(lake: str, passes: int = 2, **options: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield the batches of some passes."""
    dataset = TokenDataset(lake, **options)
    for _ in range(passes):
        yield as_lists(dataset.batches(2, drop_last=False))


def locate_all(dataset: TokenDataset) -> list[list[object]]:
    """Return the documents of all samples, without the row groups, whose numbers differ."""
    samples = range(dataset.num_samples)
    return [[replace(span, row_group=0) for span in dataset.locate(s)] for s in samples]


def find_error(lake: str, options: dict[str, Any]) -> str | None:
    """Return why a dataset cannot be opened."""
    try:
        TokenDataset(lake, **options)
    except LoaderError as error:
        return error.what
    return None


def check_equal(
    struck: str, plain: str, options: dict[str, Any], world_sizes: Sequence[int]
) -> None:
    """Check that two tables have the same batches on all ranks, and the same documents behind them."""
    if (message := find_error(plain, options)) is not None:
        assert find_error(struck, options) == message
        return
    dataset = TokenDataset(plain, **options)
    other = TokenDataset(struck, **options)
    assert (other.num_tokens, other.num_samples) == (dataset.num_tokens, dataset.num_samples)
    assert locate_all(other) == locate_all(dataset)
    fewest = min(dataset.epochs.of(epoch).num_samples for epoch in range(2))
    for world_size in (each for each in world_sizes if each <= fewest):
        for rank in range(world_size):
            shard = Shard(rank=rank, world_size=world_size)
            passes = (read_passes(lake, shard=shard, **options) for lake in (struck, plain))
            assert [*next(passes)] == [*next(passes)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_batches_equal_those_of_a_table_without_the_struck_rows(both, name, kind):
    struck, plain = both(kind)
    check_equal(struck, plain, FORMATS[name], (1, 3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_batches_are_equal_on_any_number_of_ranks(both, name, kind):
    struck, plain = both(kind)
    check_equal(struck, plain, FORMATS[name], (2, 4, 5))


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer != "plain"])
@pytest.mark.parametrize("name", FORMATS)
def test_pages_of_any_kind_can_have_struck_rows(both, name, writer):
    struck, plain = both("scattered", writer)
    check_equal(struck, plain, FORMATS[name], (1,))


@given(SHAPES, st.data())
def test_any_rows_of_any_table_can_be_struck(shape, data):
    docs = [*documents(shape)]
    struck = data.draw(st.lists(st.sampled_from(docs), unique=True)) if docs else []
    options = FORMATS[data.draw(st.sampled_from([*FORMATS]))]
    with tempfile.TemporaryDirectory() as folder:
        check_equal(*make_both(UPath(folder), shape, struck), options, (2,))


def test_each_live_document_comes_once(both):
    struck = choose(SMALL, "scattered")
    lake, _ = both("scattered")
    dataset = TokenDataset(lake, seq_len=64, shuffle=MIXED, format=Format(pad_id=-1))
    rows = [
        row for batch in dataset.batches(3, drop_last=False) for row in batch["input_ids"].tolist()
    ]
    live = [doc for doc in documents(SMALL) if doc not in struck and doc.tokens]
    assert sorted([t for t in row if t >= 0] for row in rows) == [[*doc.tokens] for doc in live]


def test_a_vector_may_change_in_any_commit(tmp_path):
    lake = make_lake(UPath(tmp_path), SMALL)
    tokens = {doc: [*doc.tokens] for doc in documents(SMALL)}
    options = {"seq_len": 1, "shuffle": False}
    kinds = ("first", "scattered", "file", "most", "row groups", "empty")
    versions = {0: (), 1: (), 2: choose(SMALL, "last")}
    strike(f"{lake}/tokens", addresses_of(versions[2]))
    for kind in kinds:
        chosen = choose(SMALL, kind)
        versions[strike(f"{lake}/tokens", addresses_of(chosen)).version] = chosen
    versions[strike(f"{lake}/tokens", []).version] = ()
    for version, gone in [*versions.items()][1:]:
        dataset = TokenDataset(lake, version=version, **options)
        read = [batch["input_ids"].item() for batch in dataset.batches(1)]
        live = [token for doc, values in tokens.items() if doc not in gone for token in values]
        assert read == live[:-1], version
        plan = dataset.state_dict()["plan"]
        same = [v for v, each in versions.items() if each == gone and v]
        assert plan == TokenDataset(lake, version=same[0], **options).state_dict()["plan"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_state_continues_at_its_version_and_is_refused_at_another(tmp_path, name):
    lake, options = make_lake(UPath(tmp_path), SMALL), FORMATS[name]
    for struck in ((), choose(SMALL, "scattered"), choose(SMALL, "row groups")):
        version = strike(f"{lake}/tokens", addresses_of(struck)).version
        whole = as_lists(TokenDataset(lake, **options).batches(2))
        dataset = TokenDataset(lake, **options)
        batches = dataset.batches(2)
        reader = iter(batches)
        read = as_lists(next(reader) for _ in range(2))
        state = dataset.state_dict()
        strike(f"{lake}/tokens", addresses_of(choose(SMALL, "last")))
        resumed = TokenDataset.from_state(lake, state)
        assert resumed.version == version
        assert read + as_lists(resumed.batches(2)) == whole
        head = TokenDataset(lake, **options)
        with pytest.raises(LoaderError, match=rf"version={version}, here {version + 1}"):
            head.load_state_dict(state)
        strike(f"{lake}/tokens", addresses_of(struck))  # the rows of the state again
        head = TokenDataset(lake, **options)
        head.load_state_dict(state)
        assert read + as_lists(head.batches(2)) == whole


@pytest.mark.parametrize("name", FORMATS)
def test_workers_have_the_batches_of_one_process(both, name):
    struck, plain = both("scattered")
    (expected,) = read_passes(plain, 1, **FORMATS[name])
    dataset = TokenDataset(struck, **FORMATS[name])
    loader = DataLoader(dataset.batches(2, drop_last=False), batch_size=None, num_workers=2)
    assert as_lists(loader) == expected


@pytest.mark.parametrize(
    "kind",
    ["scattered", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("row groups", "most"))],
)
@pytest.mark.parametrize("name", FORMATS)
def test_remote_tables_have_the_same_batches(s3, both, name, kind):
    struck, plain = both(kind)
    check_equal(str(copy(struck, at(f"{s3}/lake"))), plain, FORMATS[name], (1,))


def test_mixtures_and_copies_have_the_same_batches(tmp_path, both):
    lakes = both("scattered")
    other = make_lake(UPath(tmp_path / "other"), SMALL)
    batches = []
    for lake in lakes:
        datasets = {name: TokenDataset(url, seq_len=7) for name, url in (("a", lake), ("b", other))}
        mixture = TokenMixture(datasets, weights={"a": 2, "b": 1})
        batches.append(as_lists(mixture.batches(2)))
        copy_of = pickle.loads(pickle.dumps(TokenDataset(lake, seq_len=7)))
        batches[-1] += as_lists(copy_of.batches(2))
    assert batches[0] == batches[1]


def test_replay_and_evenness_know_only_live_rows(both):
    datasets = [TokenDataset(lake, seq_len=7, shuffle=MIXED) for lake in both("scattered")]
    rows = []
    for dataset in datasets:
        spans = [
            p.span
            for step in range(4)
            for r in replay(dataset, batch_size=3, step=step).rows
            for p in r.passages
        ]
        rows.append([replace(span, row_group=0) for span in spans])
    assert rows[0] == rows[1]
    first, second = (dataset.evenness(batch_size=4) for dataset in datasets)
    assert first == second


def test_exports_have_the_live_documents(tmp_path, both):
    struck = choose(SMALL, "scattered")
    lake, _ = both("scattered")
    live = [doc for doc in documents(SMALL) if doc not in struck and doc.tokens]
    exported = export_megatron(lake, str(tmp_path / "out"))
    assert [*read_megatron(tmp_path / "out")] == [[*doc.tokens] for doc in live]
    empty = sum(doc not in struck and not doc.tokens for doc in documents(SMALL))
    assert (exported.documents, exported.empty) == (len(live), empty)
    table = Table.open(f"{lake}/tokens")
    read = read_documents(table.url, [*table.files("path", "vector")])
    assert [(row["source"], row["row"], row["input_ids"]) for row in read] == [
        (doc.source, doc.row, [*doc.tokens]) for doc in live
    ]


def test_the_ends_of_struck_documents_do_not_count(tmp_path):
    docs = [*documents(SMALL)]
    odd = [doc for doc in docs if len(doc.tokens) == 1]  # without BOS and EOS of their own
    lake = make_lake(UPath(tmp_path), SMALL, framed=True)
    strike(f"{lake}/tokens", addresses_of(odd))
    shares = sample_ends(read_index(lake, version=None, remote=Remote()), {1}, {0})
    assert shares == (1, 1)


def test_opening_reads_only_row_groups_with_struck_rows(tmp_path):
    lake = make_lake(UPath(tmp_path), [[[9, 8], [7, 6]], [[5, 5]]])
    strike(f"{lake}/tokens", {("s3://in/0.jsonl", 3)})
    path = tmp_path / "lake" / "tokens" / "001.parquet"
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(bytes(len(content) - footer) + content[-footer:])
    index = read_index(lake, version=None, remote=Remote())
    assert index.group_tokens.tolist() == [17, 7, 10]
    assert index.group_documents.tolist() == [2, 1, 2]


def test_a_damaged_vector_is_reported(tmp_path):
    lake = make_lake(UPath(tmp_path), SMALL)
    strike(f"{lake}/tokens", addresses_of(choose(SMALL, "first")))
    (vectors,) = (tmp_path / "lake" / "tokens" / "_dv").iterdir()
    vectors.unlink()
    with pytest.raises(TableError, match="is missing"):
        TokenDataset(lake, seq_len=5)


def test_a_table_without_live_rows_has_too_few_tokens(tmp_path):
    lake = make_lake(UPath(tmp_path), SMALL)
    strike(f"{lake}/tokens", addresses_of([*documents(SMALL)]))
    for options in FORMATS.values():
        with pytest.raises(LoaderError, match="token|document"):
            TokenDataset(lake, **options)
