"""Fixtures: a small lake of two runs over three files in many splits, and copies of it to damage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.recipe.recipe import Recipe
from tests.helpers.lakes import make_sound_lake, with_copied_input, with_copied_lake
from tests.helpers.paths import NewPlace
from tests.helpers.source_folder import SourceFolder


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


@pytest.fixture(scope="session")
def make_folder(tiny_tokenizer: Path, client: Client) -> Callable[[UPath], SourceFolder]:
    """Return a function that makes a source folder with its lake at a place."""
    return lambda place: SourceFolder(place, tiny_tokenizer, client)


@pytest.fixture
def folder(place: UPath, make_folder: Callable[[UPath], SourceFolder]) -> SourceFolder:
    """A source folder with a lake."""
    return make_folder(place)
