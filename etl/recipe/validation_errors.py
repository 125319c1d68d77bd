"""Explain why a recipe is invalid: file and line, key and value, and the closest valid name."""

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from etl.errors import RecipeError, nearest_names
from etl.recipe.yaml_file import RecipeFile
from etl.stages import STAGES
from etl.stages.limits_by_language import ByLanguage

_SHOWN_CHARS = 200
_SHOWN_ERRORS = 20

Location = Sequence[str | int]
"""Where a value is in a recipe, as pydantic gives it: keys, indexes, and names of union branches."""


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
    settings_by_key: dict[str, str] = {}
    for text in settings:
        key = text.partition("=")[0]
        kind, _, rest = key.partition(".")
        settings_by_key |= {key: text, f"{kind}.{rest.rpartition('.')[2]}": text}
    errors: list[RecipeError] = []
    seen: set[str] = set()
    for detail in error.errors(include_url=False, include_context=True):
        name = _dotted(detail["loc"])
        if name in seen:  # pydantic reports one error for each branch of a union
            continue
        seen.add(name)
        if len(seen) > _SHOWN_ERRORS:
            continue
        setting = settings_by_key.get(name.removeprefix("stages."))
        line = f"{file.path}:{file.line(detail['loc'])}"
        errors.append(_explain(detail, recipe, line if setting is None else f"--set {setting}"))
    first, *others = errors
    more = "".join(f"\n{other}" for other in others)
    if len(seen) > _SHOWN_ERRORS:
        more += f"\nand {len(seen) - _SHOWN_ERRORS} more errors"
    return RecipeError(f"{first.what}{more}", where=first.where, hint=first.hint)


def _explain(detail: Any, recipe: type[BaseModel], where: str) -> RecipeError:
    location, value = tuple(detail["loc"]), detail["input"]
    name = _dotted(location)
    hint = None
    match detail["type"]:
        case "extra_forbidden":
            what = f"unknown key {name!r}"
            hint = nearest_names(str(location[-1]), _names_in(location[:-1], recipe))
        case "union_tag_invalid":
            tag = str(detail["ctx"]["tag"])
            what, hint = f"unknown stage {tag!r}", nearest_names(tag, STAGES)
        case "missing":
            what = f"{name!r} is missing"
        case "value_error":
            text = detail["msg"].removeprefix("Value error, ")
            what = f"{name}: {text}" if name else text
        case kind:
            what = f"{name}: {detail['msg'][0].lower()}{detail['msg'][1:]}, not {_shown(value)}"
            if kind == "string_type" and isinstance(value, bool):
                hint = "YAML reads yes, no, on and off as booleans: put quotes around them"
            elif kind in ("model_type", "model_attributes_type", "dict_type"):
                key = next(iter(_names_in(location, recipe)), "key")
                hint = f"write a mapping, as in `{name}: {{{key}: ...}}`"
    return RecipeError(what, where=where, hint=hint)


def _names_in(location: Location, recipe: type[BaseModel]) -> list[str]:
    """Return the keys that the mapping at a location may have; none if any key is valid."""
    names = _keys(location)
    model: type[BaseModel] | None = recipe
    if names[:1] == ["stages"]:
        if len(names) == 1 or names[1] not in STAGES:
            return list(STAGES)
        model = STAGES[names[1]]
        names = names[2:]
        if names[:1] == ["languages"] and issubclass(model, ByLanguage):
            return model.limit_fields()
    for name in names:
        model = None if model is None else _model_of(name, model)
    return [name for name in model.model_fields if name != "kind"] if model is not None else []


def _model_of(name: str, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model that a field holds, or the model itself if the name is a branch of a union."""
    if name == model.__name__:
        return model
    field = model.model_fields.get(name)
    types = () if field is None else (field.annotation, *get_args(field.annotation))
    models = (t for t in types if isinstance(t, type) and issubclass(t, BaseModel))
    return next(models, None)


def _dotted(location: Location) -> str:
    """Return the dotted key of a value, without list indexes and pydantic's names of union branches.

    >>> _dotted(("source", "path", "tuple[constrained-str, ...]", 0))
    'source.path'
    """
    return ".".join(_keys(location))


def _keys(location: Location) -> list[str]:
    return [part for part in location if isinstance(part, str) and not re.search(r"[\[(-]", part)]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
