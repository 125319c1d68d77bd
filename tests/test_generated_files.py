"""The generated files are up to date: the map of modules, the reference of stages, the JSON Schema."""

import re
import runpy
from pathlib import Path

import pytest

from etl.recipe.recipe import Recipe
from etl.recipe.stage_reference import GROUPS, list_stages

ROOT = Path(__file__).parent.parent
GENERATED = runpy.run_path(str(ROOT / "docs" / "generate.py"))["GENERATED"]


@pytest.mark.parametrize("file", GENERATED)
def test_a_generated_file_is_up_to_date(file: str) -> None:
    assert (ROOT / file).read_text("utf-8") == GENERATED[file](), "run `make docs`"


@pytest.mark.parametrize("group", GROUPS)
def test_every_stage_has_an_example_recipe_that_loads(group: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "stages" / f"{group.lower()}.md").read_text("utf-8")
    recipes = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    loaded = []
    for recipe in recipes:
        (tmp_path / "example.yaml").write_text(recipe, encoding="utf-8")
        loaded.append(Recipe.load(tmp_path / "example.yaml").stages[-1].kind)
    assert loaded == [stage.kind for stage in list_stages() if stage.group == group]
    assert loaded
