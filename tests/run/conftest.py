"""A real Dask cluster of two worker processes, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from etl.cluster import Cluster
from etl.recipe import Recipe
from tests.run.corpus import write_corpus


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Cluster(workers=2).connect() as client:
        yield client


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def recipe(corpus: Path, tmp_path: Path, tiny_tokenizer: Path) -> Recipe:
    """Filter, deduplicate and tokenize the corpus, in splits of a few rows."""
    return Recipe(
        name="test",
        source={
            "path": str(corpus),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": 4096,
        },
        lake=str(tmp_path / "lake"),
        stages=[
            "gopher_quality",
            "dedup_exact",
            {"tokenize": {"tokenizer": str(tiny_tokenizer)}},
        ],
    )
