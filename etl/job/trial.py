"""Make a trial of a recipe: a part of its input, and another lake."""

from collections.abc import Collection

from etl import storage
from etl.errors import RecipeError
from etl.lake.commit_info import find_record
from etl.lake.open_table import find_table
from etl.recipe.overrides import SettingsLike
from etl.recipe.recipe import Recipe, RecipeLike
from etl.sources import Source


def make_trial(
    recipe: RecipeLike,
    *,
    settings: SettingsLike = (),
    env: Collection[str] = (),
    limit: int | None = None,
    share: float | None = None,
) -> Recipe:
    """Return the recipe for a part of its input, with a lake beside its own, named ``<lake>-trial``.

    ``limit`` is a number of records, ``share`` a part of the text (see ``Source``); ``settings`` and
    ``env`` are as in ``Recipe.load``. Without a lake, the trial has a folder in the working folder. Raises
    RecipeError if that lake holds more than a trial.
    """
    recipe = Recipe.of(recipe, settings=settings, env=env)
    part = part_of(recipe, limit=limit, share=share)
    url = storage.normalize(str(part.lake))
    documents = find_table(storage.join(url, "documents"))
    if documents is not None:
        record = find_record(documents)
        source = {} if record is None else record.canonical["source"]
        if source.get("limit") is None and source.get("share") is None:
            raise RecipeError(
                "the lake of the trial exists, and is not that of a trial",
                where=url,
                hint="move it, or pass another --lake: the trial writes to LAKE-trial",
            )
    return part


def part_of(recipe: Recipe, *, limit: int | None, share: float | None) -> Recipe:
    """Return the recipe of a trial; raise RecipeError if a part is invalid, or both are given."""
    lake = f"{recipe.lake.rstrip('/')}-trial" if recipe.lake else f"{recipe.name}-trial"
    source = Source(**{**dict(recipe.source), "limit": limit, "share": share})
    return recipe.model_copy(update={"source": source, "lake": lake})
