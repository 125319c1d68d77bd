"""Fixtures: a lake of two runs, with an unreadable input file and a repeated document id."""

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
    """The recipe of a shared lake, read-only; tests that change the lake use the copy ``lake``."""
    folder = new_place("made")
    crawl = folder / "crawl"
    recipe = Recipe(
        name="web",
        source={
            "path": str(crawl),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": 8192,
        },
        lake=str(folder / "lake"),
        stages=["gopher_quality", "dedup_exact", {"tokenize": {"tokenizer": str(tiny_tokenizer)}}],
    )
    write_parquet(crawl / "a.parquet", records(0, 100))
    write_parquet(crawl / "b.parquet", records(100, 180))
    assert run(recipe, cluster=client).ok
    write_jsonl(crawl / "c.jsonl", records(180, 260))
    twin = {**records(201, 202)[0], "doc_id": "doc-00000"}  # also in a.parquet
    write_jsonl(crawl / "twin.jsonl", [twin])
    (crawl / "broken.parquet").write_bytes(b"PAR1 not a parquet file PAR1")
    assert not run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def lake(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake, to damage or to extend."""
    return made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})
