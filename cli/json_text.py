"""The results of commands as JSON."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any


def json_text(result: Any, *, indent: int | None = 2) -> str:
    """Return the JSON of dataclasses, pydantic models, times (ISO 8601) and bytes (hex).

    Strings may have lone surrogates, as names of files do that are not UTF-8.
    """
    data = _jsonable(result)
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(data, indent=indent, ensure_ascii=False, separators=separators)


def _jsonable(value: Any) -> Any:
    """Return a value as dicts with strings as keys, lists, strings, numbers and None."""
    from pydantic_core import to_jsonable_python

    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, Mapping):
        # Keys may have lone surrogates, too, which pydantic would encode.
        names = (key if isinstance(key, str) else str(to_jsonable_python(key)) for key in value)
        return dict(zip(names, map(_jsonable, value.values()), strict=True))
    if isinstance(value, list | tuple | AbstractSet):
        return [*map(_jsonable, value)]
    return to_jsonable_python(value, bytes_mode="hex", inf_nan_mode="null")
