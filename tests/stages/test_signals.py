"""Signals as columns: their values, nulls, and how often they are computed."""

import polars as pl
import pyarrow as pa
import pytest

from etl.kernels.signals import word_counts
from etl.stages import signals
from etl.stages.compute_signals import GROUPS, compute_signals
from etl.stages.signals import SIGNALS, SPACED

TEXT = "# Héllo, it's 3.14…\n- the end...\n\n"


def test_values_of_all_signals():
    table = compute_signals(pa.table({"text": [TEXT, None, ""]}), list(SIGNALS))
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
    assert {empty[name] for name in SIGNALS if SIGNALS[name].group != "language"} == {0}


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
        name: name for name in SIGNALS if not name.startswith(SPACED)
    }
    spaced = {name for name, signal in SIGNALS.items() if signal.group == "spaced"}
    words = {name for name, signal in SIGNALS.items() if signal.group == "words"}
    assert spaced == {SPACED + name for name in words}
    assert {signal.group for signal in SIGNALS.values()} == set(GROUPS)


def test_a_group_is_computed_once(monkeypatch):
    calls = []
    count = word_counts.count_words

    def counted(texts, **how):
        calls.append(how)
        return count(texts, **how)

    monkeypatch.setattr(word_counts, "count_words", counted)
    compute_signals(pa.table({"text": ["a"]}), ["num_words", "num_lines", "alpha_word_ratio"])
    assert calls == [{"by_space": False, "words": True, "marks": True, "repeated": False}]
    compute_signals(
        pa.table({"text": ["a"]}), ["num_words", "spaced_num_words", "top_2gram_char_ratio"]
    )
    assert [(how["by_space"], how["marks"]) for how in calls[1:]] == [(False, False), (True, False)]
    assert calls[1]["repeated"]
    compute_signals(pa.table({"text": ["a"]}), ["newline_word_ratio"])
    assert calls[3] == {"by_space": False, "words": False, "marks": False, "repeated": False}
