"""Override settings of a recipe with `key=value`."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from etl.errors import RecipeError, nearest_names
from etl.settings_files.yaml_file import read_value

_SECTIONS: Final = ("source", "rejected", "guard")  # keys of a recipe that have keys

SettingsLike = Sequence[str] | Mapping[str, Any]
"""Settings as ``key=value``, or values by key."""


def as_settings(settings: SettingsLike) -> list[str]:
    """Return settings as ``key=value``; raise RecipeError for a value that YAML does not have.

    >>> as_settings({"gopher_quality.min_words": 80, "lake": "lake"})
    ['gopher_quality.min_words=80', 'lake="lake"']
    """
    if isinstance(settings, str):
        return [settings]
    if not isinstance(settings, Mapping):
        return [*settings]
    try:
        return [
            f"{key}={json.dumps(value, ensure_ascii=False, default=os.fspath)}"
            for key, value in settings.items()
        ]
    except (TypeError, ValueError) as error:
        hint = "give texts, numbers, lists and dicts"
        raise RecipeError(
            f"a value cannot be written ({error})", where="settings", hint=hint
        ) from error


def override(data: dict[str, Any], setting: str) -> None:
    """Apply a ``key=value`` setting to a recipe's data; raise RecipeError if it does not fit."""
    from etl.recipe.stage_list import parse_stage
    from etl.stages import STAGES

    key, sign, text = setting.partition("=")
    if not sign:
        raise RecipeError(
            f"cannot read the setting {setting!r}",
            where="--set",
            hint="write key=value, for example gopher_quality.min_words=80",
        )
    value = read_value(text, f"--set {key}")
    names = key.split(".")
    is_stage = len(names) == 1 and key in STAGES
    if names[0] in _SECTIONS or (len(names) == 1 and not is_stage):
        _set_key(data, names, value)
        return
    if is_stage:
        kind, name, fields = key, "", parse_stage({key: value})
    else:
        kind, name = names[0], ".".join(names[1:-1])
        fields = {names[-1]: value}
    stages = data["stages"] if isinstance(data["stages"], list) else []
    index = _find_stage(stages, kind, name, where=f"--set {key}")
    stages[index] = {**stages[index], **fields}


def _set_key(data: dict[str, Any], names: Sequence[str], value: Any) -> None:
    """Set the value at a path of keys, in new mappings."""
    for name in names[:-1]:
        inner = data.get(name) or {}
        if not isinstance(inner, Mapping):
            where = f"--set {'.'.join(names)}"
            raise RecipeError(f"{name!r} has no keys: it is {inner!r}", where=where)
        data[name] = dict(inner)
        data = data[name]
    data[names[-1]] = value


def _find_stage(stages: Sequence[Any], kind: str, name: str, *, where: str) -> int:
    """Return the index of the only stage of a kind, or of the one with that kind and name."""
    mappings = [(n, stage) for n, stage in enumerate(stages) if isinstance(stage, Mapping)]
    names = {n: stage_name(stage) for n, stage in mappings if stage.get("kind") == kind}
    if not names:
        hint = nearest_names(kind, [*_SECTIONS, *(str(s.get("kind")) for _, s in mappings)])
        raise RecipeError(f"no key or stage {kind!r}", where=where, hint=hint)
    # Of several tokenizers, the one without a name needs none here either.
    matches = [index for index, other in names.items() if other == name]
    matches = matches or [index for index in names if not name]
    if len(matches) == 1:
        return matches[0]
    keys = [f"{kind}.{other}" for other in dict.fromkeys(names.values()) if other]
    if name:
        count = len(matches) or "no"
        raise RecipeError(
            f"the recipe has {count} {kind!r} stages named {name!r}",
            where=where,
            hint=nearest_names(f"{kind}.{name}", keys) or f"leave out {name!r}",
        )
    hint = f"choose one of {', '.join(keys)}" if keys else "edit the recipe file"
    raise RecipeError(f"the recipe has {len(matches)} {kind!r} stages", where=where, hint=hint)


def stage_name(stage: Mapping[str, Any]) -> str:
    """Return what distinguishes a stage from others of its kind: its ``name``, or its function's name.

    >>> stage_name({"kind": "python", "call": "my_filters:is_prose"})
    'is_prose'
    """
    return str(stage.get("name") or str(stage.get("call", "")).partition(":")[2])
