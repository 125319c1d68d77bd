"""The lakes whose recipes change."""

from pathlib import Path

import pytest
from upath import UPath

from tests.helpers.corpus import write_jsonl
from tests.helpers.decisions import similar
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import MakeRecipe, maker


@pytest.fixture
def make(new_place: NewPlace, tiny_tokenizer: Path) -> tuple[UPath, MakeRecipe]:
    """Return a folder with 60 similar records, and a function that makes a recipe over them for a lake."""
    place = new_place("decisions")
    for start in (0, 30):
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", similar(start, start + 30))
    return place, maker(place, tiny_tokenizer)
