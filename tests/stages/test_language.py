"""Languages to keep, the minimum score of each, and the labels of capitals and of text without letters."""

import pyarrow as pa
import pytest

import etl
from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from etl.stages.filters.language import Language
from etl.text import language_id


def test_a_misspelt_language_is_refused():
    with pytest.raises(RecipeError, match="unknown language 'eng'; similar codes: en"):
        Language(keep=("de", "eng"))


def test_settings_from_yaml_are_accepted():
    assert Language(keep=["de"], min_score=1).keep == ("de",)
    assert Language().min_score == 0.65
    with pytest.raises(RecipeError, match="less than or equal to 1"):
        Language(min_score=65)
    with pytest.raises(RecipeError):
        Language(keep="de")


def reasons(stage, *rows):
    table = pa.table({"lang": [row[0] for row in rows], "lang_score": [row[1] for row in rows]})
    return stage.reasons(table).to_pylist()


def test_each_language_can_have_its_own_minimum_score():
    stage = Language(keep={"de": 0.8, "en": None, "ja": 0.0}, min_score=0.5)
    assert reasons(stage, ("de", 0.79), ("de", 0.8)) == ["language.score", None]
    assert reasons(stage, ("en", 0.49), ("en", 0.5)) == ["language.score", None]
    assert reasons(stage, ("ja", 0.0), ("fr", 0.9)) == [None, "language.other"]
    assert reasons(stage, (None, None), ("de", None), (None, 0.1)) == [None, None, "language.score"]
    any_score = Language(keep={"de": 0.8, "en": None}, min_score=None)
    assert reasons(any_score, ("en", 0.0), ("de", 0.79)) == [None, "language.score"]


def test_all_languages_can_have_a_minimum_score():
    stage = Language(keep=dict.fromkeys(language_id.LANGUAGES, 0.4), min_score=None)
    for score, reason in ((0.39, "language.score"), (0.4, None)):
        assert {*reasons(stage, *((code, score) for code in language_id.LANGUAGES))} == {reason}


def test_invalid_scores_are_rejected():
    with pytest.raises(RecipeError, match="unknown language 'eng'"):
        Language(keep={"eng": 0.5})
    with pytest.raises(RecipeError, match="'@'; use a code of ISO 639-1 or 639-3"):
        Language(keep={"@": 0.5})
    with pytest.raises(RecipeError, match="less than or equal to 1"):
        Language(keep={"en": 65})


def test_the_identity_of_a_list_is_pinned():
    assert Language(keep=("de", "en")).model_dump(mode="json") == {
        "kind": "language",
        "keep": ["de", "en"],
        "min_score": 0.65,
        "labels": "fasttext",
    }


def test_both_columns_are_read_even_without_rules():
    assert Language(min_score=None).signals() == ["lang", "lang_score"]


def test_without_keep_and_min_score_nothing_is_rejected():
    table = pa.table({"lang": ["de", None], "lang_score": [0.1, None]})
    assert Language(min_score=None).reasons(table).to_pylist() == [None, None]


def test_identity_contains_the_model():
    identity = Language(keep=("de",)).identity()
    assert identity["keep"] == ["de"]
    assert identity["max_chars"] == 1000
    assert len(identity["model"]) == 64


def test_no_letters_come_before_any_other_rule():
    stage = Language(keep=("de",), labels="letters")
    assert [*stage.rules()] == ["no_letters", "other", "score"]
    assert [*Language(keep=("de",)).rules()] == ["other", "score"]
    rows = (None, None), ("de", 0.9), ("fr", 0.9), ("de", 0.1)
    expected = ["language.no_letters", None, "language.other", "language.score"]
    assert reasons(stage, *rows) == expected


LETTERS = {"language": {"labels": "letters", "min_score": None}}


def recipe(*stages):
    return Recipe(name="r", source={"path": "a.jsonl"}, stages=stages)


def test_labels_hold_for_every_stage_that_reads_the_language():
    texts = ["LES MEMBRES DU COMITÉ SE SONT RÉUNIS MARDI", "+49 30 1234567"]
    table = pa.table({"text": texts})
    ratios = [f"max_top_{n}gram_char_ratio" for n in (2, 3, 4)]
    limits = {**dict.fromkeys(ratios, 0.0), "languages": {"fr": dict.fromkeys(ratios, 1)}}
    readers = [{"where": "lang = 'fr'"}, {"gopher_repetition": limits}]
    assert etl.apply(table, readers[:1])["reason"].to_pylist() == ["where.condition"] * 2
    assert etl.apply(table, readers[1:])["reason"].null_count == 0
    for stages in ([*readers, LETTERS], [LETTERS, *readers]):
        rows = etl.apply(table, stages)
        assert rows["lang"].to_pylist() == ["fr", None]
        assert rows["reason"].is_null().to_pylist() == [True, False]
        assert rows["text"][0].as_py() == texts[0]
    assert rows["reason"][1].as_py() == "language.no_letters"


def test_two_stages_with_different_labels_are_refused():
    stages = [LETTERS, {"language": ["de"]}]
    with pytest.raises(RecipeError, match=r"different `labels` \(fasttext, letters\)"):
        recipe(*stages)
    with pytest.raises(RecipeError, match=r"different `labels` \(fasttext, letters\)"):
        etl.apply(pa.table({"text": ["a"]}), stages)
    recipe(LETTERS, {"language": {"keep": ["de"], "labels": "letters"}})
    with pytest.raises(RecipeError, match="labels"):
        recipe({"language": {"labels": "capitals"}})


def test_labels_are_part_of_the_fingerprint():
    plain = recipe({"language": {"min_score": None}}, {"where": "lang = 'en'"})
    other = recipe(LETTERS, {"where": "lang = 'en'"})
    assert plain.fingerprint("documents") != other.fingerprint("documents")
    assert Recipe.recorded(other.canonical(), where="record").stages == other.stages
