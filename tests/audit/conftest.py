"""A lake that several real runs made: two files, then a third, one that cannot be read, and twins."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.job.run import run
from etl.recipe import Recipe
from tests.conftest import NewPlace
from tests.job.corpus import records, write_jsonl, write_parquet
from tests.place import copy


@pytest.fixture(scope="session")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of the lake that all tests read; whoever changes it takes ``lake``, a copy."""
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
    twin = {**records(201, 202)[0], "doc_id": "doc-00000"}  # an id that stands in another file too
    write_jsonl(crawl / "twin.jsonl", [twin])
    (crawl / "broken.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    assert not run(recipe, cluster=client).ok
    return recipe


@pytest.fixture
def lake(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with copies of its input and its lake, to be damaged or gone on with."""
    return made.model_copy(update={"lake": str(copy(made.lake, place / "lake"))})
