"""Signals as columns: their values, nulls, and how often they are computed."""

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.signals import quality_counts
from etl.stages import C4, Where, signals
from etl.stages.apply import apply
from etl.stages.compute_signals import GROUPS, WORDS_OF_LINES, compute_signals
from etl.stages.signals import DICTIONARY, SIGNALS, SPACED
from tests.helpers.raw_rows import raw

TEXTS = ["Das ist im Haus.", "L'homme est-il là ?", "- z.B. don't", "а т.е. им.", "", None]
LANGUAGES = ["de", "fr", "ru", "en", "es", None]
TEXT = "# Héllo, it's 3.14…\n- the end...\n\n"


def test_values_of_all_signals():
    names = [name for name in SIGNALS if not name.startswith(DICTIONARY)]
    languages = pa.array(["en", None, None])
    rows = pa.table({"text": [TEXT, None, ""], "lang": languages, "lang_score": [0.5, None, 0.0]})
    table = compute_signals(rows, [name for name in names if name not in rows.column_names])
    (row, null, empty) = table.to_pylist()
    assert row | {"text": TEXT} == {
        "text": TEXT,
        "num_chars": 34,
        "num_lines": 3,
        "num_segments": 11,  # # Héllo , it 's 3.14 … - the end ...
        "num_words": 6,
        "mean_word_length": (5 + 2 + 2 + 4 + 3 + 3) / 6,
        "symbol_word_ratio": 1 / 11,
        "ellipsis_word_ratio": 2 / 11,
        "bullet_line_ratio": 1 / 3,
        "ellipsis_line_ratio": 2 / 3,
        "alpha_word_ratio": 5 / 11,
        "newline_word_ratio": 3 / 11,
        "num_stop_words": 1,
        "duplicate_line_ratio": 0,
        "duplicate_line_char_ratio": 0,
        "duplicate_paragraph_ratio": 0,
        "duplicate_paragraph_char_ratio": 0,
        "terminal_line_ratio": 1 / 2,  # … does not end a sentence
        "quoted_line_ratio": 1 / 2,
        "short_line_ratio": 1,
        "duplicate_text_ratio": 0,
        "top_2gram_char_ratio": 7 / 34,  # "# Héllo": none occurs twice, so the first counts
        "top_3gram_char_ratio": 9 / 34,
        "top_4gram_char_ratio": 12 / 34,
        **{f"duplicate_{n}gram_char_ratio": 0 for n in range(5, 11)},
        "spaced_num_chars": 34,
        "spaced_num_lines": 3,
        "spaced_num_segments": 7,  # # Héllo, it's 3.14… - the end...
        "spaced_num_words": 7,
        "spaced_mean_word_length": (1 + 6 + 4 + 5 + 1 + 3 + 6) / 7,
        "spaced_symbol_word_ratio": 1 / 7,
        "spaced_ellipsis_word_ratio": 2 / 7,
        "spaced_bullet_line_ratio": 1 / 3,
        "spaced_ellipsis_line_ratio": 2 / 3,
        "spaced_alpha_word_ratio": 4 / 7,
        "spaced_newline_word_ratio": 3 / 7,
        "spaced_num_stop_words": 1,
        "spaced_top_2gram_char_ratio": 8 / 34,
        "spaced_top_3gram_char_ratio": 13 / 34,
        "spaced_top_4gram_char_ratio": 19 / 34,
        **{f"spaced_duplicate_{n}gram_char_ratio": 0 for n in range(5, 11)},
        "lang": row["lang"],
        "lang_score": row["lang_score"],
        "num_lang_stop_words": 1,
    }
    assert set(null.values()) == {None}
    assert {empty[name] for name in names if SIGNALS[name].group != "language"} == {0}


def test_only_the_named_signals_are_appended():
    table = compute_signals(pa.table({"row": [7], "text": ["a b"]}), ["num_words", "num_chars"])
    assert table.to_pylist() == [{"row": 7, "text": "a b", "num_words": 2, "num_chars": 3}]
    assert table.schema.field("num_words").type == pa.float64()


def test_an_existing_column_is_replaced():
    table = pa.table({"num_words": [99.0], "text": ["a b"]})
    assert compute_signals(table, ["num_words"]).to_pylist() == [{"num_words": 2, "text": "a b"}]


def test_an_unknown_signal_is_an_error():
    with pytest.raises(KeyError, match="num_wrds"):
        compute_signals(pa.table({"text": ["a"]}), ["num_wrds"])


def test_every_signal_is_an_expression_of_its_name():
    columns = {name: value for name, value in vars(signals).items() if isinstance(value, pl.Expr)}
    assert {name: column.meta.output_name() for name, column in columns.items()} == {
        name: name for name in SIGNALS if not name.startswith((SPACED, DICTIONARY))
    }
    spaced = {name for name, signal in SIGNALS.items() if signal.group == "spaced"}
    words = {name for name, signal in SIGNALS.items() if signal.group == "words"}
    assert spaced == {SPACED + name for name in words}
    dictionary = {name for name, signal in SIGNALS.items() if signal.group == "dictionary"}
    assert dictionary == {DICTIONARY + name for name in words}
    assert {signal.group for signal in SIGNALS.values()} == set(GROUPS)


def test_a_group_is_computed_once(monkeypatch):
    calls = []
    count = quality_counts.count_words

    def counted(texts, **how):
        calls.append(how)
        return count(texts, **how)

    monkeypatch.setattr(quality_counts, "count_words", counted)
    compute_signals(pa.table({"text": ["a"]}), ["num_words", "num_lines", "alpha_word_ratio"])
    assert calls == [{"rules": "unknown", "words": True, "marks": True, "repeated": False}]
    compute_signals(
        pa.table({"text": ["a"]}), ["num_words", "spaced_num_words", "top_2gram_char_ratio"]
    )
    assert [how.get("by_space", False) for how in calls[1:]] == [False, True]
    assert [how["marks"] for how in calls[1:]] == [False, False]
    assert calls[1]["repeated"]
    compute_signals(pa.table({"text": ["a"]}), ["newline_word_ratio"])
    assert calls[3] == {"rules": "unknown", "words": False, "marks": False, "repeated": False}


def test_words_are_those_of_the_language_of_each_row():
    text = "Das ist im Haus, don't."
    table = pa.table({"text": [text] * 5, "lang": ["de", None, "en", "es", "de"]})
    counts = compute_signals(table, ["num_segments", "num_words"])
    assert counts["num_segments"].to_pylist() == [7, 9, 9, 7, 7]  # im, don't
    assert counts["num_words"].to_pylist() == [5, 7, 7, 5, 5]
    unknown = compute_signals(table.select(["text"]), ["num_words"])
    assert unknown["num_words"].to_pylist() == [7] * 5


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(LANGUAGES)), max_size=6))
def test_rows_do_not_depend_on_the_languages_of_others(several):
    table = pa.table(
        {
            "text": pa.array([text for text, _ in several], pa.string()),
            "lang": pa.array([lang for _, lang in several], pa.string()),
        }
    )
    names = ["num_words", "mean_word_length", "top_2gram_char_ratio", "bullet_line_ratio"]
    together = compute_signals(table, names).to_pylist()
    alone = [compute_signals(table.slice(k, 1), names).to_pylist()[0] for k in range(len(several))]
    assert together == alone


def test_words_are_those_of_the_language_wherever_a_filter_of_the_run_reads_it():
    text = "Das ist im Haus von Karl-Heinz. " * 3
    by_language = [6 * 3.0]
    plain, read = Where(keep="num_words > 1"), Where(keep="lang = 'de'", name="german")
    for stages in ([plain, read], [read, plain]):
        assert apply(raw([text]), stages)["num_words"].to_pylist() == by_language
    assert apply(raw([text]), [plain])["num_words"].to_pylist() == [8 * 3.0]


def test_words_of_lines_give_those_of_cleaned_text_in_all_languages():
    text = "Das z.B. don't c'est l'eau.\n\nno\nOne (e.g. this) [1] is l'un, can't z.B. be."
    langs = ["de", "fr", "en", None, "es", "fr"]
    table = pa.table({"text": [text] * 5 + [""], "lang": langs})
    names = ["num_segments", "num_words", "mean_word_length", "num_stop_words"]
    counted = compute_signals(table, [*names, WORDS_OF_LINES])
    cleaned = C4().apply(counted).drop_columns(names)
    known = compute_signals(cleaned, names).select(names)
    again = compute_signals(cleaned.select(["text", "lang"]), names).select(names)
    assert known.equals(again)
    assert len({*known["num_segments"].to_pylist()}) == 5
    assert C4().apply(table).column_names == [*table.column_names, *C4().columns()]


def test_words_after_c4_are_those_of_a_language_that_is_identified_there():
    text = "Das ist im Haus von Karl-Heinz, z.B. im Garten. " * 3
    rest = Where(keep="lang = 'de' AND num_words > 1", name="german")
    clean = C4(min_sentences=None)
    counted = apply(raw([text]), [Where(keep="num_words > 1"), clean, rest]).to_pylist()[0]
    alone = apply(raw([text]), [clean, rest]).to_pylist()[0]
    assert counted["c4_num_words"] == alone["num_words"] != counted["num_words"]


def test_words_are_counted_by_line_before_each_c4():
    filters = [Where(keep="num_words > 1", name=f"run {k}") for k in range(3)]
    clean = C4(min_sentences=None)
    stages = [filters[0], clean, filters[1], clean.model_copy(), filters[2]]
    (row,) = apply(raw(["One [1] is here.\nopen\nTwo are here [2]."]), stages).to_pylist()
    words = [value for name, value in row.items() if name.endswith("num_words")]
    assert (row["reason"], words) == (None, [9, 6, 6])
