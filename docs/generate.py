"""Write the generated files: maps of modules, stages and formats, and the JSON Schema of recipes.

Run with ``make docs``; a test fails while a generated file is out of date.
"""

import ast
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etl.recipe.json_schema import json_schema
from etl.sources import formats
from etl.stages import STAGES, Filter, Stage, Transform
from etl.stages.signals import SIGNALS

ROOT = Path(__file__).parent.parent

_ORDER = (
    *(
        "etl",
        "schemas",
        "kernels",
        "storage",
        "settings_files",
        "delta",
        "text",
        "sources",
        "stages",
    ),
    *(
        "recipe",
        "lake",
        "compute",
        "dedup",
        "job",
        "audit",
        "maintenance",
        "loader",
        "exports",
        "cli",
        "pipelines",
    ),
)

_MODULES_HEAD = """# Modules

Every module with the first line of its docstring. `make docs` writes this page.
The top-level folders `cli/`, `k8s/`, `pipelines/` and `schemas/` are linked into `etl/` and installed there.
Imports point one way: `tests/test_layout.py` holds the layers.
"""

_STAGES_HEAD = """# Stages

What a recipe's `stages` can be, in the order of this page: filters and transforms in any order, then each
deduplication stage at most once, then `tokenize`. `make docs` writes this page from the classes.
A setting without a default is required. Paths are relative to the recipe's folder.
"""

_UNIT_WORDS = {  # the last word of a setting's name -> its unit
    **{name: name for name in ("bytes", "lines", "seconds", "sentences", "words")},
    "chars": "code points",
}


def module_map() -> str:
    """Return the page ``docs/modules.md``: a section for each package, a line for each module."""
    folders: dict[Path, list[Path]] = {}
    for top in ("etl", "cli", "pipelines", "schemas"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.parent.is_symlink():
                folders.setdefault(path.parent.relative_to(ROOT), []).append(path)
    sections = [_MODULES_HEAD]
    for folder in sorted(folders, key=_place_of):
        paths = {path.name: _summary(path) for path in folders[folder]}
        about = paths.pop("__init__.py", None)
        lines = [f"## {folder}/", "", *([about, ""] if about else [])]
        lines += [f"- `{name}`: {summary}" for name, summary in paths.items()]
        sections.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(sections)


def formats_page() -> str:
    """Return the page ``docs/formats.md``: a line for each input format."""
    about = ast.get_docstring(ast.parse(Path(formats.__file__).read_text(encoding="utf-8"))) or ""
    lines = ["# Input formats", "", _as_markdown(about), ""]
    lines += ["| format | extensions | may be compressed | module | content |", f"|{'---|' * 5}"]
    for name, reader in formats.FORMATS.items():
        path = Path(vars(reader)["__file__"])
        extensions = " ".join(f"`{extension}`" for extension in reader.EXTENSIONS)
        compressed = "yes" if reader.COMPRESSIBLE else "no"
        cells = (f"`{name}`", extensions, compressed, f"`{path.name}`", _summary(path))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def stage_reference() -> str:
    """Return the page ``docs/stages.md``: a section for each stage with its docstring and settings."""
    groups: dict[str, list[str]] = {}
    for kind, model in STAGES.items():
        groups.setdefault(_group(model), []).append("\n".join(_stage_lines(kind, model)))
    sections = [_STAGES_HEAD]
    for group in ("Filters", "Transforms", "Deduplication", "Tokenization"):
        sections += [f"## {group}\n", *groups[group]]
    return "\n".join(sections)


def recipe_schema() -> str:
    """Return the JSON Schema of recipe files as it is stored in ``schemas/``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _place_of(folder: Path) -> tuple[int, Path]:
    parts = folder.parts[1:] if folder.parts[0] == "etl" and len(folder.parts) > 1 else folder.parts
    return _ORDER.index(parts[0]), folder


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if docstring is None:
        raise SystemExit(f"{path} has no docstring")
    return _as_markdown(docstring.splitlines()[0])


def _as_markdown(text: str) -> str:
    return text.replace("``", "`")


def _group(model: type[Stage]) -> str:
    if issubclass(model, Filter):
        return "Filters"
    if issubclass(model, Transform):
        return "Transforms"
    return "Deduplication" if model.phase == "dedup" else "Tokenization"


def _stage_lines(kind: str, model: type[Stage]) -> Iterator[str]:
    path = Path(inspect.getfile(model)).relative_to(Path(inspect.getfile(Stage)).parent)
    yield f"### {kind}\n"
    text = inspect.cleandoc(model.__doc__ or "").partition("\n\n>>>")[0]
    yield text.replace("``", "`") + "\n"
    if model.shorthand is not None:
        yield f"A bare value sets `{model.shorthand}`, as in `{kind}: VALUE`."
    yield f"Code: `etl/stages/{path}`.\n"
    yield "| setting | type | default | unit |"
    yield "|---|---|---|---|"
    schema = model.model_json_schema()
    for name, setting in schema["properties"].items():
        if name != "kind":
            default = f"`{json.dumps(setting['default'])}`" if "default" in setting else ""
            type_name = _type_name(setting, schema)
            unit = _unit(name) if type_name.startswith(("integer", "number")) else ""
            yield f"| `{name}` | {type_name} | {default} | {unit} |"
    yield ""


def _type_name(setting: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the type of a JSON Schema in words.

    >>> _type_name({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, {})
    'integer >= 1 or null'
    """
    if "$ref" in setting:
        definition = schema["$defs"][setting["$ref"].rpartition("/")[2]]
        return f"mapping of {', '.join(f'`{name}`' for name in definition['properties'])}"
    if "anyOf" in setting:
        return " or ".join(dict.fromkeys(_type_name(form, schema) for form in setting["anyOf"]))
    if "enum" in setting or "const" in setting:
        return " or ".join(f"`{value}`" for value in setting.get("enum", [setting.get("const")]))
    if setting["type"] == "array":
        return f"list of {_in_brackets(_type_name(setting['items'], schema))}"
    if setting["type"] == "object":
        values = [
            setting.get("additionalProperties"),
            *setting.get("patternProperties", {}).values(),
        ]
        names = [_type_name(value, schema) for value in values if value]
        return f"mapping to {_in_brackets(names[0])}"
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    limits = [f"{sign} {setting[name]}" for name, sign in signs.items() if name in setting]
    return " ".join([setting["type"], ", ".join(limits)]).strip()


def _in_brackets(type_name: str) -> str:
    return f"({type_name})" if " " in type_name else type_name


def _unit(name: str) -> str:
    """Return the unit of a number: that of the signal it limits, or the last word of its name.

    >>> _unit("min_mean_word_length"), _unit("max_word_chars"), _unit("min_words_per_line"), _unit("seed")
    ('code points per word', 'code points', 'words', '')
    """
    limited = name.removeprefix("min_").removeprefix("max_")
    if limited != name:
        for signal in (limited, f"num_{limited}"):
            if signal in SIGNALS:
                return SIGNALS[signal].unit
    return _UNIT_WORDS.get(name.partition("_per_")[0].rpartition("_")[2], "")


GENERATED: dict[str, Callable[[], str]] = {
    "docs/formats.md": formats_page,
    "docs/modules.md": module_map,
    "docs/stages.md": stage_reference,
    "schemas/recipe.schema.json": recipe_schema,
}
"""File -> the function that returns its content."""


if __name__ == "__main__":
    for file, content in GENERATED.items():
        (ROOT / file).write_text(content(), encoding="utf-8")
