"""Explain why a recipe is invalid: file and line, key and value, and the closest valid name."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import BaseModel, ValidationError

from etl.errors import RecipeError
from etl.recipe.recipe_file import RecipeFile
from etl.settings_files import validation_errors
from etl.settings_files.validation_errors import Location, keys_of, names_of_model
from etl.stages import STAGES
from etl.stages.limits_by_language import ByLanguage

_OPTIONS: Final = {
    "source.path": "--source URL: the files to read",
    "stages.tokenize.tokenizer": "--set tokenize.tokenizer=FILE: a tokenizer.json",
}
"""Setting that a shipped recipe leaves open -> the option that sets it."""


def explain_errors(
    error: ValidationError,
    file: RecipeFile,
    recipe: type[BaseModel],
    settings: Sequence[str] = (),
) -> RecipeError:
    """Convert a pydantic error to a RecipeError with line, key, value and the closest match.

    ``recipe`` is the model that the file does not fit. ``settings`` are the ``key=value`` overrides, which
    have no line.
    """
    names = partial(names_in, recipe)
    explained = validation_errors.explain_errors(error, file.locate, names, settings)
    for detail in error.errors(include_url=False):
        option = _OPTIONS.get(".".join(keys_of(detail["loc"])))
        if option is not None and detail["input"] in (None, ""):
            return RecipeError(explained.what, where=explained.where, hint=f"pass {option}")
    return explained


def explain_stage_errors(error: ValidationError) -> RecipeError:
    """Convert the pydantic error of a list of stages that is not in a recipe."""
    return validation_errors.explain_errors(
        error,
        lambda location: f"stages[{location[0]}]" if location else "stages",
        lambda location: names_in(BaseModel, ("stages", *location)),
    )


def names_in(recipe: type[BaseModel], location: Location) -> list[str]:
    """Return the keys that the mapping at a location may have; none if any key is valid."""
    names = keys_of(location)
    if names[:1] != ["stages"]:
        return names_of_model(names, recipe)
    if len(names) == 1 or names[1] not in STAGES:
        return list(STAGES)
    model = STAGES[names[1]]
    if names[2:3] == ["languages"] and issubclass(model, ByLanguage):
        return model.limit_fields()
    return names_of_model(names[2:], model)
