"""Write the generated files: the pages of docs/reference, and the JSON Schema of recipes.

Run with ``make docs``; a test fails while a generated file is out of date.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from typer.main import get_command

import etl
import etl.cli
import etl.loader
from etl import schemas
from etl.cli.app import app
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_group import PodGroup, Toleration, TopologySpread, WorkerGroup
from etl.recipe.json_schema import json_schema
from etl.recipe.stage_reference import (
    GROUPS,
    SettingReference,
    StageReference,
    list_settings,
    list_stages,
)
from etl.settings_files.settings import Settings
from etl.sources import formats
from etl.stages import STAGES, Stage
from etl.stages.signals import DICTIONARY, SIGNALS, SPACED

ROOT = Path(__file__).parent.parent

_ORDER = (
    *(
        "etl",
        "schemas",
        "kernels",
        "storage",
        "settings_files",
        "html",
        "parquet",
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
        "change",
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

What a recipe's `stages` can be: filters and transforms in any order, then each deduplication stage at most
once, then `tokenize`. Paths are relative to the recipe's folder. `make docs` writes these pages from the
docstrings of the classes; `etl stages NAME` prints the section of a stage.

| stage | kind | what it does |
|---|---|---|
"""

_EXAMPLE_RECIPE = """```yaml
name: example
source:
  path: sample/*.parquet
  columns: {{text: content, id: doc_id, url: url}}
lake: lake
stages:
  - {}
```
"""

_TABLES_HEAD = """# Tables

A lake is a folder with Delta tables, which any reader of Delta can open: delta-rs, Spark, DuckDB, Polars.
`etl show LAKE/TABLE` prints the columns of a table with its first rows. `make docs` writes this page from
`schemas/tables.py`.

Readers skip data files by the minimum and the maximum of `id`, `reason`, `source` and `row` in the Delta log.
It has at most half of an `id`, and at most 16 characters: an erased `id` does not remain in it.

## Documents with their texts

`documents` says what became of every record, and is small. The texts are in `texts`. The address, `source`
and `row`, joins the two: [Other programs](#other-programs) has an example for each.

`etl export` writes the kept documents that are not duplicates, with their texts, as plain files.

## Data files

A **unit of work** is an input file, or a part of a large one. The log of each table records which units it
holds. The rows of a unit are in separate data files, except for small units: up to 64 of them are done by
one task as a **pack**, of as much text as one split has (`split_bytes`). Their rows share one data file in
each of `texts` and `tokens`, and one for each verdict in `documents`; the log lists the units of such a file
as its tag `tokenlake.units`. Each file of a pack can later be replaced, dropped or read again alone.
`etl optimize` merges small data files of several runs in the same form.
"""

_SIGNALS_HEAD = f"""## Signals

The numbers that filters compute, as columns of `documents`; a lake has those that its recipe needs. Stages
with a score of their own, such as `fasttext`, add columns that their section of [Stages](stages.md) names.
`annotate` adds `annotate_NAME` for each value that it reads from a table of another program.

Each signal of words has two variants: `{SPACED}NAME` counts what white space separates, and
`{DICTIONARY}NAME` the words of a dictionary in Chinese, Japanese and Korean.
"""

_COMMANDS_HEAD = """# Commands

`etl COMMAND --help` prints what this page has. `make docs` writes it from the code.
"""

_PYTHON_HEAD = """# Python

The public modules are `etl`, `etl.loader`, `etl.errors` and `etl.exports.huggingface`; all others may change
in any version. This page has the names of the first two: `make docs` writes it from their docstrings, and the
tests run the examples.
"""

_CLUSTER_FILE_HEAD = """# Cluster file

What the file of `--cluster k8s:FILE` says of a Dask cluster on [Kubernetes](../../k8s/README.md). Only
`image` is required; what a file does not set is as in the manifests of `k8s/cluster`. `etl plan RECIPE
--cluster k8s:FILE` prints the pods that a run would create. `make docs` writes this page from the code.

## Example

Every key occurs in `k8s/cluster-file.yaml`:
"""

_CLUSTER_FILE_PARTS = {
    "Cluster": ClusterFile,
    "Group of pods": PodGroup,
    "Group of workers": WorkerGroup,
    "Toleration": Toleration,
    "Topology spread": TopologySpread,
}
"""The title of each section -> the model that it describes."""

_ENGINES = {
    "delta-rs": "delta-rs.py",
    "Polars": "polars.py",
    "DuckDB": "duckdb.sql",
    "ClickHouse": "clickhouse.sql",
    "Sail": "sail.py",
}

_TABLES: dict[str, tuple[str, pa.Schema]] = {
    "documents": (
        "One row for each record of the input, kept or rejected. Signals follow after `metadata`, see below.",
        schemas.documents([]),
    ),
    "texts": (
        "One row for each kept document; with `rejected: {text: true}` also one for each rejected document.",
        schemas.texts(schemas.DEDUP_COLUMNS),
    ),
    "tokens": (
        (
            "One row for each kept document that is not a duplicate. `tokens_shuffled` has them in random\n"
            "order. `tokens_NAME` has the tokens of a tokenizer with a name, in the same columns, and\n"
            "`tokens_NAME_shuffled` has its rows in random order."
        ),
        schemas.TOKENS,
    ),
    "duplicates": (
        "One row for each document that is dropped, or shortened, in favour of another one.",
        schemas.duplicates(has_references=True, has_cuts=True, has_estimates=True),
    ),
    "keys": ("An index by which later runs find duplicates of earlier documents.", schemas.KEYS),
    "losses": (
        "What trainings have measured: one row for each part of a document.",
        schemas.LOSSES,
    ),
}
"""Table -> what its rows are, and all columns that it can have."""


def module_map() -> str:
    """Return the page ``docs/reference/modules.md``: a section for each package, a line for each module."""
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
    """Return the page ``docs/reference/formats.md``: a line for each input format."""
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


def stages_page() -> str:
    """Return the page ``docs/reference/stages.md``: a table of all stages."""
    rows = [
        f"| [`{stage.kind}`]({_stage_file(stage.group)}#{stage.kind}) "
        f"| {stage.group.lower().removesuffix('s')} | {_cell(stage.summary)} |"
        for stage in list_stages()
    ]
    return _STAGES_HEAD + "\n".join(rows) + "\n"


def stage_group_page(group: str) -> str:
    """Return a page of ``docs/reference/stages``: the stages of a group with examples and settings."""
    sections = ["\n".join(_stage_lines(stage)) for stage in list_stages() if stage.group == group]
    return "\n".join([f"# {group}\n", *sections])


def commands_page() -> str:
    """Return the page ``docs/reference/commands.md``: a section for each command with its options."""
    group = get_command(app)
    about = _as_markdown(inspect.getdoc(etl.cli) or "").partition("\n\n")[2]
    sections = [_COMMANDS_HEAD, f"{about}\n"]
    for name, command in group.commands.items():
        with command.make_context(f"etl {name}", [], resilient_parsing=True) as context:
            lines = [f"## etl {name}", "", _as_markdown(inspect.cleandoc(command.help or "")), ""]
            usage = " ".join(command.collect_usage_pieces(context))
            lines += [_text_block(f"etl {name} {usage}")]
            records = (each.get_help_record(context) for each in command.params)
            lines += [_item(f"`{record[0]}`: {record[1]}") for record in records if record]
        if command.epilog:
            examples = command.epilog.partition("Examples:\n")[2]
            lines += ["", "Examples:", "", _text_block(textwrap.dedent(examples))]
        sections.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(sections)


def tables_page() -> str:
    """Return the page ``docs/reference/tables.md``: the columns of each table, and the signals."""
    sections = [_TABLES_HEAD]
    for name, (about, schema) in _TABLES.items():
        lines = [f"## {name}", "", about, "", "| column | type | content |", f"|{'---|' * 3}"]
        for field in schema:
            optional = " or null" if field.nullable else ""
            content = schemas.COLUMN_CONTENT[field.name]
            lines.append(f"| `{field.name}` | {_arrow_type(field.type)}{optional} | {content} |")
        sections.append("\n".join(lines) + "\n")
    lines = ["| signal | group | unit |", f"|{'---|' * 3}"]
    for name, signal in SIGNALS.items():
        if not name.startswith((SPACED, DICTIONARY)):
            lines.append(f"| `{name}` | {signal.group.replace('_', ' ')} | {signal.unit} |")
    return "\n".join([*sections, _SIGNALS_HEAD, *lines, "", _readers_section()])


def _readers_section() -> str:
    """Return which programs read the tables, with an example for each."""
    folder = ROOT / "docs" / "engines"
    parts = [(folder / "readers.md").read_text(encoding="utf-8")]
    for title, name in _ENGINES.items():
        example = (folder / name).read_text(encoding="utf-8")
        language = {".py": "python", ".sql": "sql"}[Path(name).suffix]
        parts.append(f"### {title}\n\n```{language}\n{example}```\n")
    return "\n".join(parts)


def cluster_file_page() -> str:
    """Return the page ``docs/reference/cluster-file.md``: an example, and the settings of each part."""
    example = (ROOT / "k8s" / "cluster-file.yaml").read_text(encoding="utf-8")
    sections = [_CLUSTER_FILE_HEAD, f"```yaml\n{example}```\n"]
    for title, model in _CLUSTER_FILE_PARTS.items():
        inherited = PodGroup.model_fields if model is WorkerGroup else ()
        settings = [_with_link(each) for each in list_settings(model) if each.name not in inherited]
        lines = [f"## {title}", "", _as_markdown(inspect.getdoc(model) or ""), ""]
        sections.append("\n".join([*lines, *_setting_lines(settings), ""]))
    return "\n".join(sections)


def _with_link(setting: SettingReference) -> SettingReference:
    """Return a setting with a link to the section of its type, instead of the keys that it has."""
    for title, model in reversed(_CLUSTER_FILE_PARTS.items()):
        *names, last = model.model_fields
        keys = f"of {', '.join(names)} and {last}"
        if keys in setting.type:
            link = f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
            shown = re.sub(f"mappings? {keys}", link, setting.type)
            default = "{}" if str(setting.default).startswith("{") else setting.default
            return replace(setting, type=shown, default=default)
    return setting


def python_page() -> str:
    """Return the page ``docs/reference/python.md``: the public names with signatures and docstrings."""
    sections = [_PYTHON_HEAD]
    for module in (etl, etl.loader):
        sections.append(f"## {module.__name__}\n")
        sections += ["\n".join(_name_lines(module, name)) for name in module.__all__]
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


def _cell(text: str) -> str:
    return _as_markdown(text).replace("|", r"\|")


def _item(text: str) -> str:
    """Return an item of a list, on lines of up to 118 columns."""
    return textwrap.fill(
        f"- {text}", 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _text_block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def _arrow_type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)


def _name_lines(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    yield f"### {module.__name__}.{name}\n"
    yield f"```python\n{_signature(name, value)}\n```\n"
    yield _docstring(value)
    if _has_settings(value):
        yield from _setting_lines(list_settings(value))
        yield ""
    if inspect.isclass(value):
        yield from _member_lines(name, value)


def _has_settings(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Settings)


def _member_lines(name: str, value: type) -> Iterator[str]:
    """Yield the lines of the public properties and methods that a class defines itself."""
    members = {key: each for key, each in vars(value).items() if not key.startswith("_")}
    properties = {
        key: inspect.getdoc(each) or ""
        for key, each in members.items()
        if isinstance(each, (property, cached_property))
    }
    for key, docstring in properties.items():
        yield _item(f"`{key}`: {' '.join(_as_markdown(docstring).split())}")
    if properties:
        yield ""
    for key, each in members.items():
        function = getattr(each, "__func__", each)
        if inspect.isfunction(function) and function.__qualname__ == f"{value.__qualname__}.{key}":
            yield f"#### {name}.{key}\n\n```python\n{_signature(key, function)}\n```\n"
            yield _docstring(function)


def _signature(name: str, value: Any) -> str:
    """Return the call of a function or class as the code has it, one parameter a line if it is long."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(value)))
    (definition,) = ast.parse(source).body
    if isinstance(definition, ast.ClassDef):
        methods = [each for each in definition.body if isinstance(each, ast.FunctionDef)]
        fields = [
            each
            for each in definition.body
            if isinstance(each, ast.AnnAssign) and not re.match(r"_\w", ast.unparse(each.target))
        ]
        if _has_settings(value):  # their types follow in words
            parameters = ["*", *(_default(each) for each in fields)]
        else:
            parameters = [
                "*" if ast.unparse(each.annotation) == "KW_ONLY" else ast.unparse(each)
                for each in fields
            ]
        for method in methods:
            if method.name == "__init__":
                parameters = _parameters(method.args)
    else:
        assert isinstance(definition, ast.FunctionDef)
        parameters = _parameters(definition.args)
    line = f"{name}({', '.join(parameters)})"
    return line if len(line) <= 80 else f"{name}(\n    " + ",\n    ".join(parameters) + ",\n)"


def _default(field: ast.AnnAssign) -> str:
    """Return the name of a field, with its default if it has one."""
    name = ast.unparse(field.target)
    return name if field.value is None else f"{name}={ast.unparse(field.value)}"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the parameters with their types and defaults, without `self` and `cls`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    shown = [
        _parameter(*pair) for pair in zip(positional, [*missing, *arguments.defaults], strict=True)
    ]
    if arguments.vararg is not None:
        shown.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_parameter(*pair) for pair in keywords]
    shown += [f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg is not None else []
    return [each for each in shown if each not in ("self", "cls")]


def _parameter(name: ast.arg, default: ast.expr | None) -> str:
    value = "" if default is None else f"={ast.unparse(default)}"
    return ast.unparse(name) + (value.replace("=", " = ", 1) if name.annotation else value)


def _docstring(value: Any) -> str:
    """Return a docstring as Markdown, with its examples as blocks of code."""
    text = re.sub(r" *# doctest: .*", "", _as_markdown(inspect.getdoc(value) or ""))
    return re.sub(r"(?m)^>>> (?:.+\n?)+", _example, text).rstrip() + "\n"


def _example(lines: re.Match[str]) -> str:
    return f"```pycon\n{lines[0].rstrip()}\n```\n"


def _stage_file(group: str) -> str:
    """Return the page of a group, relative to ``docs/reference``."""
    return f"stages/{group.lower()}.md"


def _stage_lines(stage: StageReference) -> Iterator[str]:
    path = Path(inspect.getfile(STAGES[stage.kind])).relative_to(
        Path(inspect.getfile(Stage)).parent
    )
    yield f"## {stage.kind}\n"
    yield _as_markdown(stage.about) + "\n"
    yield _EXAMPLE_RECIPE.format(stage.example)
    if stage.shorthand is not None:
        yield f"A bare value sets `{stage.shorthand}`, as in `{stage.kind}: VALUE`."
    yield f"Code: `etl/stages/{path}`.\n"
    yield from _setting_lines(stage.settings)
    yield ""


def _setting_lines(settings: Iterable[SettingReference]) -> Iterator[str]:
    for setting in settings:
        default = "required" if setting.default is None else f"default `{setting.default}`"
        facts = [setting.type, default, *([f"in {setting.unit}"] if setting.unit else [])]
        about = " ".join(_as_markdown(setting.about).split())
        yield _item(f"`{setting.name}` ({'; '.join(facts)}): {about}")


GENERATED: dict[str, Callable[[], str]] = {
    "docs/reference/cluster-file.md": cluster_file_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/formats.md": formats_page,
    "docs/reference/modules.md": module_map,
    "docs/reference/python.md": python_page,
    "docs/reference/stages.md": stages_page,
    **{
        f"docs/reference/{_stage_file(group)}": partial(stage_group_page, group) for group in GROUPS
    },
    "docs/reference/tables.md": tables_page,
    "schemas/recipe.schema.json": recipe_schema,
}
"""File -> the function that returns its content."""


if __name__ == "__main__":
    for file, content in GENERATED.items():
        (ROOT / file).write_text(content(), encoding="utf-8")
