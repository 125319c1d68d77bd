"""Find and read the YAML of a recipe: a file, or a shipped recipe by its name. It has at most 1000 stages."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

import yaml

from etl import pipelines
from etl.errors import RecipeError
from etl.settings_files.yaml_file import FileKind, YamlFile

_MAX_STAGES: Final = 1000
_KIND: Final = FileKind(
    noun="recipe",
    hint="write name, source and stages; `etl init --source URL` writes a recipe for your files",
)


class RecipeFile(YamlFile):
    """The data of a recipe file, with the line of each value for errors."""

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, or a shipped recipe by its name. Its variables are left to ``expand_variables``.

        Raises RecipeError if the file is missing, exceeds a limit or is not a YAML mapping, or if a key is
        repeated.
        """
        name, shipped = os.fspath(path), pipelines.list_recipes()
        file = pipelines.find_recipe(name) if is_shipped(name) else name
        return cls.read(file, _KIND, names=shipped)

    def stages(self) -> Sequence[Any]:
        """Return the stages as written; raise RecipeError if they are not a list or are too many."""
        stages = self.data.get("stages")
        if not isinstance(stages, list | tuple):
            where = self.locate(("stages",))
            near = get_close_matches("stages", map(str, self.data), n=1)
            if "stages" not in self.data and near:
                raise RecipeError(
                    f"unknown key {near[0]!r}", where=self.locate(near), hint="write `stages:`"
                )
            what = "stages must be a list" if "stages" in self.data else "'stages' is missing"
            hint = "write `stages:`, and each stage on a line that begins with `- `; `[]` for none"
            raise RecipeError(what, where=where, hint=hint)
        if len(stages) > _MAX_STAGES:
            where = self.locate(("stages", _MAX_STAGES))
            raise RecipeError(f"{len(stages)} stages, but at most {_MAX_STAGES}", where=where)
        return stages


def as_yaml(settings: Mapping[str, Any]) -> str:
    r"""Return settings as YAML, in their order.

    >>> as_yaml({"name": "web", "stages": [{"kind": "c4"}]})
    'name: web\nstages:\n- kind: c4\n'
    """
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)


def is_shipped(recipe: str) -> bool:
    """Return whether a recipe is the name of a shipped one, and not of a file."""
    return recipe in pipelines.list_recipes() and not Path(recipe).expanduser().is_file()
