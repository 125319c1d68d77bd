"""Python code that a recipe names is reported before it is loaded, or refused."""

from pathlib import Path

import pytest

from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl

_RECIPE = """\
name: own
source: {path: a.jsonl, columns: {text: body}}
lake: lake
stages: [{python: "my_filters:is_long"}]
"""
_CODE = """\
from pathlib import Path
Path(__file__).with_name("was-loaded").touch()
def is_long(table):
    return [len(text.as_py()) > 50 for text in table["text"]]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Return a recipe whose code writes a file when it is loaded."""
    write_jsonl(tmp_path / "a.jsonl", records(0, 10))
    (tmp_path / "my_filters.py").write_text(_CODE)
    (tmp_path / "own.yaml").write_text(_RECIPE)
    return tmp_path / "own.yaml"


def was_loaded(recipe: Path) -> bool:
    return recipe.with_name("was-loaded").exists()


def test_code_is_named_before_it_is_loaded(recipe: Path) -> None:
    loaded = Recipe.load(recipe)
    assert loaded.code == (f"my_filters:is_long of {recipe.with_name('my_filters.py')}",)
    assert not was_loaded(recipe)


@pytest.mark.parametrize("command", ["plan", pytest.param("run", marks=pytest.mark.slow)])
def test_a_command_warns_of_the_code(recipe: Path, command: str) -> None:
    result = etl(command, recipe)
    assert result.exit_code == 0, result.output
    file = recipe.with_name("my_filters.py")
    assert f"warning: the recipe runs Python code: my_filters:is_long of {file}" in result.stderr
    assert was_loaded(recipe)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_command_can_forbid_the_code(recipe: Path, command: str, given: str) -> None:
    words = ["--no-python"] if given == "option" else []
    env = {"TOKENLAKE_NO_PYTHON": "1"} if given == "environment" else {}
    result = etl(command, recipe, *words, env=env)
    assert result.exit_code == 1
    assert "names Python code (my_filters:is_long of " in result.stderr
    assert not was_loaded(recipe)
    assert not recipe.with_name("lake").exists()


def test_a_script_can_forbid_the_code(recipe: Path) -> None:
    with pytest.raises(RecipeError, match="which is forbidden"):
        Recipe.load(recipe).without_python()
    assert not was_loaded(recipe)


def test_a_recipe_without_code_gives_no_warning(tmp_path: Path) -> None:
    result = etl("plan", "demo", "--lake", tmp_path, "--no-python")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
