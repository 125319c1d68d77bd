"""A stage as a recipe file writes it: shorthand, relative paths, recorded settings."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from etl import storage
from etl.stages import STAGES, AnyStage


def _stage(value: Any) -> Any:
    """Return the model fields of a stage written as its name, or as its name with settings."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, Mapping) and "kind" not in value and len(value) == 1:
        ((kind, settings),) = value.items()
        if isinstance(settings, Mapping):
            return {"kind": kind, **settings}
        if settings is None:
            return {"kind": kind}
        if kind in STAGES and (field := STAGES[kind].shorthand):
            return {"kind": kind, field: settings}
        return {"kind": kind, "settings": settings}
    return value


StageList = Annotated[
    tuple[Annotated[AnyStage, BeforeValidator(_stage)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list | tuple) else value),
]
"""A list of stages, each an object or written as in a recipe file."""


def _known(stage: Mapping[str, Any]) -> Collection[str]:
    """Return the keys of a recorded stage that are settings; others record what it was built from."""
    model = STAGES.get(str(stage["kind"]))
    return stage.keys() if model is None else model.model_fields.keys()


def _locate(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe's data with relative paths resolved against a folder."""
    data = dict(data)
    if isinstance(source := data.get("source"), Mapping) and "path" in source:
        data["source"] = {**source, "path": _below(folder, source["path"])}
    if data.get("lake") is not None:
        data["lake"] = _below(folder, data["lake"])
    stages = [_locate_stage(stage, folder) for stage in data["stages"]]
    return {**data, "stages": stages}


def _locate_stage(stage: Any, folder: Path) -> Any:
    if not isinstance(stage, Mapping) or stage.get("kind") not in STAGES:
        return stage
    if stage["kind"] == "python" and stage.get("folder") is None:
        stage = {**stage, "folder": "."}  # modules are imported from the folder of the recipe
    paths = [name for name in STAGES[stage["kind"]].paths if stage.get(name) is not None]
    return {**stage, **{name: _below(folder, stage[name]) for name in paths}}


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
