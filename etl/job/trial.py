"""Make a trial of a recipe: a part of its input, and another lake."""

import os
from collections.abc import Collection

from etl import storage
from etl.errors import RecipeError
from etl.lake.commit_info import find_record
from etl.lake.open_table import find_table
from etl.recipe.recipe import Recipe


def make_trial(
    recipe: Recipe | str | os.PathLike[str],
    *,
    limit: int | None = None,
    share: float | None = None,
    env: Collection[str] = (),
) -> Recipe:
    """Return the recipe for a part of its input, with a lake beside its own, named ``<lake>-trial``.

    ``limit`` is a number of records, ``share`` a part of the text (see ``Source``), ``env`` that of
    ``Recipe.load``. Without a lake, the trial has a folder in the working folder. Raises RecipeError if that
    lake holds more than a trial.
    """
    recipe = Recipe.of(recipe, env=env)
    lake = f"{recipe.lake.rstrip('/')}-trial" if recipe.lake else f"{recipe.name}-trial"
    url = storage.normalize(lake)
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
    part = recipe.source.model_copy(update={"limit": limit, "share": share})
    return recipe.model_copy(update={"source": part, "lake": lake})
