"""A small lake that two real runs made, many splits of three files, and copies of it to be ill-treated."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from etl.job.run import run
from etl.recipe import Recipe
from tests.job.corpus import records, write_jsonl, write_parquet


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A Dask cluster inside this process."""
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


@pytest.fixture(scope="session")
def made(client: Client, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Recipe:
    """The recipe of the lake that all tests read; whoever changes it takes ``recipe``, a copy."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "crawl").mkdir()
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
def recipe(made: Recipe, tmp_path: Path) -> Recipe:
    """The same recipe with a copy of its lake."""
    shutil.copytree(str(made.lake), tmp_path / "lake")
    return made.model_copy(update={"lake": str(tmp_path / "lake")})


@pytest.fixture
def changing(recipe: Recipe, tmp_path: Path) -> Recipe:
    """A recipe over input of this test's own, without a lake."""
    shutil.copytree(str(recipe.source.path), tmp_path / "crawl")
    source = recipe.source.model_copy(update={"path": str(tmp_path / "crawl")})
    return recipe.model_copy(update={"source": source, "lake": str(tmp_path / "new")})
