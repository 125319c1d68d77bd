"""Find and read the YAML of a recipe: a file, or a shipped recipe by its name. It has at most 1000 stages."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
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
            near = get_close_matches("stages", map(str, self.data), n=1)
            if "stages" not in self.data and near:
                where = f"{self.path}:{self.line(near)}"
                raise RecipeError(f"unknown key {near[0]!r}", where=where, hint="write `stages:`")
            what = "stages must be a list" if "stages" in self.data else "'stages' is missing"
            hint = "write `stages:`, and each stage on a line that begins with `- `; `[]` for none"
            raise RecipeError(what, where=where, hint=hint)
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
    if file.is_dir():
        hint = "a recipe is a YAML file: `etl init --source URL` writes one for your files"
        raise RecipeError("the recipe is a folder", where=path, hint=hint)
    siblings = [p.name for p in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
    near = nearest_names(file.name, sorted([*siblings, *pipelines.list_recipes()]))
    raise RecipeError("recipe file not found", where=path, hint=near)
