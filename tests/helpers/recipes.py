"""Recipes over the small corpus."""

from collections.abc import Callable
from pathlib import Path

from upath import UPath

from etl.recipe.recipe import Recipe

MakeRecipe = Callable[[UPath | str], Recipe]


def small_recipe(
    source: UPath,
    lake: UPath | str,
    tokenizer: Path,
    *,
    name: str = "web",
    split_bytes: int = 16384,
) -> Recipe:
    """Return a recipe of three stages over files of ``tests.helpers.corpus``, with small splits."""
    return Recipe(
        name=name,
        source={
            "path": str(source),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": split_bytes,
        },
        lake=str(lake),
        stages=["gopher_quality", "dedup_exact", {"tokenize": str(tokenizer)}],
    )
