"""Read files of settings: YAML within limits that bound time and memory, and values with their lines.

A file has at most 1 MiB, 100,000 values (those repeated by aliases included) and 100 levels of nesting. A
value that is not text (a number, a date) has at most 100 characters: Python takes minutes for numbers of a
million digits. An integer has 64 bits. A recipe at these limits is read in 6 s (measured).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import ValidationError

from etl.errors import RecipeError, TokenlakeError
from etl.settings_files.settings import Settings
from etl.settings_files.validation_errors import explain_errors, locate_in_python
from etl.visible_text import one_line

_MAX_BYTES = 1 << 20  # of a file; the shipped recipes have 3 KB
_MAX_NODES = 100_000  # values in a file, counting those repeated by aliases
_MAX_DEPTH = 100
_MAX_NUMBER_CHARS = 100
_SHOWN_CHARS = 60
_TEXT = "tag:yaml.org,2002:str"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
_At = Callable[[int], str]
"""Returns where a line is, counted from 0, for errors."""


class Template(str):
    """A string of a file that contains ``${``, and the file and line that it is from."""

    __slots__ = ("where",)
    where: str


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A kind of settings file: its name in messages, what to write in one, and the error to raise."""

    noun: str
    hint: str
    error: type[TokenlakeError] = RecipeError


Model = TypeVar("Model", bound=Settings)


def read_settings(model: type[Model], path: str | os.PathLike[str], kind: FileKind) -> Model:
    """Read a file and validate it; raise the error of its kind with file and line, key and value."""
    try:
        file = YamlFile.read(path, kind)
        try:
            return model.model_validate(file.data)
        except ValidationError as error:
            raise explain_errors(error, file.locate, model.names_in) from error
    except RecipeError as error:
        raise kind.error(error.what, where=error.where, hint=error.hint) from error


class YamlFile:
    """The data of a YAML file, with the line of each value for errors."""

    def __init__(
        self, where: str, folder: Path, root: yaml.MappingNode | None, data: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.data = data
        self._where = where
        self._root = root

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], kind: FileKind, *, names: Iterable[str] = ()
    ) -> Self:
        """Read a file; ``names`` are what could be given in place of its path.

        Raises RecipeError if the file is missing, exceeds a limit or is not a YAML mapping, or if a key is
        repeated.
        """
        where = f"{kind.noun} {os.fspath(path)}"
        file, text = _read_text(path, where, kind, names)
        root, data = _load(text, partial(_line_of, where))
        if not isinstance(root, yaml.MappingNode):
            what = "is empty" if data is None else "must be a mapping"
            raise RecipeError(what, where=where, hint=kind.hint)
        return cls(where, file.parent.absolute(), root, data)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """Create a file from data; errors name ``where`` in place of a path."""
        return cls(where, Path.cwd(), None, dict(data))

    def locate(self, location: Sequence[str | int]) -> str:
        """Return the file and the line of a value, or of its nearest parent that is there, for errors."""
        if self._root is None:
            return locate_in_python(self._where, tuple(location))
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
        return _line_of(self._where, line)


def read_value(text: str, where: str) -> Any:
    """Return a value of YAML, such as that of a setting; raise RecipeError with ``where`` if invalid."""
    return _load(text, lambda _line: where)[1]


def _read_text(
    path: str | os.PathLike[str], where: str, kind: FileKind, names: Iterable[str]
) -> tuple[Path, str]:
    """Return a file, which may be a pipe, and its text; ``names`` are similar ones for errors."""
    file = Path(path)
    try:
        file = file.expanduser()
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise RecipeError(f"is larger than {_MAX_BYTES} bytes", where=where)
        return file, content.decode()
    except FileNotFoundError as error:
        hint = _near_file(file, names, kind) or kind.hint
        raise RecipeError("not found", where=where, hint=hint) from error
    except IsADirectoryError as error:
        raise RecipeError("is a folder", where=where, hint=kind.hint) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise RecipeError(f"cannot be read ({error})", where=where) from error


def _near_file(file: Path, shipped: Iterable[str], kind: FileKind) -> str:
    """Return a hint for a file that is missing: a file or a shipped one with a similar name, and all shipped.

    Names are compared without their suffix, which makes all files similar.
    """
    known = {name: name for name in shipped}
    lists = f"shipped {kind.noun}s: {', '.join(known)}" if known else ""
    siblings = sorted(file.parent.glob("*.y*ml"))
    known |= {sibling.stem: one_line(str(sibling)) for sibling in siblings}
    near = get_close_matches(file.stem, known, n=1)
    return " ".join([*(f"did you mean {known[name]!r}?" for name in near), lists]).strip()


def _load(text: str, at: _At) -> tuple[yaml.Node | None, Any]:
    """Parse YAML within the limits; return its root and its data."""
    try:
        _check_events(text, at)
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
        if root is None:
            return None, None
        _check_size(root, at)
        _check_values(root, at)
        return root, _Loader.data(root, at)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        has_tab = "\t" in "".join(text.splitlines()[line : line + 1])
        hint = "indent with spaces: YAML does not allow tabs" if has_tab else None
        raise RecipeError(f"invalid YAML: {error.problem}", where=at(line), hint=hint) from error
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(f"cannot be read ({error})", where=at(0)) from error


def _check_events(text: str, at: _At) -> None:
    """Refuse too many values and too deep nesting, before there are objects for them."""
    count = depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if count <= _MAX_NODES and depth <= _MAX_DEPTH:
            continue
        where = at(event.start_mark.line if event.start_mark else 0)
        if depth > _MAX_DEPTH:
            raise RecipeError(f"more than {_MAX_DEPTH} levels of nesting", where=where)
        raise RecipeError(
            f"more than {_MAX_NODES} values",
            where=where,
            hint="keep long lists in a file that a stage names, such as the hosts of url",
        )


def _check_size(root: yaml.Node, at: _At) -> None:
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
            where = at(node.start_mark.line)
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
        raise RecipeError("its values are nested too deeply", where=at(0)) from error


def _check_values(root: yaml.Node, at: _At) -> None:
    """Refuse repeated keys, and numbers and dates that are too long."""
    for node in _nodes(root):
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    what = f"the key {_shown(key.value)} occurs twice"
                    raise RecipeError(what, where=at(key.start_mark.line))
                seen.add(key.value)
        elif _is_long_number(node):
            raise RecipeError(
                f"{_shown(node.value)} has {len(node.value)} characters; a value that is not text "
                f"has at most {_MAX_NUMBER_CHARS}",
                where=at(node.start_mark.line),
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

    _at: _At

    @classmethod
    def data(cls, root: yaml.Node, at: _At) -> Any:
        loader = cls("")
        loader._at = at
        try:
            return loader.construct_document(root)
        finally:
            loader.dispose()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Return the value of a node; raise RecipeError with its line if PyYAML cannot construct it."""
        where = self._at(node.start_mark.line)
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


def _line_of(file: str, line: int) -> str:
    return f"{file}:{line + 1}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
