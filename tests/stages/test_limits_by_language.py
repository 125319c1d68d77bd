"""Limits per language: their effect, their checks, and the good pages that they keep."""

import itertools
import json
import math
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.kernels.signals.stop_word_lists import STOP_WORDS
from etl.recipe.recipe import Recipe
from etl.stages import C4, FinewebQuality, GopherQuality, GopherRepetition, Where
from etl.stages.apply import apply
from etl.stages.base import Rejected
from etl.stages.compute_signals import compute_signals
from etl.stages.fineweb2_limits import limits_of_table
from etl.text import language_id, segmenters
from tests.helpers.raw_rows import raw

FILTERS = (GopherRepetition, FinewebQuality, GopherQuality)
PAGES = [
    json.loads(line)
    for name in ("udhr", "handbook")
    for line in (Path(__file__).parent / "pages" / f"{name}.jsonl").read_text("utf-8").splitlines()
]


def with_table(words="segments"):
    """Return the filters with the settings of the recipe ``multilingual``, but for its words."""
    off = dict.fromkeys(
        (
            "max_duplicate_paragraph_ratio",
            "max_duplicate_paragraph_char_ratio",
            "max_duplicate_line_char_ratio",
        )
    )
    return (
        GopherRepetition(languages="fineweb2", words=words, **off),
        FinewebQuality(
            languages="fineweb2",
            words=words,
            max_short_line_ratio=None,
            max_duplicate_text_ratio=0.1,
        ),
        GopherQuality(languages="fineweb2", words=words),
    )


def rows(stage, **columns) -> pa.Table:
    """Return rows that no rule rejects except for these columns: ``lang`` and lists of signals."""
    num = len(columns["lang"])
    good = dict.fromkeys(stage.signals(), 0.0) | {"mean_word_length": 4.0}
    good |= dict.fromkeys(
        ("num_words", "num_lang_stop_words", "terminal_line_ratio", "alpha_word_ratio"), 1e4
    )
    all_columns = {name: pa.array([value] * num) for name, value in good.items()} | columns
    return pa.table(all_columns | {"lang": pa.array(columns["lang"], pa.string())})


# --- good pages


def verdicts(pages, stages) -> list[str | None]:
    judged = apply(raw([page["text"] for page in pages]), stages)
    assert judged["lang"].to_pylist() == [page["lang"] for page in pages]
    return judged["reason"].to_pylist()


def test_good_pages_of_every_language_are_kept():
    languages = [page["lang"] for page in PAGES]
    assert {*languages} == {*STOP_WORDS}
    assert all(languages.count(language) >= 3 for language in ("ar", "de", "ja", "th", "zh"))
    assert all(250 <= len(page["text"]) <= 1500 for page in PAGES)
    assert verdicts(PAGES, with_table()) == [None] * len(PAGES)


def test_the_rules_for_english_reject_good_pages_of_other_languages():
    reasons = verdicts(PAGES, [GopherQuality(languages={}), GopherQuality()])
    kept = {page["lang"] for page, reason in zip(PAGES, reasons, strict=True) if reason is None}
    assert kept == {"en"}
    assert {page["lang"] for page, reason in zip(PAGES, reasons, strict=True) if reason and
            reason.endswith("short_words")} == {"ja", "km", "ko", "lo", "my", "th", "zh"}  # fmt: skip
    without_stop_words = verdicts(
        PAGES, [Where(keep="lang <> ''"), GopherQuality(min_stop_words=None)]
    )
    assert without_stop_words.count(None) < len(PAGES) - 20


def test_text_that_is_not_prose_of_its_language_is_rejected():
    """An English page under the limits of Thai, and a list of names without a stop word."""
    english = next(page["text"] for page in PAGES if page["lang"] == "en")
    limits = {**limits_of_table("fineweb2", "gopher_quality")["th"]}
    (reason,) = verdicts(
        [{"lang": "en", "text": english}], [GopherQuality(languages={"en": limits})]
    )
    assert reason == "gopher_quality.short"
    names = "Berlin Hamburg München Köln Frankfurt Stuttgart Düsseldorf Leipzig Dortmund Essen " * 8
    (reason,) = verdicts([{"lang": "de", "text": names}], with_table()[2:])
    assert reason == "gopher_quality.few_stop_words"


# --- the limits

LIMITS = [
    pytest.param(kind, field, id=f"{kind.__name__}-{field}")
    for kind in FILTERS
    for field in kind.limit_fields()
    if any(field in limits for limits in limits_of_table("fineweb2", kind().kind).values())
]


@pytest.mark.parametrize(("kind", "field"), LIMITS)
def test_a_limit_applies_to_its_language_only(kind, field):
    stage = kind(languages="fineweb2")
    own, default = stage.by_language(), getattr(stage, field)
    limits = {code: own.get(code, {}).get(field, default) for code in language_id.LANGUAGES}
    assert len({*limits.values()}) > 1
    without_limit = [code for code, limit in limits.items() if limit is None]
    with_limit = [code for code in limits if code not in without_limit]
    signal = "num_words" if field == "min_words" else field[4:]
    side = -math.inf if field.startswith("min_") else math.inf
    allowed = [float(limits[code]) for code in with_limit]
    beyond = [math.nextafter(limit, side) for limit in allowed]
    assert {*stage.reasons(rows(stage, lang=with_limit, **{signal: allowed})).to_pylist()} == {None}
    reasons = stage.reasons(rows(stage, lang=with_limit, **{signal: beyond})).to_pylist()
    assert len({*reasons}) == 1
    assert reasons[0] is not None
    anything = rows(
        stage, lang=without_limit, **{signal: pa.array([0.99] * len(without_limit), pa.float64())}
    )
    assert {*stage.reasons(anything).to_pylist()} <= {None}


def test_limits_that_a_language_does_not_set_are_those_of_the_filter():
    stage = GopherQuality(
        min_words=10, languages={"de": {"max_words": 20}, "fr": {"min_words": None}}
    )
    cases = {("de", 9): "short", ("de", 10): None, ("de", 20): None, ("de", 21): "long",
             ("fr", 0): None, ("fr", 21): None, ("en", 9): "short", ("en", 21): None,
             (None, 9): "short", (None, 21): None}  # fmt: skip
    languages, words = zip(*cases, strict=True)
    reasons = stage.reasons(rows(stage, lang=languages, num_words=words)).to_pylist()
    assert reasons == [name and f"gopher_quality.{name}" for name in cases.values()]


low, high = st.none() | st.integers(0, 2), st.none() | st.integers(2, 4)
settings = st.fixed_dictionaries(
    {}, optional={"min_words": low, "max_words": high, "min_stop_words": low}
)


@given(
    settings,
    st.dictionaries(st.sampled_from(["de", "ja", "eo"]), settings),
    st.sampled_from(["de", "ja", "eo", "en", None]),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_limits_of_a_language_act_like_a_separate_filter(all_, languages, language, counts):
    columns = {"num_words": [counts[0]], "num_lang_stop_words": [counts[1]], "lang": [language]}
    all_ = {"min_words": 0, **all_}
    stage = GopherQuality(**all_, languages=languages)
    alone = GopherQuality(**(all_ | languages.get(language, {})), languages={})
    assert stage.reasons(rows(stage, **columns)) == alone.reasons(rows(alone, **columns))


def test_a_language_without_stop_words_has_no_stop_word_rule():
    stage = GopherQuality(languages={})
    cases = [("eo", 0), (None, 0), ("de", 1), ("de", 2), ("en", 1)]
    languages, words = zip(*cases, strict=True)
    reasons = stage.reasons(rows(stage, lang=languages, num_lang_stop_words=words)).to_pylist()
    few = "gopher_quality.few_stop_words"
    assert reasons == [None, None, few, None, few]


def test_without_languages_the_language_is_not_read():
    for kind in FILTERS:
        assert not {"lang", "num_lang_stop_words"} & {*kind().signals()}
        assert "model" not in kind().identity()
        assert "lang" in kind(languages="fineweb2").signals()


def test_the_table_has_valid_limits_and_languages():
    limits_of = {kind().kind: limits_of_table("fineweb2", kind().kind) for kind in FILTERS}
    assert all(len(limits) == 32 for limits in limits_of.values())
    for kind in FILTERS:
        assert kind(languages=limits_of[kind().kind]).by_language() == limits_of[kind().kind]
    assert {*limits_of["gopher_quality"]} | {"en"} == {*STOP_WORDS} <= {*language_id.LANGUAGES}


def test_identity_contains_the_limits_and_the_stop_words():
    named, written = (
        GopherQuality(languages="fineweb2"),
        limits_of_table("fineweb2", "gopher_quality"),
    )
    assert named.identity() == GopherQuality(languages=written).identity()
    assert named.identity() != GopherQuality(languages=written | {"de": {}}).identity()
    assert {"model", "stop_words"} <= {*named.identity()}
    assert "stop_words" in Where(keep="num_lang_stop_words > 1").identity()
    assert "stop_words" not in Where(keep="lang = 'de'").identity()
    assert json.loads(json.dumps(named.identity())) == named.identity()


# --- mistakes


@pytest.mark.parametrize(("settings", "message", "hint"), [
    ("{de: {max_mean_word_lenght: 15}}", "'stages.gopher_quality.languages.de.max_mean_word_lenght'",
     "did you mean 'max_mean_word_length'? known names: min_words, "),
    ("{de: {min_words: 1.5}}", "gopher_quality.languages.de.min_words: input should be a valid integer",
     None),
    ("{de: {min_words: 5, languages: fineweb2}}", "'stages.gopher_quality.languages.de.languages'", ""),
    ("{de: {kind: length}}", "stages.gopher_quality.languages.de.kind", None),
    ("{deu: {}}", "unknown language 'deu'; similar codes: eu, de", None),
    ("{no: {}}", 'False is not a language code; write "no" in quotes', None),
    ("{de: 15}", "the limits of de must be a mapping, not 15", None),
    ("fineweb", "'fineweb' is neither a mapping from languages to limits nor", None),
    ("[de]", "available tables: fineweb2", None),
])  # fmt: skip
def test_mistakes_are_reported_with_their_line(tmp_path, settings, message, hint):
    file = tmp_path / "recipe.yaml"
    file.write_text(
        f"name: a\nsource:\n  path: a.parquet\nstages:\n  - gopher_quality:\n      languages: {settings}\n"
    )
    with pytest.raises(RecipeError) as error:
        Recipe.load(file)
    assert message in str(error.value)
    assert f"{file}:6" in str(error.value)
    if hint:
        assert error.value.hint.startswith(hint)


def test_languages_can_be_set_on_the_command_line():
    setting = "gopher_quality.languages={de: {min_words: 7}}"
    recipe = Recipe.load(
        "multilingual", settings=["source.path=a", setting, "tokenize.tokenizer=b"]
    )
    (stage,) = (stage for stage in recipe.stages if isinstance(stage, GopherQuality))
    assert stage.by_language() == {"de": {"min_words": 7}}
    assert recipe.to_yaml().count("fineweb2") == 2
    with pytest.raises(RecipeError):
        GopherQuality(languages="none")


# --- the signal num_lang_stop_words


def test_the_language_is_identified_before_its_stop_words_are_counted():
    pages = pa.table(
        {"text": ["Die Würde des Menschen ist unantastbar, und das ist gut so.", None]}
    )
    result = compute_signals(pages, ["num_lang_stop_words"])
    assert result.column_names == ["text", "num_lang_stop_words"]
    assert result["num_lang_stop_words"].to_pylist() == [3, None]  # und, das, des; not Die
    as_french = pages.append_column("lang", pa.array(["fr", "fr"]))
    result = compute_signals(as_french, ["num_lang_stop_words"])
    assert result["num_lang_stop_words"].to_pylist() == [1, None]  # des


def test_stop_words_are_counted_if_a_filter_reads_them():
    texts = ["Die Würde des Menschen ist unantastbar, und das ist gut.", "吾輩は猫である。"]
    first, later = Where(keep="num_chars < 10", name="first"), GopherQuality(languages={})
    judged = apply(raw(texts), [first, later])
    assert judged["lang"].to_pylist() == ["de", "ja"]
    assert judged["num_lang_stop_words"].to_pylist() == [3, 2]  # des, und, das; は, で
    of_kept = apply(raw(texts), [first, later], rejected=Rejected(signals=False))
    assert of_kept["num_lang_stop_words"].to_pylist() == [None, 2]
    judged = apply(raw(texts), [Where(keep="num_lang_stop_words > 90")])
    assert judged["reason"].to_pylist() == ["where.condition"] * 2


def test_stop_words_of_a_rewritten_text_are_counted_again():
    text = "Und das ist der Anfang von etwas.\nund die der\n" + "Das ist ein ganzer Satz.\n" * 5
    judged = apply(raw([text]), [GopherQuality(languages={}), C4(), GopherQuality(languages={})])
    (row,) = judged.to_pylist()
    assert row["num_lang_stop_words"] == 5  # das, der, von, und, die
    assert row["c4_num_lang_stop_words"] == 3


# --- the recipe multilingual


def test_the_shipped_recipe_keeps_good_pages():
    recipe = Recipe.load("multilingual", settings=["source.path=a", "tokenize.tokenizer=b"])
    extract, language, *filters, unicode, pii = recipe.documents_stages
    assert [extract.kind, unicode.kind, pii.kind] == ["extract", "unicode", "pii"]
    assert tuple(filters) == with_table("dictionary")
    assert {*language.keep} == {*STOP_WORDS}
    for package in itertools.chain(*segmenters.PACKAGES.values()):
        pytest.importorskip(package, reason="needs pip install 'tokenlake[segmenters]'")
    assert verdicts(PAGES, recipe.documents_stages) == [None] * len(PAGES)


# --- real documents


def test_prose_is_kept_that_the_rules_for_english_reject(data):
    """Literature, glossaries and translated web pages; pages full of code are mostly rejected by both."""
    documents = pq.read_table(
        data / "docs" / "docs-00000.parquet", columns=["text", "lang", "source"]
    )
    frame = pl.DataFrame(documents).filter(
        pl.col("text").str.len_chars() >= 300,
        pl.col("lang").is_in(["de", "ja", "ru", "zh"]),
        pl.col("source").str.contains("^(aozora|glossary|mdn-archived)/"),
    )
    english, own = GopherQuality(), GopherQuality(languages="fineweb2")
    names = [name for name in dict.fromkeys([*english.signals(), *own.signals()]) if name != "lang"]
    signals = compute_signals(frame.to_arrow(), names)
    share = (
        frame.select("lang", of=pl.col("source").str.split("/").list.first())
        .with_columns(
            before=pl.Series(english.reasons(signals)).is_null(),
            after=pl.Series(own.reasons(signals)).is_null(),
        )
        .group_by("lang", "of")
        .agg(pl.len(), pl.mean("before", "after"))
        .rows_by_key(("lang", "of"), named=True, unique=True)
    )
    min_share = {
        ("ja", "aozora"): 0.98,
        ("zh", "glossary"): 0.9,
        ("ja", "glossary"): 0.9,
        ("ru", "glossary"): 0.85,
        ("de", "glossary"): 0.8,
        ("ja", "mdn-archived"): 0.7,
        ("zh", "mdn-archived"): 0.6,
    }
    for key, kept in min_share.items():
        assert share[key]["after"] >= kept, key
        assert share[key]["before"] < share[key]["after"] / 2, key
