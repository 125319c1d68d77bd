"""Fixtures: a lake of two runs, with an unreadable input file and a repeated document id."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.lakes import make_lake_with_an_unreadable_file, with_copied_lake
from tests.helpers.paths import NewPlace


@pytest.fixture(scope="session")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a shared lake, read-only; tests that change the lake use the copy ``lake``."""
    return make_lake_with_an_unreadable_file(new_place("made"), client, tiny_tokenizer)


@pytest.fixture(scope="session")
def by_length(client: Client, new_place: NewPlace) -> Recipe:
    """The recipe of a lake that rejects short documents, read-only; no document is too long."""
    folder = new_place("by-length")
    write_parquet(folder / "crawl" / "a.parquet", records(0, 100))
    recipe = Recipe(
        name="length",
        source={"path": str(folder / "crawl"), "columns": {"text": "body"}},
        lake=str(folder / "lake"),
        stages=[{"length": {"min_words": 20, "max_words": 100_000}}],
    )
    assert run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def lake(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake, to damage or to extend."""
    return with_copied_lake(made, place)
