"""Find and read the YAML of a recipe: a file, or a shipped recipe by its name. It has at most 1000 stages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from etl import pipelines
from etl.errors import RecipeError, nearest_names
from etl.settings_files.yaml_file import YamlFile

_MAX_STAGES = 1000


class RecipeFile(YamlFile):
    """The data of a recipe file, with the line of each value for errors."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, or a shipped recipe by its name. Its variables are left to ``expand_variables``.

        Raises RecipeError if the file is missing, exceeds a limit or is not a YAML mapping, or if a key is
        repeated.
        """
        file = _find_recipe(os.fspath(path))
        return cls.parse(file, noun="a recipe", hint="write name, source and stages")

    def stages(self) -> list[Any]:
        """Return the stages as written; raise RecipeError if they are not a list or are too many."""
        stages = self.data.get("stages")
        if not isinstance(stages, list):
            where = f"{self.path}:{self.line(('stages',))}"
            raise RecipeError(
                "stages must be a list", where=where, hint="begin each stage with a dash"
            )
        if len(stages) > _MAX_STAGES:
            where = f"{self.path}:{self.line(('stages', _MAX_STAGES))}"
            raise RecipeError(f"{len(stages)} stages, but at most {_MAX_STAGES}", where=where)
        return stages


def as_yaml(settings: Mapping[str, Any]) -> str:
    r"""Return settings as YAML, in their order.

    >>> as_yaml({"name": "web", "stages": [{"kind": "c4"}]})
    'name: web\nstages:\n- kind: c4\n'
    """
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)


def _find_recipe(path: str) -> Path:
    """Return the file at a path, or the shipped recipe of that name."""
    file = Path(path).expanduser()
    if file.is_file():
        return file
    if path in pipelines.list_recipes():
        return pipelines.find_recipe(path)
    siblings = [p.name for p in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
    hint = nearest_names(file.name, [*siblings, *pipelines.list_recipes()])
    raise RecipeError("recipe file not found", where=path, hint=hint)
