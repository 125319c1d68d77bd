"""Fixtures: a small lake of two runs over three files in many splits, and copies of it to damage."""

from datetime import timedelta
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.maintenance import vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.lakes import make_sound_lake, with_copied_input, with_copied_lake
from tests.helpers.paths import NewPlace


@pytest.fixture(autouse=True)
def _no_least_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a vacuum delete what was removed just now."""
    monkeypatch.setattr(vacuum, "MIN_RETAIN", timedelta(0))


@pytest.fixture(scope="session")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a shared lake, read-only; tests that change the lake use the copy ``recipe``."""
    return make_sound_lake(new_place("made"), client, tiny_tokenizer)


@pytest.fixture
def recipe(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake."""
    return with_copied_lake(made, place)


@pytest.fixture
def changing(recipe: Recipe, place: UPath) -> Recipe:
    """A recipe with its own copy of the input, and without a lake."""
    return with_copied_input(recipe, place)
