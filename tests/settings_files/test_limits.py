"""Limits that contradict each other are an error when settings are loaded, in every stage."""

from pathlib import Path
from typing import Any

import pytest

from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from etl.stages import STAGES, GopherQuality
from etl.stages.filters.python import Python

REQUIRED: dict[str, dict[str, Any]] = {
    "fasttext": {"model": "m.bin", "label": "hq"},
    "python": {"call": "own:letters"},
}
PAIRS = [
    (kind, name, f"max_{name[4:]}")
    for kind, model in STAGES.items()
    for name in model.model_fields
    if name.startswith("min_") and f"max_{name[4:]}" in model.model_fields
]


def load(folder: Path, stage: str, *settings: str) -> Recipe:
    path = folder / "r.yaml"
    path.write_text(f"name: r\nsource: {{path: a.jsonl}}\nstages:\n  - {stage}\n")
    return Recipe.load(path, settings=settings)


def test_the_pairs_are_found() -> None:
    assert {kind for kind, *_ in PAIRS} == {"fasttext", "gopher_quality", "length", "python"}


@pytest.mark.parametrize(("kind", "low", "high"), PAIRS)
def test_every_pair_of_limits_must_agree(kind: str, low: str, high: str) -> None:
    model, required = STAGES[kind], REQUIRED.get(kind, {})
    model(**required, **{low: 1, high: 1})
    with pytest.raises(RecipeError, match=rf"{low} \(1(\.0)?\) is more than {high} \("):
        model(**required, **{low: 1, high: 0})


def test_the_error_has_a_line_or_the_option(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"r\.yaml:4: stages\.length: min_chars \(9\) is more"):
        load(tmp_path, "length: {min_chars: 9, max_chars: 5}")
    good = "length: {min_chars: 2, max_chars: 5}"
    with pytest.raises(RecipeError, match=r"min_chars \(9\) is more than max_chars \(5\)"):
        load(tmp_path, good, "length.min_chars=9")
    load(tmp_path, good, "length.min_chars=9", "length.max_chars=10")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ("{max_words: -1}", r"max_words \(-1\) is negative; write null for no limit"),
        ("{min_alpha_word_ratio: 80}", r"min_alpha_word_ratio \(80\.0\) is more than 1"),
        ("{min_words: 200_000}", r"is more than max_words \(100000\)"),
        ("{languages: {de: {min_words: 9, max_words: 5}}}", r"languages\.de: min_words \(9\)"),
        ("{max_words: 99, languages: {de: {min_words: 100}}}", r"in de, min_words \(100\)"),
    ],
)
def test_limits_that_nothing_meets_are_an_error(settings: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=what):
        load(tmp_path, f"gopher_quality: {settings}")


def test_a_language_may_exceed_the_default_of_the_other_limit() -> None:
    GopherQuality(max_words=300_000, languages={"de": {"min_words": 200_000}})
    GopherQuality(max_words=None, languages={"de": {"min_words": 200_000}})
    Python(call="own:score", max_score=-1)
