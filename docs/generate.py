"""Write the generated files: docs/modules.md, docs/formats.md, and the JSON Schema of recipes.

Run with ``make docs``; a test fails while a generated file is out of date.
"""

import ast
import json
from pathlib import Path

from etl.recipe.json_schema import json_schema
from etl.sources import formats

ROOT = Path(__file__).parent.parent
MODULES = Path("docs", "modules.md")
FORMATS = Path("docs", "formats.md")
SCHEMA = Path("schemas", "recipe.schema.json")

_ORDER = (
    *("etl", "schemas", "kernels", "storage", "delta", "text", "sources", "stages", "recipe"),
    *("lake", "compute", "dedup", "job", "audit", "maintenance", "loader", "cli", "pipelines"),
)

_HEAD = """# Modules

Every module with the first line of its docstring. `make docs` writes this page.
The top-level folders `cli/`, `pipelines/` and `schemas/` are linked into `etl/` and installed there.
Imports point one way: `tests/test_layout.py` holds the layers.
"""


def module_map() -> str:
    """Return the page ``docs/modules.md``: a section for each package, a line for each module."""
    folders: dict[Path, list[Path]] = {}
    for top in ("etl", "cli", "pipelines", "schemas"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.parent.is_symlink():
                folders.setdefault(path.parent.relative_to(ROOT), []).append(path)
    sections = [_HEAD]
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


if __name__ == "__main__":
    (ROOT / MODULES).write_text(module_map(), encoding="utf-8")
    (ROOT / FORMATS).write_text(formats_page(), encoding="utf-8")
    (ROOT / SCHEMA).write_text(recipe_schema(), encoding="utf-8")
