"""Find the paths of a recipe (of its source, its lake and its stages), and resolve relative ones."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from etl import storage
from etl.recipe.guard import LANGUAGE
from etl.recipe.stage_list import parse_stage
from etl.sources.source_settings import INPUT_PATHS
from etl.stages import STAGES
from etl.stages.base import map_strings


def resolve_paths(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe's data with relative paths resolved against a folder, before it is validated.

    Invalid values are returned as they are, for validation to report. Raises StorageError for a URL with
    credentials.

    >>> resolve_paths({"lake": "lake", "stages": [{"python": "mine:is_prose"}]}, Path("/home"))
    {'lake': '/home/lake', 'stages': [{'kind': 'python', 'call': 'mine:is_prose', 'folder': '/home'}]}
    """
    return map_paths(data, lambda path: _below(folder, path))


def map_paths(data: Mapping[str, Any], function: Callable[[str], str | None]) -> dict[str, Any]:
    """Return a recipe's data with a function applied to each path, those included that stages default to."""
    mapped = dict(data)
    if isinstance(source := _as_source(data.get("source")), Mapping):
        paths = {name: source[name] for name in INPUT_PATHS if name in source}
        paths = {name: map_strings(function, path) for name, path in paths.items()}
        mapped["source"] = {**source, **paths}
    if "lake" in data:
        mapped["lake"] = map_strings(function, data["lake"])
    guard = _as_data(data.get("guard"))
    if isinstance(guard, Mapping) and isinstance(groups := guard.get("exempt"), list | tuple):
        exempt = [g if _is_language(g) else map_strings(function, g) for g in groups]
        mapped["guard"] = {**guard, "exempt": exempt}
    if isinstance(stages := data.get("stages"), list | tuple):
        mapped["stages"] = [_map_stage(stage, function) for stage in stages]
    return mapped


def _map_stage(stage: Any, function: Callable[[str], str | None]) -> Any:
    stage = parse_stage(_as_data(stage))
    model = STAGES.get(str(stage.get("kind"))) if isinstance(stage, Mapping) else None
    if model is None:
        return stage
    defaults = {name: model.model_fields[name].default for name in model.paths}
    defaults = {name: path for name, path in defaults.items() if isinstance(path, str)}
    paths = {name: stage.get(name, defaults.get(name)) for name in model.paths}
    paths = {name: path for name, path in paths.items() if path is not None}
    return {**stage, **{name: map_strings(function, path) for name, path in paths.items()}}


def _is_language(group: Any) -> bool:
    return isinstance(group, str) and group.startswith(LANGUAGE)


def _as_source(value: Any) -> Any:
    """Return the fields of a source that is an object, or written as its path."""
    is_path = isinstance(value, str | os.PathLike | list | tuple)
    return {"path": value} if is_path else _as_data(value)


def _as_data(value: Any) -> Any:
    """Return the fields of a model, such as a stage object in a recipe made in Python."""
    return value.model_dump() if isinstance(value, BaseModel) else value


def _below(folder: Path, path: str) -> str:
    if path.startswith(("/", "~")):
        return path
    if "://" in path:
        storage.refuse_credentials(path)
        return path
    return os.path.normpath(folder / path)
