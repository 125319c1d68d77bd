"""A new stage is one file, one line in the union and one golden pair: everything else finds it.

The fixture builds a copy of the package in which the union has a stage more, and runs its commands.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etl.stages import STAGES, Filter, Stage, Transform

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"

_STAGE = '''"""The Shouting stage: reject documents in capitals."""

from typing import Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.stages.base import Filter, above


class Shouting(Filter):
    """Keep documents that are not written in capitals.

    More about it.
    """

    kind: Literal["shouting"] = "shouting"
    shorthand = "max_capital_ratio"
    paths = ("names",)
    thresholds = ("max_capital_ratio",)
    max_capital_ratio: float = Field(default=0.5, ge=0)
    """Largest share of capitals."""
    names: str | None = None
    max_text_chars: int = 1000

    def columns(self):
        return {"shouting_capitals": "share of code points"}

    def rules(self):
        return {"loud": above(pl.col("shouting_capitals"), self.max_capital_ratio)}

    def signals(self):
        return ["text", *self.columns()]

    def measure(self, table):
        texts = table["text"].to_pylist()
        ratios = [sum(c.isupper() for c in text) / max(len(text), 1) for text in texts]
        return pa.table({"shouting_capitals": ratios})
'''

_RECIPE = """\
name: loud
source: {path: raw.jsonl}
lake: lake
stages:
  - shouting: 0.5
"""

_CALLS = """\
import json
import runpy
import sys

from typer.testing import CliRunner

from etl.cli.app import app
from etl.recipe.recipe import Recipe

COMMANDS = json.loads(sys.argv[1])
for name, command in COMMANDS.items():
    result = CliRunner().invoke(app, command)
    print(json.dumps([name, result.output]))
(stage,) = Recipe.load("paths.yaml").stages
print(json.dumps(["paths", stage.names]))
print(json.dumps(["docs", runpy.run_path(sys.argv[2])["stage_group_page"]("Filters")]))
"""

_COMMANDS = {
    "schema": ["schema"],
    "stages": ["stages"],
    "stage": ["stages", "shouting"],
    "plan": ["plan", "loud.yaml"],
    "unknown stage": ["plan", "misspelled.yaml"],
    "unknown setting": ["plan", "loud.yaml", "--set", "shouting.max_capital_rato=1"],
    "unknown key of --set": ["plan", "loud.yaml", "--set", "shoutin.max_capital_ratio=1"],
    "run": ["run", "loud.yaml", "--workers", "1"],
    "report": ["report", "lake", "--json"],
    "tune": ["tune", "lake", "--set", "shouting.max_capital_ratio=0.9", "--json"],
    "tune signal": ["tune", "lake", "--set", "shouting.max_text_chars=9"],
}


def link_all(source: Path, target: Path) -> None:
    """Create a folder of links to the files and folders of another one."""
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).symlink_to(path.resolve())


def copy_with_stage(package: Path) -> None:
    """Link the package ``etl``, with one file more and one line more in the union of stages."""
    link_all(ROOT / "etl", package)
    (package / "stages").unlink()
    link_all(ROOT / "etl" / "stages", package / "stages")
    (package / "stages" / "filters").unlink()
    link_all(ROOT / "etl" / "stages" / "filters", package / "stages" / "filters")
    (package / "stages" / "filters" / "shouting.py").write_text(_STAGE)
    union = (ROOT / "etl" / "stages" / "__init__.py").read_text()
    union = union.replace("    | Sample\n", "    | Sample\n    | Shouting\n")
    union = union.replace(
        "from etl.stages.filters.sample import Sample\n",
        "from etl.stages.filters.sample import Sample\n"
        "from etl.stages.filters.shouting import Shouting\n",
    )
    (package / "stages" / "__init__.py").unlink()
    (package / "stages" / "__init__.py").write_text(union)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what each command prints where the stage exists."""
    folder = tmp_path_factory.mktemp("stage")
    copy_with_stage(folder / "etl")
    records = [{"text": text} for text in ("quiet", "LOUD", "LOUDer", "calm")]
    (folder / "raw.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "loud.yaml").write_text(_RECIPE)
    (folder / "misspelled.yaml").write_text(_RECIPE.replace("shouting", "shoutin"))
    (folder / "paths.yaml").write_text(_RECIPE.replace("0.5", "{names: names.txt}"))
    process = subprocess.run(
        [sys.executable, "-c", _CALLS, json.dumps(_COMMANDS), str(ROOT / "docs" / "generate.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    results = dict(json.loads(line) for line in process.stdout.splitlines())
    return {**results, "folder": folder}


def test_a_recipe_names_it_with_its_shorthand_and_plan_shows_it(outputs: dict[str, Any]) -> None:
    assert "shouting" in outputs["plan"]


def test_the_json_schema_has_it(outputs: dict[str, Any]) -> None:
    *_, stage = json.loads(outputs["schema"])["properties"]["stages"]["items"]["anyOf"]
    settings, number, nothing = stage["properties"]["shouting"]["anyOf"]
    assert {*settings["properties"]} == {"max_capital_ratio", "names", "max_text_chars"}
    assert (number["type"], nothing["type"]) == ("number", "null")


def test_its_paths_are_relative_to_the_recipe(outputs: dict[str, Any]) -> None:
    assert outputs["paths"] == str(outputs["folder"] / "names.txt")


def test_hints_name_it(outputs: dict[str, Any]) -> None:
    assert "misspelled.yaml:5: unknown stage 'shoutin'" in outputs["unknown stage"]
    assert "did you mean 'shouting'?" in outputs["unknown stage"]
    assert "did you mean 'max_capital_ratio'?" in outputs["unknown setting"]
    assert "did you mean 'shouting'?" in outputs["unknown key of --set"]


def test_the_cost_table_has_it(outputs: dict[str, Any]) -> None:
    line = next(line for line in outputs["run"].splitlines() if line.startswith("1 shouting"))
    documents, rejected = line.split()[2:4]
    assert (documents, rejected) == ("4", "2")


def test_the_report_has_its_reasons_and_costs(outputs: dict[str, Any]) -> None:
    report = json.loads(outputs["report"])
    assert '"shouting.loud"' in outputs["report"]
    assert "1 shouting" in [cost["name"] for cost in report["costs"]]


def test_tune_changes_its_thresholds_and_nothing_else(outputs: dict[str, Any]) -> None:
    whole = json.loads(outputs["tune"])["whole"]
    assert (whole["now"]["kept"], whole["then"]["kept"]) == (2, 3)
    assert "it changes the text or a signal" in outputs["tune signal"]


def test_the_stage_reference_has_it(outputs: dict[str, Any]) -> None:
    section = outputs["docs"].split("## shouting\n")[1].split("\n## ")[0]
    assert "Keep documents that are not written in capitals." in section
    assert "Code: `etl/stages/filters/shouting.py`." in section
    assert (
        "- `max_capital_ratio` (number, at least 0; default `0.5`): Largest share of capitals."
        in section
    )
    assert "- `max_text_chars` (integer; default `1000`; in code points):" in section


def test_its_settings_are_printed(outputs: dict[str, Any]) -> None:
    assert "shouting" in outputs["stages"]
    assert (
        "max_capital_ratio  (number, at least 0; default 0.5)\n    Largest share"
        in outputs["stage"]
    )


def test_every_stage_has_a_golden_pair() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*STAGES}


def test_the_file_of_a_stage_has_the_name_of_its_kind() -> None:
    assert {model.__module__.rpartition(".")[2] for model in STAGES.values()} == {*STAGES}


@pytest.mark.parametrize(("folder", "base"), [("filters", Filter), ("transforms", Transform)])
def test_every_stage_file_is_in_the_union(folder: str, base: type[Stage]) -> None:
    files = {path.stem for path in (ROOT / "etl" / "stages" / folder).glob("*.py")}
    kinds = {kind for kind, model in STAGES.items() if issubclass(model, base)}
    assert files - {"__init__", "rewrite"} == kinds
