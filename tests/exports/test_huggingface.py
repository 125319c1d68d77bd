"""An IterableDataset of the library datasets over a version: on ranks, with workers, and resumed."""

from typing import Any

import pytest
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.exports.huggingface import to_huggingface
from tests.helpers.token_tables import SMALL, documents, make_lake

datasets = pytest.importorskip("datasets", reason="make test-trainers installs datasets")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

EXPECTED = [([*d.tokens], d.source, d.row) for d in documents(SMALL)]


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


@pytest.mark.parametrize("steps", [1, 3, 7, len(EXPECTED) - 1])
def test_the_state_continues_after_any_document(lake: str, steps: int) -> None:
    dataset = to_huggingface(lake)
    examples = iter(dataset)
    before = rows_of(next(examples) for _ in range(steps))
    state = dataset.state_dict()
    resumed = to_huggingface(lake)
    resumed.load_state_dict(state)
    assert before + rows_of(resumed) == EXPECTED
