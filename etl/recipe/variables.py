"""Environment variables in a recipe: ``${NAME}`` and ``${NAME:-default}``, in paths and URLs only.

A recipe may be another person's, and a URL in it sends what it contains to a server. So a recipe may use
``HOME``, variables whose names begin with ``TOKENLAKE_``, and those that the user of the recipe names; all
others are refused, also if they are not set. The values of all other settings are recorded in the lineage of
a lake and compared between runs, so they are written in the recipe. ``$${`` is a literal ``${``.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from etl.errors import RecipeError
from etl.recipe.relative_paths import map_paths
from etl.settings_files.secret_names import may_be_secret
from etl.settings_files.yaml_file import Template, read_value

_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_variables(data: Mapping[str, Any], env: Collection[str] = ()) -> dict[str, Any]:
    """Return a recipe's data with the variables in its paths replaced; ``env`` names those it may use.

    An empty path becomes None. Raises RecipeError, with its line, for a variable that is not set, that the
    recipe may not use, or that is not in a path.
    """
    paths = map_paths(data, partial(_fill, env=frozenset(env)))
    return {_literal(key): _literal(value) for key, value in paths.items()}


def expand_setting(setting: str, env: Collection[str] = ()) -> str:
    """Return a valid ``key=value`` setting with its variables replaced, to be applied on another machine.

    >>> expand_setting("tokenize.tokenizer=${TOKENLAKE_X:-a/$${b}}", ()), expand_setting("seed=1")
    ('tokenize.tokenizer="a/$$${b}"', 'seed=1')
    """
    if "${" not in setting:
        return setting
    key, _, text = setting.partition("=")
    value = _map_templates(read_value(text, f"--set {key}"), frozenset(env))
    return f"{key}={json.dumps(value, ensure_ascii=False)}".replace("${", "$${")


def _map_templates(value: Any, env: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _map_templates(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_templates(item, env) for item in value]
    return _fill(value, env) if isinstance(value, str) else value


def _fill(path: str, env: frozenset[str]) -> str | None:
    """Return a path with its variables replaced."""
    if not isinstance(path, Template):
        return path

    def value(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if may_be_secret(name, env):
            raise RecipeError(
                f"the recipe may not use the environment variable {name}",
                where=path.where,
                hint=f"pass --env {name} (env=[{name!r}] in Python) if the lake, and the servers that the "
                "recipe names, may know its value; HOME and TOKENLAKE_... are allowed",
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
