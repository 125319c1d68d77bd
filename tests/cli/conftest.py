"""Fixtures: a lake of two runs, with an unreadable input file and a repeated document id."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.recipe.recipe import Recipe
from tests.helpers.lakes import make_lake_with_an_unreadable_file, with_copied_lake
from tests.helpers.paths import NewPlace


@pytest.fixture(scope="session")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a shared lake, read-only; tests that change the lake use the copy ``lake``."""
    return make_lake_with_an_unreadable_file(new_place("made"), client, tiny_tokenizer)


@pytest.fixture
def lake(made: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake, to damage or to extend."""
    return with_copied_lake(made, place)
