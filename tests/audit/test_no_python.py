"""Python code in a recipe is reported before it is loaded, or refused."""

from pathlib import Path

import pytest

from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from tests.audit.test_cli import etl
from tests.job.corpus import records, write_jsonl

_RECIPE = """\
name: own
source: {path: a.jsonl, columns: {text: body}}
lake: lake
stages: [{python: "my_filters:is_long"}]
"""
_CODE = """\
from pathlib import Path
Path(__file__).with_name("was-run").touch()
def is_long(table):
    return [len(text.as_py()) > 50 for text in table["text"]]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe whose code leaves a file behind when it is loaded."""
    write_jsonl(tmp_path / "a.jsonl", records(0, 10))
    (tmp_path / "my_filters.py").write_text(_CODE)
    (tmp_path / "own.yaml").write_text(_RECIPE)
    return tmp_path / "own.yaml"


def was_run(recipe: Path) -> bool:
    return recipe.with_name("was-run").exists()


def test_code_is_named_before_it_is_loaded(recipe: Path) -> None:
    loaded = Recipe.load(recipe)
    assert loaded.code == (f"my_filters:is_long of {recipe.with_name('my_filters.py')}",)
    assert not was_run(recipe)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_commands_warn_about_code(recipe: Path, command: str) -> None:
    result = etl(command, recipe)
    assert result.exit_code == 0, result.output
    where = recipe.with_name("my_filters.py")
    assert f"warning: the recipe runs Python code: my_filters:is_long of {where}" in result.stderr
    assert was_run(recipe)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("by", ["option", "environment"])
def test_commands_can_forbid_code(recipe: Path, command: str, by: str) -> None:
    options = ["--no-python"] if by == "option" else []
    env = {"TOKENLAKE_NO_PYTHON": "1"} if by == "environment" else {}
    result = etl(command, recipe, *options, env=env)
    assert result.exit_code == 1
    assert "names Python code (my_filters:is_long of " in result.stderr
    assert not was_run(recipe)
    assert not recipe.with_name("lake").exists()


def test_a_script_can_forbid_code(recipe: Path) -> None:
    with pytest.raises(RecipeError, match="which is forbidden"):
        Recipe.load(recipe).without_python()
    assert not was_run(recipe)


def test_a_recipe_without_code_prints_no_warning(tmp_path: Path) -> None:
    result = etl("plan", "demo", "--lake", tmp_path, "--no-python")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
