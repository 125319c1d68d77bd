"""Write the generated files: maps of modules, stages and formats, and the JSON Schema of recipes.

Run with ``make docs``; a test fails while a generated file is out of date.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from etl.recipe.json_schema import json_schema
from etl.recipe.stage_reference import StageReference, list_stages
from etl.sources import formats
from etl.stages import STAGES, Stage

ROOT = Path(__file__).parent.parent

_ORDER = (
    *(
        "etl",
        "schemas",
        "kernels",
        "storage",
        "settings_files",
        "html",
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
deduplication stage at most once, then `tokenize`. Paths are relative to the recipe's folder. `make docs`
writes this page from the docstrings of the classes; `etl stages NAME` prints its section of a stage.
"""


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


def stages_page() -> str:
    """Return the page ``docs/stages.md``: a section for each stage with its docstring and settings."""
    sections, group = [_STAGES_HEAD], None
    for stage in list_stages():
        if stage.group != group:
            group = stage.group
            sections.append(f"## {group}\n")
        sections.append("\n".join(_stage_lines(stage)))
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


def _stage_lines(stage: StageReference) -> Iterator[str]:
    path = Path(inspect.getfile(STAGES[stage.kind])).relative_to(
        Path(inspect.getfile(Stage)).parent
    )
    yield f"### {stage.kind}\n"
    yield _as_markdown(stage.about) + "\n"
    if stage.shorthand is not None:
        yield f"A bare value sets `{stage.shorthand}`, as in `{stage.kind}: VALUE`."
    yield f"Code: `etl/stages/{path}`.\n"
    for setting in stage.settings:
        default = "required" if setting.default is None else f"default `{setting.default}`"
        facts = [setting.type, default, *([f"in {setting.unit}"] if setting.unit else [])]
        item = f"- `{setting.name}` ({', '.join(facts)}): {_as_markdown(setting.about)}"
        yield textwrap.fill(
            item, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    yield ""


GENERATED: dict[str, Callable[[], str]] = {
    "docs/formats.md": formats_page,
    "docs/modules.md": module_map,
    "docs/stages.md": stages_page,
    "schemas/recipe.schema.json": recipe_schema,
}
"""File -> the function that returns its content."""


if __name__ == "__main__":
    for file, content in GENERATED.items():
        (ROOT / file).write_text(content(), encoding="utf-8")
