"""An IterableDataset of the library datasets over a version: on ranks, with workers, and resumed."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.exports.huggingface import to_huggingface
from tests.helpers.token_tables import SMALL, Shape, documents, make_lake

datasets = pytest.importorskip("datasets", reason="make test-trainers installs datasets")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

EXPECTED = [([*d.tokens], d.source, d.row) for d in documents(SMALL) if d.tokens]


@pytest.fixture(scope="module")
def lake(new_place: Any) -> str:
    return make_lake(new_place("huggingface"), SMALL)


def rows_of(examples: Any) -> list[tuple[list[int], str, int]]:
    return [([*e["input_ids"]], e["source"], e["row"]) for e in examples]


def test_examples_are_the_documents_of_a_version(lake: str) -> None:
    dataset = to_huggingface(lake, version=1)
    assert rows_of(dataset) == EXPECTED
    assert dataset.num_shards == len(SMALL)
    assert rows_of(to_huggingface(f"{lake}/tokens").take(2)) == EXPECTED[:2]
    with pytest.raises(LoaderError, match="no token table"):
        to_huggingface(f"{lake}/nowhere")


def test_ranks_and_workers_divide_the_files(lake: str) -> None:
    from datasets.distributed import split_dataset_by_node

    parts = [
        split_dataset_by_node(to_huggingface(lake), rank=rank, world_size=2) for rank in (0, 1)
    ]
    rows = [row for part in parts for row in rows_of(part)]
    assert sorted(rows) == sorted(EXPECTED)
    loader = DataLoader(to_huggingface(lake), batch_size=None, num_workers=2)
    assert sorted(rows_of(loader)) == sorted(EXPECTED)


EMPTY: dict[str, Shape] = {
    "some": SMALL,
    "the first": [[[0, 0, 3]], [[4, 0]]],
    "the first file": [[[]], [[0], [5]]],
    "all": [[[0]], [[0, 0]]],
}
USES: dict[str, Any] = {
    "shuffle": lambda d: d.shuffle(seed=0, buffer_size=3),
    "take": lambda d: d.take(2),
    "skip": lambda d: d.skip(1),
    "filter": lambda d: d.filter(lambda example: len(example["id"]) > 1),
    "interleave": lambda d: datasets.interleave_datasets([d, d.shuffle(seed=1)]),
    "concatenate": lambda d: datasets.concatenate_datasets([d, d]),
    "map": lambda d: d.map(lambda example: {"size": len(example["input_ids"])}),
    "select": lambda d: d.select_columns(["input_ids"]),
}


@pytest.mark.parametrize("empty", EMPTY)
def test_documents_without_tokens_are_left_out(new_place: Any, empty: str) -> None:
    shape = EMPTY[empty]
    lake = make_lake(new_place("empty"), shape)
    expected = [[*d.tokens] for d in documents(shape) if d.tokens]
    mapped = to_huggingface(lake).map(lambda batch: batch, batched=True, batch_size=2)
    tables = [*mapped.with_format("arrow")]  # as trl packs documents
    assert sum(table.num_rows for table in tables) == len(expected)
    assert to_huggingface(lake).features["input_ids"] == datasets.List(datasets.Value("int32"))
    for name, use in USES.items():
        plain = [example["input_ids"] for example in use(to_huggingface(lake))]
        tensors = [e["input_ids"] for e in use(to_huggingface(lake)).with_format("torch")]
        assert [t.tolist() for t in tensors] == plain, name
        assert all(t.dtype == torch.int64 and t.dim() == 1 for t in tensors)
        assert all(tokens in expected for tokens in plain)
        if name in ("map", "select", "filter"):
            assert plain == expected
    loader = DataLoader(to_huggingface(lake).with_format("torch"), batch_size=None, num_workers=2)
    assert sorted(e["input_ids"].tolist() for e in loader) == sorted(expected)


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_the_state_of_tensors_continues_after_any_document(lake: str, steps: int) -> None:
    dataset = to_huggingface(lake).with_format("torch")
    examples = iter(dataset)
    before = [next(examples)["input_ids"].tolist() for _ in range(steps)]
    resumed = to_huggingface(lake).with_format("torch")
    resumed.load_state_dict(dataset.state_dict())
    rest = [example["input_ids"].tolist() for example in resumed]
    assert before + rest == [tokens for tokens, _, _ in EXPECTED]


@pytest.mark.parametrize("steps", [1, 3, 7, len(EXPECTED) - 1])
def test_the_state_continues_after_any_document(lake: str, steps: int) -> None:
    dataset = to_huggingface(lake)
    examples = iter(dataset)
    before = rows_of(next(examples) for _ in range(steps))
    state = dataset.state_dict()
    resumed = to_huggingface(lake)
    resumed.load_state_dict(state)
    assert before + rows_of(resumed) == EXPECTED
