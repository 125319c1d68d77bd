"""Fixtures for the job tests: a Dask cluster of two worker processes, a corpus, and recipes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.compute.cluster import Cluster
from etl.recipe.recipe import Recipe
from tests.conftest import NewPlace
from tests.job.corpus import write_corpus

MakeRecipe = Callable[[UPath | str], Recipe]


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Cluster(workers=2).connect() as client:
        yield client


@pytest.fixture(scope="session")
def corpus(new_place: NewPlace) -> UPath:
    return write_corpus(new_place("corpus"))


@pytest.fixture(scope="session")
def make_recipe(corpus: UPath, tiny_tokenizer: Path) -> MakeRecipe:
    """Return a function that makes a recipe over the corpus, with small splits, for a given lake."""

    def make(lake: UPath | str) -> Recipe:
        return Recipe(
            name="test",
            source={
                "path": str(corpus),
                "columns": {"text": "body", "id": "doc_id", "url": "link"},
                "split_bytes": 4096,
            },
            lake=str(lake),
            stages=["gopher_quality", "dedup_exact", {"tokenize": str(tiny_tokenizer)}],
        )

    return make


@pytest.fixture
def recipe(make_recipe: MakeRecipe, place: UPath) -> Recipe:
    """A recipe over the corpus with a separate lake for each test."""
    return make_recipe(place / "lake")
