"""Limits: read from the rules, they say for each rejected document which number it fails."""

import polars as pl
import pytest

from etl.audit.rule_limits import FailedLimit, failed_limits, limits_of
from etl.audit.tune.rejudge import stored_filters
from etl.recipe.recipe import Recipe


def limits(*stages: object) -> list[tuple[str, str, str, dict]]:
    recipe = Recipe(name="limits", source={"path": "a.jsonl"}, stages=[*stages])
    found = limits_of(stored_filters(recipe.stages, has_all_signals=True))
    return [(each.rule, each.column, each.comparison, each.values([None, "de"])) for each in found]


def test_a_limit_is_the_number_of_a_rule() -> None:
    assert limits({"length": {"min_words": 5, "max_chars": 100}}) == [
        ("length.many_chars", "num_chars", ">", {None: 100, "de": 100}),
        ("length.few_words", "num_words", "<", {None: 5, "de": 5}),
    ]


def test_a_limit_may_differ_by_language() -> None:
    settings = {"max_mean_word_length": 9, "languages": {"de": {"max_mean_word_length": 15}}}
    found = limits({"gopher_quality": settings})
    [values] = [each[3] for each in found if each[1] == "mean_word_length" and each[2] == ">"]
    assert values == {None: 9, "de": 15}


def test_a_score_for_some_languages_is_one_limit() -> None:
    found = limits({"language": {"keep": {"de": 0.8, "en": None, "fr": 0.7}, "min_score": 0.5}})
    assert found == [("language.score", "lang_score", "<", {None: 0.5, "de": 0.8})]
    found = limits({"language": {"keep": {"de": 0.8}, "min_score": None}})
    assert found == [("language.score", "lang_score", "<", {None: None, "de": 0.8})]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("num_words > 5", [("num_words", "<=")]),
        ("NOT num_words > 5", [("num_words", ">")]),
        ("5 <= num_words AND num_chars < 9", [("num_words", "<"), ("num_chars", ">=")]),
        ("num_words > num_chars", []),
        ("url LIKE '%a%'", []),
    ],
)
def test_limits_of_a_condition_say_what_is_rejected(
    condition: str, expected: list[tuple[str, str]]
) -> None:
    assert [(each[1], each[2]) for each in limits({"where": condition})] == expected


def test_a_later_stage_has_the_columns_of_its_own_signals() -> None:
    found = limits({"length": {"min_words": 5}}, "c4", {"length": {"min_words": 9}})
    assert [(each[1], each[3][None]) for each in found if each[0] == "length.few_words"] == [
        ("num_words", 5),
        ("c4_num_words", 9),
    ]


def test_a_document_fails_the_limits_of_its_rule_only() -> None:
    recipe = Recipe(
        name="limits",
        source={"path": "a.jsonl"},
        stages=[{"length": {"min_words": 5, "min_chars": 50}}],
    )
    found = limits_of(stored_filters(recipe.stages, has_all_signals=True))
    document = {"reason": "length.few_words", "lang": None, "num_words": 2.0, "num_chars": 7.0}
    expected = FailedLimit(signal="num_words", value=2, comparison="<", limit=5)
    assert failed_limits(document, found) == [expected]
    assert str(expected) == "num_words = 2 < 5"
    assert failed_limits({**document, "reason": None}, found) == []
    frame = pl.DataFrame({"num_words": [2.0, 5.0, None], "lang": [None, "de", "en"]})
    [few_words] = [each for each in found if each.rule == "length.few_words"]
    assert few_words.holds(frame).to_list() == [True, False, False]
