"""A lake that several real runs made: two files, then a third, one that cannot be read, and twins."""

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
    """A Dask cluster inside this process: these tests look at what stands, not at how it came."""
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


@pytest.fixture(scope="session")
def made(client: Client, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Recipe:
    """The recipe of the lake that all tests read; whoever changes it takes ``lake``, a copy."""
    folder = tmp_path_factory.mktemp("made")
    crawl = folder / "crawl"
    crawl.mkdir()
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
def lake(made: Recipe, tmp_path: Path) -> Recipe:
    """The same recipe with copies of its input and its lake, to be damaged or gone on with."""
    folder = Path(str(made.lake)).parent
    shutil.copytree(folder / "lake", tmp_path / "lake")
    return made.model_copy(update={"lake": str(tmp_path / "lake")})
