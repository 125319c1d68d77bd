"""Verdicts replayed from stored columns equal the verdicts of a run with the other settings."""

from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.audit.tune.rejudge import columns_of, rejecting_stage, rejudge, stored_filters, with_stages
from etl.errors import TableError
from etl.stages import (
    Filter,
    GopherQuality,
    GopherRepetition,
    Length,
    Python,
    Sample,
    Stage,
    Transform,
    Where,
)
from etl.stages.apply import apply
from etl.stages.base import Rejected
from etl.stages.document_columns import split_at_transforms
from tests.helpers.raw_rows import raw

STAGES = str(Path(__file__).parent.parent / "stages")
TEXTS = st.lists(
    st.none()
    | st.lists(
        st.sampled_from(
            ["the ", "and ", "of that ", "word ", "# ", "…\n", "\n", "- ", "東京", "3 "]
        ),
        max_size=30,
    ).map("".join),
    min_size=1,
    max_size=8,
)


class Lines(Transform):
    """A test transform that removes short lines and rejects documents with few other lines."""

    kind: Literal["lines"] = "lines"
    min_chars: int = 3
    min_lines: int = 1

    def columns(self):
        return {"lines_left": "lines"}

    def rules(self):
        return {"few": pl.col("lines_left") < self.min_lines}

    def apply(self, table):
        kept = [
            [line for line in text.splitlines() if len(line) >= self.min_chars]
            for text in table["text"].to_pylist()
        ]
        texts = pa.array(["\n".join(lines) for lines in kept], pa.string())
        table = table.set_column(table.column_names.index("text"), "text", texts)
        counts = pa.array([len(lines) for lines in kept], pa.float64())
        return table.set_column(table.column_names.index("lines_left"), "lines_left", counts)


class Late(Lines):
    """The same for documents still kept, which it also rejects without a rule."""

    kind: Literal["late"] = "late"  # type: ignore[assignment]
    costly = True  # it rejects documents without a rule

    def columns(self):
        return {"late_left": "lines"}

    def rules(self):
        return {"few": pl.col("late_left") < self.min_lines}

    def apply(self, table):
        names = table.column_names
        plain = super().apply(table.rename_columns([n.replace("late_", "lines_") for n in names]))
        has_digit = pc.match_substring(table["text"], "3")
        reason = pc.if_else(has_digit, "late.number", None).cast("string")
        reason = pc.coalesce(table["reason"], reason)
        return plain.rename_columns(names).set_column(names.index("reason"), "reason", reason)


class Letters(Filter):
    """A test filter with its own signal, and with reasons that have details."""

    kind: Literal["letters"] = "letters"
    letter: str = "e"
    max_letters: int | None = 4

    def columns(self):
        return {"letters_found": "letters"}

    def signals(self):
        return ["text", "letters_found"]

    def measure(self, table):
        return pa.table({"letters_found": pc.count_substring(table["text"], self.letter)})

    def rules(self):
        return {"many": pl.col("letters_found") > pl.lit(self.max_letters)}

    def reasons(self, table):
        detailed = pc.binary_join_element_wise("letters.e in", table["text"], " ").cast(pa.string())
        is_kept = pc.is_null(super().reasons(table))
        return pc.if_else(is_kept, pa.scalar(None, pa.string()), detailed)


def stored(texts: list[str | None], stages: list[Stage], **rejected: bool) -> pl.DataFrame:
    """Return the table that a run writes, without text."""
    return pl.DataFrame(apply(raw(texts), stages, rejected=Rejected(**rejected)).drop(["text"]))


def again(
    frame: pl.DataFrame, before: list[Stage], after: list[Stage], *, has_all_signals: bool = True
) -> pl.DataFrame:
    made_by = stored_filters(before, has_all_signals=has_all_signals)
    changed = with_stages(made_by, after)
    frame = frame.select(columns_of(made_by, changed))
    return rejudge(frame, rejecting_stage(frame, made_by), changed)


def is_same(then: str | None, reason: str | None) -> bool:
    """Whether it is the reason, or the part of it that is known without the text."""
    return then == reason or (then == "letters.many" and str(reason).startswith("letters.e in"))


def limits(low: int = 0, high: int = 6) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(low, high)


@st.composite
def recipes(draw: st.DrawFn) -> tuple[list[Stage], list[Stage]]:
    """Draw a list of stages twice, with settings that differ only in thresholds."""

    def both(model, **strategies):
        return [model(**{n: draw(s) for n, s in strategies.items()}) for _ in range(2)]

    ratio = st.sampled_from([None, 0.0, 0.1, 0.3, 0.9])
    off = dict.fromkeys(("min_mean_word_length", "min_alpha_word_ratio"), st.none())
    pairs = [
        both(GopherQuality, min_words=limits(), min_stop_words=limits(0, 3),
             max_symbol_word_ratio=ratio, **off),
        both(GopherRepetition, max_duplicate_line_ratio=ratio, max_top_2gram_char_ratio=ratio,
             max_duplicate_5gram_char_ratio=ratio),
        both(Sample, fraction=st.sampled_from([0.0, 0.3, 0.6, 1.0])),
        both(Length, min_chars=limits(0, 40), max_words=limits(1, 12)),
        both(Lines, min_lines=st.integers(0, 3)),
        both(Letters, max_letters=limits(0, 3)),
        both(Where, keep=st.sampled_from(["num_words > 2", "num_words < 3 OR row = 0", "num_words < 9"])),
        both(Where, name=st.just("late"), keep=st.sampled_from(["num_words > 1", "num_words > 3"])),
    ]  # fmt: skip
    chosen = draw(st.permutations(pairs))[: draw(st.integers(1, len(pairs)))]
    return [before for before, _ in chosen], [after for _, after in chosen]


@settings(max_examples=50)
@given(TEXTS, recipes())
def test_verdicts_equal_those_of_a_run(texts, recipe):
    before, after = recipe
    outcome = again(stored(texts, before), before, after)
    assert outcome["unknown"].to_list() == [None] * len(texts)
    for then, reason in zip(outcome["then"], stored(texts, after)["reason"], strict=True):
        assert is_same(then, reason)


OWN: list[Stage] = [
    Python(call="example_filters:has_digit", folder=STAGES),
    Python(call="example_filters:number", folder=STAGES, per="document", min_score=9),
    Where(keep="text NOT LIKE '%word%'", name="text"),
    Late(),
]


@settings(max_examples=60)
@given(TEXTS, recipes(), st.lists(st.tuples(st.sampled_from(OWN), st.integers(0, 7)),
       min_size=1, max_size=2, unique_by=lambda pair: pair[0].kind), st.booleans())  # fmt: skip
def test_unknown_verdicts_are_reported_and_all_others_are_right(texts, recipe, own, all_signals):
    before, after = recipe
    for stage, place in own:
        before, after = (
            [*before[:place], stage, *before[place:]],
            [*after[:place], stage, *after[place:]],
        )
    frame = stored(texts, before, signals=all_signals)
    outcome = again(frame, before, after, has_all_signals=all_signals)
    expected = stored(texts, after)["reason"].to_list()
    for then, unknown, reason in zip(outcome["then"], outcome["unknown"], expected, strict=True):
        if unknown is None:
            assert is_same(then, reason)
        else:
            assert then is None


def test_documents_rejected_by_a_transform_without_a_rule_stay_rejected():
    before, after = [Length(min_chars=4), Late(min_chars=0)], [Length(), Late(min_chars=0)]
    outcome = again(stored(["number 3", "word", "3"], before), before, after)
    assert outcome.rows() == [("late.number", None), (None, None), (None, 2)]


def test_documents_that_would_reach_a_function_are_unknown():
    polite = Python(call="example_filters:polite", folder=STAGES, per="document")
    before = [Length(min_words=2), polite]
    after = [Length(min_words=1), polite]
    texts = ["hello you", "hey you", "HELLO YOU", "hey", ""]
    outcome = again(stored(texts, before), before, after)
    assert outcome.rows() == [
        (None, None),
        ("python.polite", None),
        ("python.loud", None),
        (None, 2),
        ("length.few_words", None),
    ]


def test_a_stored_score_can_be_judged_again():
    score = Python(call="example_filters:number", folder=STAGES, per="document", min_score=3)
    higher = score.model_copy(update={"min_score": 4.0})
    before, after = [Length(max_chars=5), score], [Length(max_chars=6), higher]
    outcome = again(stored(["ab", "abc", "abcd", "abcdef"], before), before, after)
    assert outcome.rows() == [
        ("python.number_low", None),
        ("python.number_low", None),
        (None, None),
        (None, 2),
    ]


def test_a_score_of_all_documents_can_be_judged_again_for_all():
    number = {"call": "example_filters:number", "folder": STAGES, "per": "document", "sees": "all"}
    before = [Length(max_chars=3), Python(**number, min_score=2)]
    after = [Length(max_chars=6), Python(**number, max_score=5)]
    outcome = again(stored(["a", "abc", "abcd", "abcdef"], before), before, after)
    assert outcome["then"].to_list() == [None, None, None, "python.number_high"]
    assert outcome["unknown"].to_list() == [None] * 4


def test_unreadable_documents_stay_rejected():
    before, after = [Length(min_chars=2)], [Length()]
    outcome = again(stored([None, "a"], before), before, after)
    assert outcome["then"].to_list() == ["source.null_text", None]


def test_signals_at_a_position_are_those_of_its_text():
    stages = [Where(keep="num_words > 0"), Lines(), Length()]
    first, _, last = stored_filters(stages, has_all_signals=True)
    assert first.columns["num_words"] == "num_words"
    assert last.columns["num_words"] == "lines_num_words"
    assert first.missing() == last.missing() == []
    other = with_stages([first], [Where(keep="num_chars > 3 AND lang = 'en'")])[0]
    assert other.missing() == ["lang", "num_chars"]
    assert [step.position for run in split_at_transforms(stages) for step in run] == [1, 2, 3]


def test_signals_that_do_not_give_the_stored_reasons_are_refused():
    stages = [Length(min_chars=2)]
    frame = stored(["a", "bb"], stages).with_columns(num_chars=pl.lit(1.0))
    with pytest.raises(TableError, match=r"1 document .* \(length.few_chars instead of kept\)"):
        again(frame, stages, stages)
    frame = stored(["a", "bb"], stages).with_columns(num_chars=pl.lit(5.0))
    with pytest.raises(TableError, match=r"\(kept instead of length.few_chars\)"):
        again(frame, stages, stages)
