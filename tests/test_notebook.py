"""`etl.apply` takes what notebooks have, and gives all of it back with verdicts."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import etl
from etl.dataframe import to_pandas
from etl.errors import RecipeError, TableError
from etl.frames import column_names
from etl.stages import STAGES, Filter, Transform

SHORT, LONG = "Too short.", "This one is long enough to be kept."
STAGE = {"length": {"min_words": 5}}
DOCUMENTS = [
    {"text": SHORT, "label": 0, "tags": ["a"], "day": dt.date(2026, 1, 1)},
    {"text": LONG, "label": 1, "tags": [], "day": None},
    {"text": None, "label": 2, "tags": None, "day": None},
]
REASONS = ["length.few_words", None, "source.null_text"]


def of_dask(documents: list[dict[str, Any]]) -> dd.DataFrame:
    with dask.config.set({"dataframe.convert-string": False}):  # else lists become strings
        return dd.from_pandas(pd.DataFrame(documents), npartitions=2)


KINDS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], type]] = {
    "dicts": (list, pl.DataFrame),
    "tuple": (tuple, pl.DataFrame),
    "generator": (iter, pl.DataFrame),
    "columns": (lambda d: {n: [row[n] for row in d] for n in d[0]}, pl.DataFrame),
    "polars": (pl.DataFrame, pl.DataFrame),
    "pandas": (pd.DataFrame, pd.DataFrame),
    "dask": (of_dask, dd.DataFrame),
    "arrow": (pa.Table.from_pylist, pa.Table),
    "batch": (pa.RecordBatch.from_pylist, pa.Table),
    "reader": (lambda d: pa.Table.from_pylist(d).to_reader(), pa.Table),
}


def dicts(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame of any kind, with None for missing values."""
    frame = frame.compute(scheduler="sync") if isinstance(frame, dd.DataFrame) else frame
    return list(pl.DataFrame(frame).to_dicts())


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_comes_back_with_all_rows_and_columns(kind: str) -> None:
    make, expected = KINDS[kind]
    judged = etl.apply(make(DOCUMENTS), [STAGE])
    assert isinstance(judged, expected)
    names = ["text", "label", "tags", "day", "num_chars", "num_words", "reason", "verdict"]
    assert column_names(judged) == names
    rows = dicts(judged)
    assert [{name: row[name] for name in DOCUMENTS[0]} for row in rows] == DOCUMENTS
    assert [row["reason"] for row in rows] == REASONS
    assert [row["verdict"] for row in rows] == ["rejected", "kept", "rejected"]


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        iter,
        np.array,
        pl.Series,
        pd.Series,
        pa.array,
        lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
        lambda texts: pd.Series(texts, dtype="category"),
        lambda texts: [text.encode() for text in texts],
        lambda texts: dd.from_pandas(pd.Series(texts), npartitions=2),
        lambda texts: pa.array(texts).dictionary_encode(),
        lambda texts: pa.array(texts, pa.string_view()),
        lambda texts: pl.Series(texts, dtype=pl.Categorical),
        lambda texts: pl.Series(texts, dtype=pl.Enum([SHORT, LONG])),
    ],
)
def test_texts_become_the_column_text(make: Callable[[list[str]], Any]) -> None:
    judged = dicts(etl.apply(make([SHORT, LONG, SHORT]), STAGE))
    assert [row["reason"] for row in judged] == ["length.few_words", None, "length.few_words"]
    assert judged[1]["text"] in (LONG, LONG.encode())


def test_no_documents_are_a_frame_with_the_same_columns() -> None:
    names = ["text", "num_chars", "num_words", "reason", "verdict"]
    data: list[Any] = [[], pl.DataFrame({"text": []}), pd.DataFrame({"text": []})]
    for empty in data:
        judged = etl.apply(empty, STAGE)
        assert column_names(judged) == names
        assert len(judged) == 0


def test_pandas_keeps_its_index_and_objects_that_arrow_lacks() -> None:
    frame = pd.DataFrame(DOCUMENTS, index=[7, 7, 3]).assign(
        object=pd.Series([1, "a", object()], dtype=object).to_numpy()
    )
    judged = etl.apply(frame, STAGE)
    pd.testing.assert_frame_equal(judged[[*frame.columns]], frame)
    polars = pl.DataFrame({"text": [LONG], "object": pl.Series([object()], dtype=pl.Object)})
    assert etl.apply(polars, STAGE)["object"].to_list() == polars["object"].to_list()


def test_a_rejected_text_is_that_which_the_stage_rejected() -> None:
    documents = [
        {"text": "A line of words with an end.\nmenu", "id": 0},
        {"text": "Only these words remain here now.\nmenu", "id": 1},
        {"text": "menu", "id": 2},
    ]
    stages: list[Any] = [
        {"c4": {"min_sentences": 0, "min_words_per_line": 1}},
        {"where": {"keep": "id != '1'", "name": "first"}},
    ]
    judged = etl.apply(documents, stages)
    assert judged["text"].to_list()[:2] == [
        "A line of words with an end.",
        "Only these words remain here now.",
    ]
    assert judged["id"].to_list() == [0, 1, 2], "ids keep their type"
    assert judged["reason"].to_list()[:2] == [None, "where.first"]
    bad = [b"\xff\xfe", b"Some words that are kept here."]
    assert etl.apply(bad, stages)["text"].to_list() == bad
    frame = pa.table({"text": pa.array(["x " * 9 + "end."], pa.large_string())})
    assert etl.apply(frame, stages).schema.field("text").type == pa.large_string()


def test_rows_are_rejected_as_in_a_run() -> None:
    texts = ["", " \n", b"\xff", None, "a" * ((16 << 20) + 1)]
    reasons = [etl.apply([text], [])["reason"].item() for text in texts]
    assert reasons == [
        "source.empty_text",
        "source.empty_text",
        "source.invalid_utf8",
        "source.null_text",
        "source.too_large",
    ]


def test_columns_may_have_other_names() -> None:
    documents = [{"content": LONG, "link": "https://a.example/x", "text": "a summary"}]
    columns = {"text": "content", "url": "link"}
    for names in (columns, etl.Columns(**columns)):
        judged = etl.apply(documents, [STAGE, {"where": "url IS NOT NULL"}], columns=names)
        assert judged.to_dicts()[0] | documents[0] == judged.to_dicts()[0]
        assert judged["verdict"].item() == "kept"
    assert etl.apply(pd.Series([LONG]), [STAGE], columns={"text": "body"}).columns[0] == "body"


@pytest.mark.parametrize(
    ("data", "stages", "message"),
    [
        ("a.jsonl", [], "a string is not a list of documents\n  hint: write \\[text\\]"),
        (5, [], "int is not a type of documents\n  hint: give a list of texts or of dicts"),
        (None, [], "NoneType is not a type"),
        (pl.LazyFrame({"text": ["a"]}), [], "LazyFrame is not .*\n  hint: call .collect"),
        (["a", {"text": "b"}], [], r"documents\[1\]: has the type dict"),
        ([{"text": "b"}, "a"], [], r"documents\[0\]: has the type dict"),
        (["a", 3], [], r"documents\[1\]: has the type int"),
        ([{"text": "a", "n": 1}, {"text": "b", "n": "x"}], [], "column 'n' cannot be converted"),
        (["\ud800"], [], "column 'text' cannot be converted .*surrogates"),
        ({"text": "a"}, [], r"column 'text' is not a list.*\n  hint: write \[document\]"),
        ({"text": ["a"], "n": [1, 2]}, [], "columns differ in length\n  hint: .*text 1, n 2"),
        ([{5: "a"}], [], "5 is not the name of a column"),
        ([{"txt": "a"}], [], r"no column 'text'\n  hint: .*did you mean 'txt'"),
        (pd.DataFrame([["a"]]), [], "no column 'text'"),
        ([{"text": 5}], [], "'text' has values of type int64, not texts"),
        ([{"text": ["a"]}], [], "'text' has values of type large_list"),
        (pd.DataFrame({"text": ["a", 1]}), [], "text cannot be converted to Arrow"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), [], "2 columns are named 'text'"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), [], "2 columns are named 'text'"),
        ([{"text": "a", "num_words": 1}], [STAGE], "has the columns num_words, which .* overwrite"),
        ([{"text": "a", "verdict": "good"}], [], "has the columns verdict"),
        ([{"text": "a", "lang": "x"}], [{"language": ["en"]}], "has the columns lang, which"),
        ([{"text": "a", "reason": "spam"}], [], "'reason' has the value 'spam', which no stage"),
        ([{"text": "a", "reason": 3}], [], "'reason' has the value 3"),
        (
            [{"text": "a", "reason": None, "verdict": "rejected"}],
            [],
            "'verdict' differs from what the column 'reason' says",
        ),
    ],
)
def test_wrong_data_is_explained(data: Any, stages: Any, message: str) -> None:
    with pytest.raises(TableError, match=message) as caught:
        etl.apply(data, stages)
    assert caught.value.hint is not None


def test_a_wrong_name_in_columns_is_explained() -> None:
    with pytest.raises(TableError, match="no column 'bdy'\n.*did you mean 'body'"):
        etl.apply([{"body": "a"}], [], columns={"text": "bdy"})
    with pytest.raises(TableError, match="'body' is not a dict"):
        etl.apply([{"body": "a"}], [], columns="body")  # type: ignore[call-overload]
    with pytest.raises(RecipeError, match="unknown key 'txt'\n.*did you mean 'text'"):
        etl.apply([{"body": "a"}], [], columns={"txt": "body"})


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (None, "NoneType is not a list of stages"),
        (5, "int is not a list of stages"),
        (etl.Recipe(source="a", stages=["c4"]), "Recipe is not a list .*\n.*documents_stages"),
        (
            {"length": {}, "c4": {}},
            r"stages\[0\]: must be a stage, not .*\n.*each stage as an item",
        ),
        ([5], r"stages\[0\]"),
    ],
)
def test_wrong_stages_are_explained(stages: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        etl.apply(["a"], stages)


def test_other_columns_may_have_names_of_ours() -> None:
    """As long as no stage computes them: `source`, `row` and `metadata` of any type, and equal ids."""
    documents = [
        {"text": LONG, "id": 5, "source": 1, "row": "a", "metadata": {"a": [1]}, "lang": "de"},
        {"text": SHORT, "id": 5, "source": 2, "row": "b", "metadata": {"a": [2]}, "lang": "en"},
    ]
    judged = etl.apply(documents, [STAGE, {"sample": 1.0}]).to_dicts()
    assert [{name: row[name] for name in documents[0]} for row in judged] == documents


def test_stages_may_follow_in_a_second_call() -> None:
    first = etl.apply(DOCUMENTS, STAGE)
    judged = etl.apply(first, {"language": ["de"]})
    assert judged["reason"].to_list() == [REASONS[0], "language.other", REASONS[2]]
    assert judged.select(DOCUMENTS[0].keys()).to_dicts() == DOCUMENTS
    with pytest.raises(TableError, match="num_words.*\n.*in one call"):
        etl.apply(first, STAGE)


def test_sampling_does_not_depend_on_the_kind_of_frame(client: Client) -> None:
    """With addresses; without them, the partitions of Dask do not all sample the same rows."""
    frame = pd.DataFrame({"text": [f"text {n}" for n in range(64)]})
    addressed = frame.assign(source="a", row=range(64))
    expected = etl.apply(addressed, {"sample": 0.5})["verdict"].tolist()
    partitioned = etl.apply(dd.from_pandas(addressed, npartitions=4), {"sample": 0.5})
    assert partitioned.compute(scheduler=client)["verdict"].tolist() == expected
    free = etl.apply(dd.from_pandas(frame, npartitions=4), {"sample": 0.5})
    verdicts = free.compute(scheduler=client)["verdict"].tolist()
    assert len({tuple(verdicts[n : n + 16]) for n in range(0, 64, 16)}) == 4


@given(
    st.lists(
        st.fixed_dictionaries(
            {"text": st.none() | st.text(max_size=20)},
            optional={"label": st.integers(-5, 5), "note": st.text(max_size=5)},
        )
    )
)
def test_nothing_is_lost(documents: list[dict[str, Any]]) -> None:
    judged = etl.apply(documents, STAGE)
    assert judged.height == len(documents)
    for document, row in zip(documents, judged.to_dicts(), strict=True):
        assert {name: row[name] for name in document} == document
        assert row["verdict"] == ("kept" if row["reason"] is None else "rejected")


def test_dask_is_not_imported_for_a_list() -> None:
    script = (
        "import sys, etl\n"
        "etl.apply(['a text'], {'where': 'url IS NULL'})\n"
        "print('dask' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        (["gopher_quality", "dedup_exact"], "dedup_exact"),
        (["dedup_minhash", "dedup_paragraphs"], "dedup_minhash, dedup_paragraphs"),
        ([{"tokenize": "tokenizer.json"}], "tokenize"),
    ],
)
def test_stages_that_need_a_lake_are_refused(stages: list[Any], named: str) -> None:
    table = pa.table({"text": ["a document"]})
    for frame in (table, dd.from_pandas(table.to_pandas(), npartitions=1)):
        with pytest.raises(RecipeError, match=f"^{named} cannot be applied") as caught:
            etl.apply(frame, stages)
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"remove {named} here")


def test_every_stage_is_applied_or_refused() -> None:
    """No kind of stage is skipped: filters and transforms run, all others are refused."""
    table = pa.table({"text": ["a document"]})
    for kind, model in STAGES.items():
        if not issubclass(model, Filter | Transform):
            with pytest.raises(RecipeError, match=f"^{kind} cannot be applied"):
                etl.apply(table, [model.model_construct(kind=kind)])


def test_any_function_is_a_filter(client: Client) -> None:
    """Also one that no module defines, on workers that could not import it."""
    table = pa.table({"text": ["short", "long enough to be kept"]})
    limit = 10

    def is_long(rows: pa.Table) -> list[bool]:
        return [len(text.as_py()) > limit for text in rows["text"]]

    document = {"python": {"call": lambda row: len(row["text"]) > limit, "per": "document"}}
    expected = [None, "python.is_long"]
    assert sorted(etl.apply(table, [is_long])["reason"].to_pylist(), key=str) == expected
    assert etl.apply(table, [document])["reason"].to_pylist() == ["python.lambda", None]
    whole = etl.apply(table, [])  # without a media type, like a table of documents
    frame = dd.from_pandas(to_pandas(whole), npartitions=2)
    computed = etl.apply(frame, [is_long]).compute(scheduler=client)
    assert sorted(computed.reason.dropna()) == ["python.is_long"]
    assert computed.reason.isna().sum() == 1


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("gopher_qualty", r"stages\[1\]: unknown stage 'gopher_qualty'\n  hint: did you mean"),
        ({"length": {"min_word": 5}}, r"stages\[1\]: unknown key 'length.min_word'"),
        (
            {"python": {"call": len, "pr": "document"}},
            r"unknown key 'pr'\n  hint: did you mean 'per'",
        ),
    ],
)
def test_an_invalid_stage_is_named_with_a_near_miss(stage: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        etl.apply(pa.table({"text": ["a"]}), ["c4", stage])
