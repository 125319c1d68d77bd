"""Signals as columns: null for null, computed once, in the units that their names say."""

import polars as pl
import pyarrow as pa
import pytest

from etl.kernels import quality
from etl.stages import signals
from etl.stages.signals import GROUPS, SIGNALS, compute

TEXT = "# Héllo, it's 3.14…\n- the end...\n\n"


def test_values():
    table = compute(pa.table({"text": [TEXT, None, ""]}), list(SIGNALS))
    (row, null, empty) = table.to_pylist()
    assert row | {"text": TEXT} == {
        "text": TEXT,
        "num_chars": 34,
        "num_lines": 3,
        "num_segments": 12,  # # Héllo , it's 3.14 … - the end . . .
        "num_words": 5,
        "mean_word_length": (5 + 4 + 4 + 3 + 3) / 5,
        "symbol_word_ratio": 1 / 12,
        "ellipsis_word_ratio": 2 / 12,
        "bullet_line_ratio": 1 / 3,
        "ellipsis_line_ratio": 2 / 3,
        "alpha_word_ratio": 4 / 12,
        "num_stop_words": 1,
        "duplicate_line_ratio": 0,
        "duplicate_line_char_ratio": 0,
        "duplicate_paragraph_ratio": 0,
        "duplicate_paragraph_char_ratio": 0,
        "terminal_line_ratio": 1,
        "short_line_ratio": 1,
        "top_2gram_char_ratio": 2 * 3 / 34,  # ". ."
        "top_3gram_char_ratio": 9 / 34,  # "# Héllo ,": none is there twice, the first counts
        "top_4gram_char_ratio": 14 / 34,
        **{f"duplicate_{n}gram_char_ratio": 0 for n in range(5, 11)},
        "lang": row["lang"],
        "lang_score": row["lang_score"],
    }
    assert set(null.values()) == {None}
    assert {empty[name] for name in SIGNALS if SIGNALS[name].group != "language"} == {0}


def test_only_what_is_asked_for_is_appended():
    table = compute(pa.table({"row": [7], "text": ["a b"]}), ["num_words", "num_chars"])
    assert table.to_pylist() == [{"row": 7, "text": "a b", "num_words": 2, "num_chars": 3}]
    assert table.schema.field("num_words").type == pa.float64()


def test_a_column_that_is_there_is_computed_anew():
    table = pa.table({"num_words": [99.0], "text": ["a b"]})
    assert compute(table, ["num_words"]).to_pylist() == [{"num_words": 2, "text": "a b"}]


def test_an_unknown_signal():
    with pytest.raises(KeyError, match="num_wrds"):
        compute(pa.table({"text": ["a"]}), ["num_wrds"])


def test_every_signal_is_a_column_of_its_name():
    columns = {name: value for name, value in vars(signals).items() if isinstance(value, pl.Expr)}
    assert list(columns) == list(SIGNALS)
    assert {name: column.meta.output_name() for name, column in columns.items()} == {
        name: name for name in SIGNALS
    }
    assert {signal.group for signal in SIGNALS.values()} == set(GROUPS)


def test_a_group_is_computed_once(monkeypatch):
    calls = []
    count = quality.count
    monkeypatch.setattr(quality, "count", lambda texts: calls.append(1) or count(texts))
    compute(pa.table({"text": ["a"]}), ["num_words", "num_lines", "alpha_word_ratio"])
    assert calls == [1]
