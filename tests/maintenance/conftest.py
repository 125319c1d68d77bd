"""Fixtures: a small lake of two runs over three files in many splits, and copies of it to damage."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.conftest import NewPlace
from tests.job.corpus import records, write_jsonl, write_parquet
from tests.place import copy


@pytest.fixture(scope="session")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a shared lake, read-only; tests that change the lake use the copy ``recipe``."""
    folder = new_place("made")
    recipe = Recipe(
        name="web",
        source={
            "path": str(folder / "crawl"),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": 8192,
        },
        lake=str(folder / "lake"),
        stages=["gopher_quality", "dedup_exact", {"tokenize": {"tokenizer": str(tiny_tokenizer)}}],
    )
    write_parquet(folder / "crawl" / "a.parquet", records(0, 60))
    assert run(recipe, cluster=client).ok
    write_parquet(folder / "crawl" / "b.parquet", records(60, 100))
    write_jsonl(folder / "crawl" / "c.jsonl", [*records(100, 140), *records(64, 66)])
    assert run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def recipe(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake."""
    return made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})


@pytest.fixture
def changing(recipe: Recipe, place: UPath) -> Recipe:
    """A recipe with its own copy of the input, and without a lake."""
    crawl = copy(recipe.source.path, place / "crawl")
    source = recipe.source.model_copy(update={"path": str(crawl)})
    return recipe.model_copy(update={"source": source, "lake": str(place / "new")})
