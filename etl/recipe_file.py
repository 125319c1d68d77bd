"""A recipe file: YAML with the line of every value, and clear errors.

``${NAME}`` and ``${NAME:-default}`` stand for the environment's value, ``$${`` for the characters ``${``.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError

import pipelines
from etl.errors import RecipeError

_MAX_BYTES = 1 << 20  # of a recipe; those shipped have 3 KB
_MAX_NODES = 100_000  # values in it, those that references repeat included
_UNREADABLE = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    RecursionError,
)  # what PyYAML raises at values
_SHOWN_CHARS = 200

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """A hint that names the known word most like a misspelt one, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(known)}" if known else None


class RecipeFile:
    """One YAML file as data, with the line of each value kept for errors."""

    def __init__(self, path: Path, root: yaml.MappingNode) -> None:
        self.path = path
        self.folder = path.parent.absolute()
        self._root = root
        try:
            self.data: dict[str, Any] = _Loader.data(root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise RecipeError(f"not a recipe: {error.problem}", where=f"{path}:{line}") from error
        except _UNREADABLE as error:  # dates that are none, numbers of thousands of digits
            raise RecipeError(
                f"it has a value that cannot be read ({error})", where=str(path)
            ) from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, or a shipped recipe by its name.

        Raises RecipeError if it is missing, is no YAML mapping, says a key twice, names a variable that
        the environment does not have, or is larger than a recipe can be, by its references too.
        """
        file = _find(os.fspath(path))
        try:
            if file.stat().st_size > _MAX_BYTES:
                raise RecipeError(f"a recipe has at most {_MAX_BYTES} bytes", where=str(file))
            root = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise RecipeError(f"not YAML: {error.problem}", where=f"{file}:{line}") from error
        except (OSError, *_UNREADABLE) as error:
            raise RecipeError(f"cannot be read ({error})", where=str(file)) from error
        if not isinstance(root, yaml.MappingNode):
            raise RecipeError(
                "a recipe is a mapping", where=str(file), hint="begin with name, source, stages"
            )
        _check_size(root, file)
        _check_and_fill(root, file)
        return cls(file, root)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """Data as if a file held it; ``where`` stands in errors for the file."""
        root = yaml.compose(json.dumps(data), Loader=yaml.SafeLoader)
        assert isinstance(root, yaml.MappingNode)
        return cls(Path(where), root)

    def stages(self, parse: Callable[[Any], Any]) -> list[Any]:
        """The stages as ``parse`` sees each of them; raises RecipeError if they are no list."""
        stages = self.data.get("stages")
        if not isinstance(stages, list):
            where = f"{self.path}:{self.line(('stages',))}"
            raise RecipeError("stages must be a list", where=where, hint="begin each with a dash")
        return [parse(stage) for stage in stages]

    def line(self, location: Sequence[str | int]) -> int:
        """The line of the value at a place, or of the nearest place around it that is in the file."""
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

    def explain(
        self,
        error: ValidationError,
        known: Callable[[Sequence[str | int]], list[str]],
        settings: Sequence[str] = (),
    ) -> RecipeError:
        """Pydantic's findings as one RecipeError that names line, key, value and the near miss.

        ``settings`` are the ``key=value`` that came from elsewhere: those have no line.
        """
        given: dict[str, str] = {}
        for text in settings:
            key = text.partition("=")[0]
            kind, _, rest = key.partition(".")
            given |= {key: text, f"{kind}.{rest.rpartition('.')[2]}": text}
        found: list[RecipeError] = []
        named: set[str] = set()
        for detail in error.errors():
            name = _dotted(detail["loc"])
            if name in named:  # each branch of a union has its say on one value
                continue
            named.add(name)
            setting = given.get(name.removeprefix("stages."))
            told = self._explain(detail, known)
            where = told.where if setting is None else f"--set {setting}"
            found.append(RecipeError(told.what, where=where, hint=told.hint))
        first, *others = found
        more = "".join(f"\n{other}" for other in others)
        return RecipeError(f"{first.what}{more}", where=first.where, hint=first.hint)

    def _explain(
        self, detail: Any, known: Callable[[Sequence[str | int]], list[str]]
    ) -> RecipeError:
        location = tuple(detail["loc"])
        where = f"{self.path}:{self.line(location)}"
        name = _dotted(location)
        match detail["type"]:
            case "extra_forbidden":
                last = str(location[-1])
                hint = nearest(last, known(location))
                return RecipeError(f"unknown key {name!r}", where=where, hint=hint)
            case "union_tag_invalid":
                tag = detail["ctx"]["tag"]
                hint = nearest(str(tag), known((*location, "kind", "")))
                return RecipeError(f"unknown stage {tag!r}", where=where, hint=hint)
            case "missing":
                return RecipeError(f"{name!r} is missing", where=where)
            case "value_error":
                text = detail["msg"].removeprefix("Value error, ")
                return RecipeError(f"{name}: {text}" if name else text, where=where)
        hint = None
        if detail["type"] == "string_type" and isinstance(detail["input"], bool):
            hint = "YAML reads yes, no, on and off as truth values: put quotes around them"
        elif detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
            hint = f"write a mapping, as in `{name}: {{{next(iter(known((*location, ''))), 'key')}: ...}}`"
        message = detail["msg"][0].lower() + detail["msg"][1:]
        return RecipeError(
            f"{name}: {message}, not {_shown(detail['input'])}", where=where, hint=hint
        )


def override(data: dict[str, Any], setting: str) -> None:
    """Apply one ``key=value`` of the command line; raises RecipeError for a key that is not there."""
    key, sign, text = setting.partition("=")
    if not sign:
        raise RecipeError(
            f"cannot read the setting {setting!r}",
            where="--set",
            hint="write key=value, as in gopher_quality.min_words=80",
        )
    try:
        value = yaml.safe_load(text)
    except _UNREADABLE as error:
        raise RecipeError(f"cannot read the value {text!r}", where=f"--set {key}") from error
    head, _, rest = key.partition(".")
    if not rest or head in ("source", "rejected"):
        target, names = data, key.split(".")
        for name in names[:-1]:
            inner = target.get(name) or {}
            if not isinstance(inner, Mapping):
                raise RecipeError(f"{name} has no keys, it is {inner!r}", where=f"--set {key}")
            target[name] = dict(inner)
            target = target[name]
        target[names[-1]] = value
        return
    name, _, field = rest.rpartition(".")
    place = _find_stage(data["stages"], head, name, where=f"--set {key}")
    data["stages"][place] = {**data["stages"][place], field: value}


def _find_stage(stages: Sequence[Any], kind: str, name: str, *, where: str) -> int:
    """The place of the one stage of a kind, or of the one that has a name: its own, or its function's."""
    found = [(n, stage) for n, stage in enumerate(stages) if isinstance(stage, Mapping)]
    of_kind = {n: stage_name(stage) for n, stage in found if stage.get("kind") == kind}
    if not of_kind:
        hint = nearest(kind, ["source", "rejected", *(str(s.get("kind")) for _, s in found)])
        raise RecipeError(f"no key or stage {kind!r}", where=where, hint=hint)
    places = [place for place, other in of_kind.items() if not name or other == name]
    if len(places) == 1:
        return places[0]
    names = [f"{kind}.{other}" for other in dict.fromkeys(of_kind.values()) if other]
    if name:
        count = len(places) or "no"
        raise RecipeError(
            f"the recipe has {count} stages {kind!r} named {name!r}",
            where=where,
            hint=nearest(f"{kind}.{name}", names) or f"leave out {name!r}",
        )
    hint = f"say which: {', '.join(names)}" if names else "change the file"
    raise RecipeError(f"the recipe has {len(places)} stages {kind!r}", where=where, hint=hint)


def stage_name(stage: Mapping[str, Any]) -> str:
    """What a stage of a recipe is called among others of its kind: its ``name``, or that of its function.

    >>> stage_name({"kind": "python", "call": "my_filters:is_prose"})
    'is_prose'
    """
    return str(stage.get("name") or str(stage.get("call", "")).partition(":")[2])


def _dotted(location: Sequence[str | int]) -> str:
    """The keys on the way to a value, without the places in lists and pydantic's names of branches.

    >>> _dotted(("source", "path", "tuple[constrained-str, ...]", 0))
    'source.path'
    """
    return ".".join(p for p in location if isinstance(p, str) and not re.search(r"[\[(-]", p))


def _find(path: str) -> Path:
    file = Path(path).expanduser()
    if file.is_file():
        return file
    if path in pipelines.names():
        return pipelines.path(path)
    near = [p.name for p in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
    hint = nearest(file.name, [*near, *pipelines.names()])
    raise RecipeError("there is no such recipe file", where=path, hint=hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _check_size(root: yaml.Node, file: Path) -> None:
    """Refuse values that contain themselves, and references that multiply to more than a recipe has."""
    sizes: dict[int, int] = {}  # by node; 0: it is being counted

    def size(node: yaml.Node) -> int:
        found = sizes.get(id(node))
        if found is None:
            sizes[id(node)] = 0
            children = node.value if isinstance(node, yaml.CollectionNode) else ()
            if isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
            found = sizes[id(node)] = 1 + sum(map(size, children))
        if not 0 < found <= _MAX_NODES:
            what = f"has over {_MAX_NODES} values" if found else "contains itself"
            where = f"{file}:{node.start_mark.line + 1}"
            raise RecipeError(f"a value {what}, by its references", where=where)
        return found

    try:
        size(root)
    except RecursionError as error:
        raise RecipeError("its values are nested too deeply", where=str(file)) from error


def _check_and_fill(root: yaml.Node, file: Path) -> None:
    """Refuse keys said twice, and put the environment's values in place of ``${NAME}``."""
    for node in _nodes(root):
        where = f"{file}:{node.start_mark.line + 1}"
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if keys.count(key) > 1:
                    raise RecipeError(f"the key {key!r} stands twice", where=where)
        elif isinstance(node, yaml.ScalarNode) and "${" in node.value:
            node.value = _fill(node.value, where)
            if node.style is None:  # a plain ${N} may be a number
                node.tag = _Loader.tag(node.value)


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Every node once, however often the file refers to it."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            todo.extend(child for pair in node.value for child in pair)


def _fill(text: str, where: str) -> str:
    def value(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        found = os.environ.get(name, default)
        if found is None:
            raise RecipeError(
                f"the environment has no {name}",
                where=where,
                hint=f"export {name}=..., write ${{{name}:-default}}, or $${{ for the characters",
            )
        return found

    return _VARIABLE.sub(value, text)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader over nodes that are composed already."""

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
