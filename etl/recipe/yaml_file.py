"""Read a YAML file: values with their line numbers, environment variables filled in, safe limits."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from etl import pipelines
from etl.errors import RecipeError, nearest_names

YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, RecursionError)  # raised by PyYAML

_MAX_BYTES = 1 << 20  # of a recipe file; the shipped ones have 3 KB
_MAX_NODES = 100_000  # values in a recipe, counting those repeated by aliases
_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class RecipeFile:
    """The data of a YAML file, with the line of each value for errors."""

    def __init__(self, path: Path, root: yaml.MappingNode) -> None:
        self.path = path
        self.folder = path.parent.absolute()
        self._root = root
        try:
            self.data: dict[str, Any] = _Loader.data(root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise RecipeError(f"not a recipe: {error.problem}", where=f"{path}:{line}") from error
        except YAML_ERRORS as error:  # invalid dates, numbers of thousands of digits
            raise RecipeError(f"a value cannot be read ({error})", where=str(path)) from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, or a shipped recipe by its name.

        Raises RecipeError if the file is missing, is larger than 1 MiB or is not a YAML mapping, if a key
        is repeated, if an environment variable is not set, or if there are more than 100,000 values when
        all aliases are expanded.
        """
        file = _find_recipe(os.fspath(path))
        try:
            if file.stat().st_size > _MAX_BYTES:
                raise RecipeError(f"a recipe has at most {_MAX_BYTES} bytes", where=str(file))
            root = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise RecipeError(f"invalid YAML: {error.problem}", where=f"{file}:{line}") from error
        except (OSError, *YAML_ERRORS) as error:
            raise RecipeError(f"cannot be read ({error})", where=str(file)) from error
        if not isinstance(root, yaml.MappingNode):
            raise RecipeError(
                "a recipe must be a mapping", where=str(file), hint="write name, source and stages"
            )
        _check_size(root, file)
        _check_and_fill(root, file)
        return cls(file, root)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """Create a recipe file from data; errors name ``where`` in place of a path."""
        root = yaml.compose(json.dumps(data), Loader=yaml.SafeLoader)
        assert isinstance(root, yaml.MappingNode)
        return cls(Path(where), root)

    def stages(self) -> list[Any]:
        """Return the stages as written; raise RecipeError if they are not a list."""
        stages = self.data.get("stages")
        if not isinstance(stages, list):
            where = f"{self.path}:{self.line(('stages',))}"
            raise RecipeError(
                "stages must be a list", where=where, hint="begin each stage with a dash"
            )
        return stages

    def line(self, location: Sequence[str | int]) -> int:
        """Return the line of a value, or of its nearest parent that is in the file."""
        node: yaml.Node = self._root
        line = node.start_mark.line
        for part in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
                line = node.start_mark.line
            elif isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        line, node = key.start_mark.line, value
                        break
        return line + 1


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


def _check_size(root: yaml.Node, file: Path) -> None:
    """Refuse values that contain themselves, and aliases that expand to too many values."""
    sizes: dict[int, int] = {}  # node -> number of values in it; 0 while it is being counted

    def size(node: yaml.Node) -> int:
        count = sizes.get(id(node))
        if count is None:
            sizes[id(node)] = 0
            children = node.value if isinstance(node, yaml.CollectionNode) else ()
            if isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
            count = sizes[id(node)] = 1 + sum(map(size, children))
        if not 0 < count <= _MAX_NODES:
            where = f"{file}:{node.start_mark.line + 1}"
            if count == 0:
                raise RecipeError("a value contains itself through an alias", where=where)
            raise RecipeError(
                f"a value expands to more than {_MAX_NODES} values through its aliases",
                where=where,
            )
        return count

    try:
        size(root)
    except RecursionError as error:
        raise RecipeError("its values are nested too deeply", where=str(file)) from error


def _check_and_fill(root: yaml.Node, file: Path) -> None:
    """Refuse repeated keys, and replace ``${NAME}`` by environment variables."""
    for node in _nodes(root):
        where = f"{file}:{node.start_mark.line + 1}"
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if keys.count(key) > 1:
                    raise RecipeError(f"the key {key!r} occurs twice", where=where)
        elif isinstance(node, yaml.ScalarNode) and "${" in node.value:
            node.value = _fill(node.value, where)
            if node.style is None:  # a plain ${N} may be a number
                node.tag = _Loader.tag(node.value)


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield every node once, even if aliases repeat it."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            pending.extend(child for pair in node.value for child in pair)


def _fill(text: str, where: str) -> str:
    def value(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        content = os.environ.get(name, default)
        if content is None:
            raise RecipeError(
                f"the environment variable {name} is not set",
                where=where,
                hint=f"export {name}=..., or write ${{{name}:-default}}, or $${{ for a literal ${{",
            )
        return content

    return _VARIABLE.sub(value, text)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader for nodes that are composed already."""

    @classmethod
    def data(cls, root: yaml.Node) -> Any:
        loader = cls("")
        try:
            return loader.construct_document(root)
        finally:
            loader.dispose()

    @classmethod
    def tag(cls, value: str) -> str:
        loader = cls("")
        try:
            return str(loader.resolve(yaml.ScalarNode, value, (True, False)))  # type: ignore[no-untyped-call]
        finally:
            loader.dispose()
