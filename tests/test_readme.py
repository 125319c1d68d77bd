"""README.md and CONTRIBUTING.md are correct: the recipe loads, commands and files exist, the Python runs."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from etl.cli.app import app
from etl.recipe.recipe import Recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def test_its_recipe_loads(tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    (tmp_path / "web.yaml").write_text(block)
    recipe = Recipe.load(tmp_path / "web.yaml")
    assert recipe.steps == ("documents", "texts", "duplicates", "tokens")
    assert recipe.source.path == "s3://crawl/2026-10/**/*.parquet"


def test_every_command_in_the_texts_exists() -> None:
    """In README, docs, recipes, docstrings and messages, with all its options."""
    commands = get_command(app).commands
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "pipelines").glob("*.yaml"),
    ]
    files += [*(ROOT / "etl").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    files.remove(ROOT / "docs" / "guides" / "extend.md")  # test_docs.py runs it: it adds a command
    unknown, known = [], set()
    for file in files:
        text = file.read_text("utf-8")
        for name, words in re.findall(r"(?:`|^\$ )etl ([a-z]\w*)([^`\n#]*)", text, re.MULTILINE):
            options = (
                {opt for p in commands[name].params for opt in p.opts} if name in commands else ()
            )
            known |= {name} & {*commands}
            named = re.findall(r"(?<!\S)--[a-z-]+", words)
            unknown += [(file.name, name, option) for option in named if option not in options]
            unknown += [] if name in commands else [(file.name, name, "")]
    assert unknown == []
    assert known == {*commands}


def test_its_commands_exist() -> None:
    shown = re.findall(r"^\$ etl (\w+)", README, re.MULTILINE)
    assert len(shown) > 4
    assert set(shown) <= set(get_command(app).commands)
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|\$ )make ([\w-]+)", README + CONTRIBUTING):
        assert f"\n{target}:" in makefile


def test_the_layout_names_every_package() -> None:
    (layout,) = [block for block in blocks("", CONTRIBUTING) if block.startswith("etl/errors.py")]
    listed = re.findall(r"(?:^|  )([\w/]+/|etl/\w+\.py)(?=\s)", layout, re.MULTILINE)
    assert [name for name in listed if not (ROOT / name).exists()] == []
    packages = {f"etl/{p.name}/" for p in (ROOT / "etl").iterdir() if (p / "__init__.py").is_file()}
    linked = {f"etl/{folder}/" for folder in ("cli", "pipelines", "schemas")}
    assert packages - linked <= set(listed)


def test_its_links_lead_to_files() -> None:
    text = README + CONTRIBUTING
    linked = re.findall(r"\]\(([\w./-]+)\)", text)
    linked += re.findall(r"`([\w/]+/[\w/]+\.(?:md|py))`", text)
    assert len(linked) > 5
    assert [name for name in linked if not (ROOT / name).is_file()] == []


def test_its_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks("python") if "etl.apply" in block]
    monkeypatch.chdir(ROOT / "pipelines")
    code = block.replace('"data/*.parquet"', "source")
    assert code != block
    variables: dict[str, object] = {}
    setup = (
        "import etl\nsource = etl.Source(path='sample/*.parquet', columns={'text': 'content'})\n"
    )
    *lines, last = code.strip().splitlines()
    exec(setup + "\n".join(lines) + f"\nresult = {last}", variables)
    assert variables["result"].sum() > 0


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120
