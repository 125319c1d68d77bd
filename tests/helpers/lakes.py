"""Small lakes with files of ``tests.helpers.corpus``, and copies of them."""

from pathlib import Path

from distributed import Client
from upath import UPath

from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.paths import copy
from tests.helpers.recipes import small_recipe


def make_sound_lake(folder: UPath, client: Client, tokenizer: Path) -> Recipe:
    """Make a lake of two runs over three files in many splits, and return its recipe."""
    recipe = small_recipe(folder / "crawl", folder / "lake", tokenizer)
    write_parquet(folder / "crawl" / "a.parquet", records(0, 60))
    assert run(recipe, cluster=client).ok
    write_parquet(folder / "crawl" / "b.parquet", records(60, 100))
    write_jsonl(folder / "crawl" / "c.jsonl", [*records(100, 140), *records(64, 66)])
    assert run(recipe, cluster=client).ok
    return recipe


def make_lake_with_an_unreadable_file(folder: UPath, client: Client, tokenizer: Path) -> Recipe:
    """Make a lake of two runs, whose input has an unreadable file and a repeated document id."""
    crawl = folder / "crawl"
    recipe = small_recipe(crawl, folder / "lake", tokenizer)
    write_parquet(crawl / "a.parquet", records(0, 100))
    write_parquet(crawl / "b.parquet", records(100, 180))
    assert run(recipe, cluster=client).ok
    write_jsonl(crawl / "c.jsonl", records(180, 260))
    twin = {**records(201, 202)[0], "doc_id": "doc-00000"}  # also in a.parquet
    write_jsonl(crawl / "twin.jsonl", [twin])
    (crawl / "broken.parquet").write_bytes(b"PAR1 not a parquet file PAR1")
    assert not run(recipe, cluster=client).ok
    return recipe


def with_copied_lake(recipe: Recipe, folder: UPath) -> Recipe:
    """Copy the lake of a recipe, to damage or to extend it."""
    return recipe.model_copy(update={"lake": str(copy(recipe.lake, folder / "lake"))})


def with_copied_input(recipe: Recipe, folder: UPath) -> Recipe:
    """Copy the input of a recipe, for a lake that does not exist yet."""
    crawl = copy(recipe.source.path, folder / "crawl")
    source = recipe.source.model_copy(update={"path": str(crawl)})
    return recipe.model_copy(update={"source": source, "lake": str(folder / "new")})
