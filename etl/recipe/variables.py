"""Environment variables in a recipe: ``${NAME}`` and ``${NAME:-default}``, in paths and URLs only.

The values of all other settings are recorded in the lineage of a lake and compared between runs, so they
are written in the recipe. Paths are recorded too: a variable that holds a secret is refused everywhere. Its
name tells: it contains SECRET, PASSWORD, PASSWD, CREDENTIAL or CONNECTION_STRING, or a part of it between
underscores ends in TOKEN or KEY (HF_TOKEN, AWS_ACCESS_KEY_ID). ``$${`` is a literal ``${``.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from etl.errors import RecipeError
from etl.recipe.relative_paths import map_paths
from etl.settings_files.secret_names import may_be_secret
from etl.settings_files.yaml_file import Template

_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_variables(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's data with the variables in its paths replaced.

    An empty path becomes None. Raises RecipeError, with its line, for a variable that is not set, holds a
    secret, or is not in a path.
    """
    return {_literal(k): _literal(value) for k, value in map_paths(data, _fill).items()}


def _fill(path: str) -> str | None:
    """Return a path with its variables replaced."""
    if not isinstance(path, Template):
        return path

    def value(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if may_be_secret(name):
            raise RecipeError(
                f"the variable {name} may hold a secret, and paths are recorded in the lake",
                where=path.where,
                hint="leave it out: workers read credentials from their own environment",
            )
        content = os.environ.get(name, default)
        if content is None:
            raise RecipeError(
                f"the environment variable {name} is not set",
                where=path.where,
                hint=f"export {name}=..., or write ${{{name}:-default}}, or $${{ for a literal ${{",
            )
        return content

    return _VARIABLE.sub(value, path) or None


def _literal(value: Any) -> Any:
    """Return a value without escaped dollar signs; raise RecipeError if it has a variable."""
    if isinstance(value, Template):
        for match in _VARIABLE.finditer(value):
            if match[2]:
                raise RecipeError(
                    f"the variable {match[2]} is not in a path",
                    where=value.where,
                    hint="variables may be used in source.path, lake and the files that stages name; "
                    "write other values in the recipe or with --set, and $${ for a literal ${",
                )
        return _VARIABLE.sub("${", value)
    if isinstance(value, Mapping):
        return {_literal(key): _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list | tuple) else value
