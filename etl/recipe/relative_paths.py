"""Resolve the relative paths of a recipe: those of its source, of its lake and of its stages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from etl import storage
from etl.recipe.stage_list import parse_stage
from etl.stages import STAGES


def resolve_paths(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe's data with relative paths resolved against a folder, before it is validated.

    Invalid values are returned as they are, for validation to report. Raises StorageError for a URL with
    credentials.

    >>> resolve_paths({"lake": "lake", "stages": [{"python": "mine:is_prose"}]}, Path("/home"))
    {'lake': '/home/lake', 'stages': [{'kind': 'python', 'call': 'mine:is_prose', 'folder': '/home'}]}
    """
    resolved = dict(data)
    if isinstance(source := _as_data(data.get("source")), Mapping) and "path" in source:
        resolved["source"] = {**source, "path": _below(folder, source["path"])}
    if "lake" in data:
        resolved["lake"] = _below(folder, data["lake"])
    if isinstance(stages := data.get("stages"), list | tuple):
        resolved["stages"] = [_resolve_stage(stage, folder) for stage in stages]
    return resolved


def _resolve_stage(stage: Any, folder: Path) -> Any:
    """Return a stage with its paths resolved, those included that it has by default."""
    stage = parse_stage(_as_data(stage))
    model = STAGES.get(str(stage.get("kind"))) if isinstance(stage, Mapping) else None
    if model is None:
        return stage
    defaults = {name: model.model_fields[name].default for name in model.paths}
    defaults = {name: path for name, path in defaults.items() if isinstance(path, str)}
    paths = {name: stage.get(name, defaults.get(name)) for name in model.paths}
    return {**stage, **{n: _below(folder, path) for n, path in paths.items() if path is not None}}


def _as_data(value: Any) -> Any:
    """Return the fields of a model, such as a stage object in a recipe made in Python."""
    return value.model_dump() if isinstance(value, BaseModel) else value


def _below(folder: Path, path: Any) -> Any:
    if isinstance(path, list | tuple):
        return tuple(_below(folder, p) for p in path)
    if isinstance(path, Mapping):
        return {name: _below(folder, p) for name, p in path.items()}
    if not isinstance(path, str) or path.startswith(("/", "~")):
        return path
    if "://" in path:
        storage.refuse_credentials(path)
        return path
    return os.path.normpath(folder / path)
