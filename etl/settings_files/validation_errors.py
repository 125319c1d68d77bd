"""Explain why settings are invalid: file and line, key and value, and the closest valid name."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from etl.errors import RecipeError, nearest_names

_SHOWN_CHARS = 200
_SHOWN_ERRORS = 20
_EXPECTED = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a mapping"),
    "tuple_type": "must be a list",
}
"""Type of an error of pydantic -> what to say instead of its message, which has terms of Python."""

Location = Sequence[str | int]
"""Where a value is in the settings, as pydantic gives it: keys, indexes, and names of union branches."""


def explain_errors(
    error: ValidationError,
    locate: Callable[[Location], str],
    names_in: Callable[[Location], list[str]],
    settings: Sequence[str] = (),
) -> RecipeError:
    """Convert a pydantic error to a RecipeError with line, key, value and the closest match.

    ``locate`` returns the file and line of a value, or what else identifies it. ``names_in`` returns the keys
    that the mapping at a location may have. ``settings`` are the ``key=value`` overrides, which have no line.
    """
    settings_by_key: dict[str, str] = {}
    for text in settings:
        key = text.partition("=")[0]
        kind, _, rest = key.partition(".")
        settings_by_key |= {key: text, f"{kind}.{rest.rpartition('.')[2]}": text}
    details: dict[str, Any] = {}  # pydantic reports one error for each branch of a union
    for detail in error.errors(include_url=False, include_context=True):
        name = _dotted(detail["loc"])
        if name not in details or detail["type"] == "value_error":  # the latter is our own message
            details[name] = detail
    errors: list[RecipeError] = []
    for name, detail in islice(details.items(), _SHOWN_ERRORS):
        keys = name.removeprefix("stages.").split(".")
        parents = (".".join(keys[:end]) for end in range(len(keys), 0, -1))
        setting = next((settings_by_key[key] for key in parents if key in settings_by_key), None)
        where = locate(detail["loc"]) if setting is None else f"--set {setting}"
        errors.append(_explain(detail, names_in, where))
    first, *others = errors
    if not others:
        return first
    more = "".join(f"\n{other}" for other in others)
    if len(details) > _SHOWN_ERRORS:
        more += f"\nand {len(details) - _SHOWN_ERRORS} more errors"
    own_hint = "" if first.hint is None else f"\n  hint: {first.hint}"
    return RecipeError(f"{first.what}{own_hint}{more}", where=first.where)


def locate_in_python(name: str, location: Location) -> str:
    """Return where a value is in an object of Python: its class or name, and the index of a stage.

    >>> locate_in_python("Recipe", ("stages", 2, "length", "min_word"))
    'Recipe.stages[2]'
    """
    match location:
        case ("stages", int(index), *_):
            return f"{name}.stages[{index}]"
    return name


def _explain(detail: Any, names_in: Callable[[Location], list[str]], where: str) -> RecipeError:
    location, value = tuple(detail["loc"]), detail["input"]
    name = _dotted(location)
    last = name.rpartition(".")[2]
    hint = None
    match detail["type"]:
        case "extra_forbidden":
            what = f"unknown key {name!r}"
            hint = nearest_names(str(location[-1]), names_in(location[:-1]))
        case "union_tag_not_found":
            what = f"must be a stage, not {_shown(value)}"
            hint = "write each stage as an item of the list: its name, or its name with settings"
        case "union_tag_invalid":
            tag = str(detail["ctx"]["tag"])
            what, hint = f"unknown stage {tag!r}", nearest_names(tag, names_in(location))
        case "missing":
            what, hint = f"{name!r} is missing", f"write `{last}: ...`"
        case "value_error":
            text = detail["msg"].removeprefix("Value error, ")
            what = f"{name}: {text}" if name else text
        case kind:
            expected = _EXPECTED.get(kind, f"{detail['msg'][0].lower()}{detail['msg'][1:]}")
            what = f"{name}: {expected}, not {_shown(value)}"
            if kind == "string_type" and isinstance(value, bool):
                hint = "YAML reads yes, no, on and off as booleans: put quotes around them"
            elif kind in ("model_type", "model_attributes_type", "dict_type"):
                key = next(iter(names_in(location)), "key")
                hint = f"write a mapping, as in `{last}: {{{key}: ...}}`"
            elif kind == "tuple_type":
                shown = f"[{value}]" if isinstance(value, str) else "[...]"
                hint = f"write a list, as in `{last}: {shown}`"
            elif kind in ("float_type", "int_type") and isinstance(value, str):
                hint = _hint_for_number(value)
    return RecipeError(what, where=where, hint=hint)


def _hint_for_number(text: str) -> str | None:
    """Return the number that a text means, if it is in quotes or a percentage.

    >>> _hint_for_number("10%"), _hint_for_number("5"), _hint_for_number("many")
    ('write 0.1', 'write 5, without quotes', None)
    """
    if re.fullmatch(r"\d+(\.\d+)?%", text):
        return f"write {float(text[:-1]) / 100:g}"
    return f"write {text}, without quotes" if re.fullmatch(r"-?\d+(\.\d+)?", text) else None


def names_of_model(names: Sequence[str], model: type[BaseModel] | None) -> list[str]:
    """Return the fields of the model below another one, by the names of the fields that lead to it.

    None if any key is valid there.
    """
    for name in names:
        model = None if model is None else _model_of(name, model)
    return [name for name in model.model_fields if name != "kind"] if model is not None else []


def _model_of(name: str, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model that a field holds, or the model itself if the name is a branch of a union."""
    if name == model.__name__:
        return model
    field = model.model_fields.get(name)
    types = () if field is None else _types_in(field.annotation)
    models = (t for t in types if isinstance(t, type) and issubclass(t, BaseModel))
    return next(models, None)


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and the types in it, such as the type of a list's items."""
    yield annotation
    for each in get_args(annotation):
        yield from _types_in(each)


def _dotted(location: Location) -> str:
    """Return the dotted key of a value, without list indexes and pydantic's names of union branches.

    >>> _dotted(("source", "path", "tuple[constrained-str, ...]", 0))
    'source.path'
    """
    return ".".join(keys_of(location))


def keys_of(location: Location) -> list[str]:
    """Return the keys in a location, without list indexes and names of union branches."""
    return [part for part in location if isinstance(part, str) and not re.search(r"[\[(-]", part)]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
