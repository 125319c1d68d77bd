"""Apply stages to documents: no row is lost, the first rule gives the reason, no needless work is done."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl import schemas
from etl.errors import StageError
from etl.kernels.signals import quality_counts
from etl.stages import (
    C4,
    DedupExact,
    Filter,
    FinewebQuality,
    GopherQuality,
    Language,
    Python,
    Transform,
    Where,
)
from etl.stages.apply import apply, apply_and_time
from etl.stages.base import Rejected, Rules
from etl.stages.compute_signals import compute_signals
from etl.stages.dedup_exact import content_hash
from etl.stages.document_columns import signal_names
from etl.stages.signals import SIGNALS
from tests.helpers.raw_rows import raw

HERE = str(Path(__file__).parent)
GOPHER = GopherQuality(min_words=2, min_mean_word_length=None, min_stop_words=1)
STAGES = (Where(keep="num_chars < 60"), GOPHER, Where(keep="num_lines < 4", name="lines"))

texts = st.none() | st.lists(
    st.sampled_from(["the ", "and ", "word ", "# ", "…", "\n", "- ", "東京", "12 "]), max_size=25
).map("".join)
lines = st.sampled_from(
    ["The end of it.", "A line [1] with that.", "", "open", "  ", "be {", "Wort-Teil, z.B. so."]
)


class Upper(Transform):
    """A transform for tests that converts text to upper case and rejects the text "stop"."""

    kind: Literal["upper"] = "upper"
    mistake: Literal["drop", "renumber", "fail"] | None = None

    def apply(self, table: pa.Table) -> pa.Table:
        if self.mistake == "fail":
            raise ZeroDivisionError("by zero")
        if self.mistake == "drop":
            return table.slice(1)
        if self.mistake == "renumber":
            return table.set_column(2, schemas.RAW.field("row"), pc.add(table["row"], 1))
        stop = pc.equal(table["text"], "stop")
        reason = pc.if_else(stop, "upper.stop", pa.scalar(None, pa.string()))
        index = table.column_names.index("reason")
        table = table.set_column(index, "reason", reason)
        return table.set_column(3, "text", pc.utf8_upper(table["text"]))


class Marked(Filter):
    """A filter for tests with a signal: the number of letters e in the text."""

    kind: Literal["marked"] = "marked"

    def columns(self) -> dict[str, str]:
        return {"marked_e": "letters"}

    def signals(self) -> list[str]:
        return ["text", "marked_e"]

    def measure(self, table: pa.Table) -> pa.Table:
        counts = [text.lower().count("e") for text in table["text"].to_pylist()]
        return pa.table({"marked_e": counts})

    def rules(self) -> Rules:
        return {"many": pl.col("marked_e") > 3}


class Costly(Transform):
    """A costly transform for tests: it skips documents that are already rejected."""

    kind: Literal["costly"] = "costly"
    costly = True

    def columns(self) -> dict[str, str]:
        return {"costly_seen": "1 if the transform processed the document"}

    def apply(self, table: pa.Table) -> pa.Table:
        return table.set_column(
            table.column_names.index("costly_seen"), "costly_seen", pa.array([1.0] * len(table))
        )


def column(table: pa.Table, name: str) -> list:
    return table[name].to_pylist()


def test_the_result_has_the_schema_of_judged_documents():
    stages = (*STAGES, Language(min_score=None))
    result = apply(raw(["the word", None]), stages)
    assert result.schema == schemas.judged(signal_names(stages))
    assert apply(raw([]), stages).schema == result.schema
    assert apply(raw(["a"]), []).schema == schemas.judged([])


def test_signal_names_do_not_depend_on_the_order_of_stages():
    names = signal_names(STAGES)
    assert names == signal_names(STAGES[::-1])
    assert names[:3] == ["num_chars", "num_lines", "num_words"]
    assert signal_names([Language(), Where(keep="lang_score > 0 AND url = 'a'")]) == []


def test_rows_that_are_already_rejected_keep_their_reason():
    table = raw(["the word", "other", None])
    reasons = pa.array([None, "source.truncated", None], pa.string())
    table = table.set_column(table.column_names.index("reason"), "reason", reasons)
    result = apply(table, [GOPHER])
    assert column(result, "reason") == [None, "source.truncated", "source.null_text"]
    assert column(result, "verdict") == ["kept", "rejected", "rejected"]
    assert column(result, "num_words") == [2, None, None]
    assert column(result, "row") == [0, 1, 2]


def test_rejected_rows_have_text_only_if_asked_for():
    table = raw(["the word", "no"])
    assert column(apply(table, [GOPHER]), "text") == ["the word", None]
    assert column(apply(table, [GOPHER], rejected=Rejected(text=True)), "text") == [
        "the word",
        "no",
    ]
    hashes = content_hash(table["text"], "whitespace").to_pylist()
    assert column(apply(table, [GOPHER]), "content_hash") == hashes


def test_dedup_exact_sets_how_hashed_text_is_normalized():
    one, other = column(apply(raw(["a b", "a  b"]), []), "content_hash")
    assert one == other
    one, other = column(apply(raw(["a b", "a  b"]), [DedupExact(normalize="none")]), "content_hash")
    assert one != other


@settings(max_examples=40)
@given(st.lists(texts, max_size=6))
def test_the_first_rule_that_rejects_gives_the_reason(documents):
    expected = []
    for text in documents:
        reasons = [column(apply(raw([text]), [stage]), "reason")[0] for stage in STAGES]
        expected.append(next((reason for reason in reasons if reason is not None), None))
    assert column(apply(raw(documents), STAGES), "reason") == expected


@settings(max_examples=60)
@given(st.lists(texts, min_size=1, max_size=8), st.data())
def test_the_result_does_not_depend_on_the_batch(documents, data):
    table, cut = raw(documents), data.draw(st.integers(0, len(documents)))
    stages = (*STAGES, Upper(), Where(keep="text LIKE '%THE%'"))
    parts = [table.slice(0, cut), table.slice(cut)]
    result = apply(table, stages)
    assert pa.concat_tables([apply(part, stages) for part in parts]).equals(result)
    assert apply(pa.concat_tables(parts), stages).equals(result)  # columns in two chunks
    assert result.select(schemas.ADDRESS).equals(table.select(schemas.ADDRESS))


def test_signals_come_before_verdicts(monkeypatch):
    sizes = []
    count = quality_counts.count_words

    def counted(texts, **how):
        sizes.append(len(texts.offsets) - 1)
        return count(texts, **how)

    monkeypatch.setattr(quality_counts, "count_words", counted)
    stages = [Where(keep="num_words > 1"), Where(keep="num_lines < 2"), GOPHER]
    result = apply(raw(["one", "the word", "the\nword"]), stages)
    assert sizes == [3]  # one pass for three filters
    assert column(result, "num_lines") == [
        1,
        1,
        2,
    ]  # also for documents that the first filter rejects


def test_rejected_documents_have_all_signals():
    long = "This is a sentence in the English language. "
    stages = [Where(keep="num_words > 1"), Language(keep=("en",)), Where(keep="lang = 'en'")]
    result = apply(raw(["English", long]), stages)
    assert column(result, "lang") == ["en", "en"]
    assert column(result, "reason") == ["where.condition", None]


def test_signals_of_rejected_documents_can_be_skipped():
    long = "This is a sentence in the English language. "
    stages = [Where(keep="short_line_ratio < 1"), Language(keep=("en",)), Upper(), Marked()]
    result = apply(raw(["English", long]), stages, rejected=Rejected(signals=False))
    assert column(result, "lang") == [None, "en"]
    assert column(result, "marked_e") == [None, 6]
    assert column(result, "reason") == ["where.condition", "marked.many"]


def test_no_signal_is_computed_for_documents_that_an_earlier_filter_rejects():
    long = "This is a sentence in the English language. "
    stages = [Where(keep="short_line_ratio < 1"), Where(keep="num_words > 1"), GOPHER]
    result = apply(raw(["word", long]), stages, rejected=Rejected(signals=False))
    assert column(result, "short_line_ratio") == [1, 0]
    assert column(result, "num_words") == [None, 8]


def test_signals_of_rewritten_text_have_separate_columns(monkeypatch):
    sizes = []
    count = quality_counts.count_words

    def counted(texts, **how):
        sizes.append(len(texts.offsets) - 1)
        return count(texts, **how)

    monkeypatch.setattr(quality_counts, "count_words", counted)
    keep = "num_stop_words > 0"
    stages = [
        *(Where(keep=keep), Upper(), Where(keep=keep, name="after")),
        *(Upper(), Where(keep="num_stop_words < 9 AND num_lines = 1")),
    ]
    result = apply(raw(["the end", "none", "the of"]), stages, rejected=Rejected(text=True))
    assert column(result, "reason") == ["where.after", "where.condition", "where.after"]
    assert column(result, "num_stop_words") == [1, 0, 2]
    assert column(result, "upper_num_stop_words") == [0, 0, 0]
    assert column(result, "upper2_num_stop_words") == [0, 0, 0]
    assert column(result, "text") == ["THE END", "none", "THE OF"]
    assert sizes == [3, 3, 3]
    names = ["num_stop_words", "upper_num_stop_words", "num_lines", "upper2_num_stop_words"]
    assert signal_names(stages) == names


@given(st.lists(st.lists(lines, max_size=8).map("\n".join), max_size=6), st.booleans())
def test_words_of_cleaned_text_are_not_split_again(documents, with_rejected):
    seen = []
    count = quality_counts.count_words

    def counted(texts, **how):
        seen.append(how)
        return count(texts, **how)

    before = GopherQuality(min_words=2, min_mean_word_length=None)
    stages = [before, C4(min_sentences=2, min_words_per_line=2), GOPHER, FinewebQuality()]
    table = raw(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality_counts, "count_words", counted)
        result = apply(table, stages, rejected=Rejected(signals=with_rejected))
    assert len([how for how in seen if "known" in how]) <= 1
    assert all("known" in how or how["by_line"] for how in seen)
    names = [name.removeprefix("c4_") for name in result.column_names]
    names = [name for name in names if f"c4_{name}" in result.column_names and name in SIGNALS]
    expected = compute_signals(C4(min_words_per_line=2).apply(table).select(["text"]), names)
    for name in names:
        values = zip(column(result, f"c4_{name}"), column(expected, name), strict=True)
        assert all(value == other or value is None for value, other in values)


def test_signals_computed_before_a_transform_are_kept():
    result = apply(raw(["the end"]), [Where(keep="num_stop_words > 0"), Upper()])
    assert result.select(["text", "num_stop_words"]).to_pylist() == [
        {"text": "THE END", "num_stop_words": 1}
    ]


def test_a_transform_may_reject():
    stages = [Upper(), Where(keep="num_chars > 0"), Marked()]
    result = apply(raw(["go", "stop"]), stages, rejected=Rejected(text=True))
    assert column(result, "reason") == [None, "upper.stop"]
    assert column(result, "num_chars") == [2, 4]
    assert column(result, "marked_e") == [0, 0]
    assert column(result, "text") == ["GO", "stop"]  # the text before the rejecting stage


def test_a_filter_can_have_its_own_signals():
    stages = [Where(keep="num_chars < 9"), Marked(), Where(keep="num_chars > 1")]
    assert signal_names(stages) == ["num_chars", "marked_e"]
    result = apply(raw(["e", "EEEE", "eeeeeeeeee", None]), stages)
    assert column(result, "marked_e") == [1, 4, 10, None]
    expected = ["where.condition", "marked.many", "where.condition", "source.null_text"]
    assert column(result, "reason") == expected


def test_a_costly_stage_skips_rejected_documents():
    stages = [Where(keep="num_chars < 3"), Marked(), Costly(), Where(keep="num_lines > 1")]
    result = apply(raw(["e", "eeee"]), stages)
    assert column(result, "text") == [None, None]
    assert column(result, "marked_e") == [1, 4]
    assert column(result, "num_chars") == [1, 4]
    assert column(result, "costly_seen") == [1, None]
    assert column(result, "num_lines") == [1, None]  # the second text was never rewritten


def test_signals_after_a_costly_filter_are_computed_for_rejected_documents():
    stages = [
        Where(keep="num_chars < 2"),
        Upper(),
        Python(call="example_filters:has_digit", folder=HERE),
        Where(keep="num_lines > 1"),
    ]
    assert column(apply(raw(["e", "eeee"]), stages), "num_lines") == [1, 1]


def test_a_filter_that_reads_text_skips_rejected_documents():
    stages = [Where(keep="num_chars < 2"), Where(keep="CAST(text AS int) > 3")]
    reasons = [None, "where.condition", "where.condition"]
    assert column(apply(raw(["7", "1", "no number"]), stages), "reason") == reasons


def test_costs_are_recorded_per_stage_and_signal_group():
    stages = [GOPHER, Upper(), Language(min_score=None)]
    costs = apply_and_time(raw(["the", "of"]), stages).seconds
    keys = ["signals.words", "1 gopher_quality", "2 upper", "signals.language", "3 language"]
    assert list(costs) == [*keys, "signals.hash"]
    assert all(seconds > 0 for seconds in costs.values())


@pytest.mark.parametrize("mistake", ["drop", "renumber"])
def test_a_transform_must_not_change_the_rows(mistake):
    with pytest.raises(StageError, match="file:///a rows 0 to 1: upper changed the number of rows"):
        apply(raw(["a", "b"]), [Upper(mistake=mistake)])


def test_errors_name_stage_source_and_rows():
    stages = [Where(keep="num_chars > 1"), Upper(mistake="fail")]
    with pytest.raises(StageError) as caught:
        apply(raw(["a", "bb", "cc"]), stages)
    assert str(caught.value) == "file:///a rows 0 to 2: upper failed: ZeroDivisionError: by zero"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_errors_of_a_user_function_name_the_rows():
    with pytest.raises(
        StageError, match=r"rows 0 to 1: python \(\S+\) failed at example_filters.py:40: KeyError: "
    ):
        apply(raw(["a", "b"]), [Python(call="example_filters:fails", folder=HERE)])
    with pytest.raises(StageError, match="rows 0 to 1: .*returned 1 value for a table of 2 rows"):
        apply(raw(["a", "b"]), [Python(call="example_filters:short", folder=HERE)])
    stage = Python(call="example_filters:fails_at_two", folder=HERE, per="document")
    with pytest.raises(
        StageError, match=r"file:///a row 2: .* at example_filters.py:45: .*two is bad"
    ):
        apply(raw(["a", "b", "c"]), [stage])


def test_a_value_that_an_expression_cannot_cast_is_an_error():
    with pytest.raises(StageError, match="file:///a rows 0 to 0: where failed"):
        apply(raw(["a"]), [Where(keep="CAST(text AS int) > 3")])


def test_real_documents(data):
    path = data / "docs" / "docs-00000.parquet"
    documents = pq.read_table(path, columns=["text"])["text"][:1000].to_pylist()
    stages = [GopherQuality(min_alpha_word_ratio=0.5), Language(keep=("en",))]
    result = apply(raw(documents), stages)
    counts = Counter(reason and reason.split(".")[0] for reason in column(result, "reason"))
    assert counts.total() == 1000
    assert min(counts[None], counts["gopher_quality"], counts["language"]) > 20
