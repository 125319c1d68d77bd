"""Read YAML: values with their line numbers, within limits that bound time and memory.

A file has at most 1 MiB, 100,000 values (those repeated by aliases included) and 100 levels of nesting. A
value that is not text (a number, a date) has at most 100 characters: Python takes minutes for numbers of a
million digits. An integer has 64 bits. A recipe at these limits is read in 6 s (measured).
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from etl.errors import RecipeError

_MAX_BYTES = 1 << 20  # of a file; the shipped recipes have 3 KB
_MAX_NODES = 100_000  # values in a file, counting those repeated by aliases
_MAX_DEPTH = 100
_MAX_NUMBER_CHARS = 100
_SHOWN_CHARS = 60
_TEXT = "tag:yaml.org,2002:str"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast


class Template(str):
    """A string of a file that contains ``${``, and the file and line that it is from."""

    __slots__ = ("where",)
    where: str


class YamlFile:
    """The data of a YAML file, with the line of each value for errors."""

    def __init__(self, path: Path, root: yaml.MappingNode, data: dict[str, Any]) -> None:
        self.path = path
        self.folder = path.parent.absolute()
        self.data = data
        self._root = root

    @classmethod
    def parse(cls, file: Path, *, noun: str, hint: str) -> Self:
        """Read a file; ``noun`` names what it should be, and ``hint`` is for one that is not a mapping.

        Raises RecipeError if the file is missing, exceeds a limit or is not a YAML mapping, or if a key is
        repeated.
        """
        try:
            if file.stat().st_size > _MAX_BYTES:
                raise RecipeError(f"{noun} has at most {_MAX_BYTES} bytes", where=str(file))
            text = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise RecipeError(f"cannot be read ({error})", where=str(file)) from error
        root = _compose(text, str(file), has_lines=True)
        if not isinstance(root, yaml.MappingNode):
            raise RecipeError(f"{noun} must be a mapping", where=str(file), hint=hint)
        return cls(file, root, _Loader.data(root, str(file), has_lines=True))

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """Create a file from data; errors name ``where`` in place of a path."""
        # Not JSON, which has two escapes for a character that YAML writes as one.
        text = yaml.safe_dump(dict(data), default_flow_style=True, width=sys.maxsize)
        root = yaml.compose(text, Loader=_LOADER)
        assert isinstance(root, yaml.MappingNode)
        return cls(Path(where), root, dict(data))

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

    def locate(self, location: Sequence[str | int]) -> str:
        """Return the file and the line of a value, for errors."""
        return f"{self.path}:{self.line(location)}"


def read_value(text: str, where: str) -> Any:
    """Return a value of YAML, such as that of a setting; raise RecipeError with ``where`` if invalid."""
    root = _compose(text, where, has_lines=False)
    return None if root is None else _Loader.data(root, where, has_lines=False)


def _compose(text: str, where: str, *, has_lines: bool) -> yaml.Node | None:
    """Parse YAML within the limits."""
    try:
        _check_events(text, where, has_lines=has_lines)
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        what = f"invalid YAML: {error.problem}"
        has_tab = "\t" in text.splitlines()[line] if line < len(text.splitlines()) else False
        hint = "indent with spaces: YAML does not allow tabs" if has_tab else None
        where = _at(where, line, has_lines=has_lines)
        raise RecipeError(what, where=where, hint=hint) from error
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(f"cannot be read ({error})", where=where) from error
    if root is not None:
        _check_size(root, where, has_lines=has_lines)
        _check_values(root, where, has_lines=has_lines)
    return root


def _check_events(text: str, where: str, *, has_lines: bool) -> None:
    """Refuse too many values and too deep nesting, before there are objects for them."""
    count = depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if count <= _MAX_NODES and depth <= _MAX_DEPTH:
            continue
        line = event.start_mark.line if event.start_mark else 0
        place = _at(where, line, has_lines=has_lines)
        if depth > _MAX_DEPTH:
            raise RecipeError(f"more than {_MAX_DEPTH} levels of nesting", where=place)
        raise RecipeError(
            f"more than {_MAX_NODES} values",
            where=place,
            hint="keep long lists in a file that a stage names, such as the hosts of url",
        )


def _check_size(root: yaml.Node, file: str, *, has_lines: bool) -> None:
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
            where = _at(file, node.start_mark.line, has_lines=has_lines)
            if count == 0:
                raise RecipeError("a value contains itself through an alias", where=where)
            raise RecipeError(
                f"a value expands to more than {_MAX_NODES} values through its aliases",
                where=where,
            )
        return count

    try:
        size(root)
    except RecursionError as error:  # through aliases
        raise RecipeError("its values are nested too deeply", where=file) from error


def _check_values(root: yaml.Node, file: str, *, has_lines: bool) -> None:
    """Refuse repeated keys, and numbers and dates that are too long."""
    for node in _nodes(root):
        where = _at(file, node.start_mark.line, has_lines=has_lines)
        if isinstance(node, yaml.MappingNode):
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if keys and (most := keys.most_common(1)[0])[1] > 1:
                raise RecipeError(f"the key {_shown(most[0])} occurs twice", where=where)
        elif _is_long_number(node):
            raise RecipeError(
                f"{_shown(node.value)} has {len(node.value)} characters; a value that is not text "
                f"has at most {_MAX_NUMBER_CHARS}",
                where=where,
                hint="put quotes around it if it is text",
            )


def _is_long_number(node: yaml.Node) -> bool:
    is_number = isinstance(node, yaml.ScalarNode) and node.tag != _TEXT
    return is_number and len(node.value) > _MAX_NUMBER_CHARS


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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader for nodes that are composed already; it makes a Template of text with ``${``."""

    _file: str
    _has_lines: bool

    @classmethod
    def data(cls, root: yaml.Node, file: str, *, has_lines: bool) -> Any:
        loader = cls("")
        loader._file, loader._has_lines = file, has_lines
        try:
            return loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line if error.problem_mark else 0
            where = _at(file, line, has_lines=has_lines)
            raise RecipeError(f"not a recipe: {error.problem}", where=where) from error
        finally:
            loader.dispose()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Return the value of a node; raise RecipeError with its line if PyYAML cannot construct it."""
        where = _at(self._file, node.start_mark.line, has_lines=self._has_lines)
        try:
            value = super().construct_object(node, deep)
        except (yaml.YAMLError, RecipeError):
            raise
        except Exception as error:  # of many types: invalid dates, `!!int x`, `!!timestamp x`
            what = f"the value {_shown(node.value)} cannot be read ({error})"
            raise RecipeError(what, where=where) from error
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise RecipeError(f"the number {_shown(node.value)} has more than 64 bits", where=where)
        if isinstance(value, str) and "${" in value:
            value = Template(value)
            value.where = where
        return value


def _at(file: str, line: int, *, has_lines: bool) -> str:
    return f"{file}:{line + 1}" if has_lines else file


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
