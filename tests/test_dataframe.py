"""The notebook interface computes the same rows as a run."""

from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

import etl
from etl.dataframe import to_pandas
from etl.delta.table import Table
from etl.errors import MismatchError, RecipeError, TableError
from etl.job.run import run
from etl.lake.commit_info import fields_of
from etl.recipe.recipe import Recipe
from etl.stages import STAGES, Filter, Transform
from tests.helpers.lake_rows import rows
from tests.helpers.paths import at, opened


@pytest.fixture(scope="module")
def client(process_client: Client) -> Client:
    return process_client


def test_a_notebook_computes_the_same_rows_as_a_run(
    client: Client, recipe: Recipe, place: UPath
) -> None:
    run(recipe, cluster=client)
    frame = etl.apply(etl.read(recipe.source), recipe.documents_stages)
    assert frame.npartitions > 3
    url = str(place / "notebook" / "documents")
    version = etl.write(frame, url, lineage={"note": "by hand"})
    table = Table.open(url)
    assert table.version == version == 1
    assert fields_of(next(table.history())) == {"note": "by hand"}
    assert rows(str(place / "notebook"), "documents") == rows(recipe.lake, "documents")
    assert table.schema == Table.open(recipe.table_url("documents")).schema


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
    """Also a filter that no module defines, on workers that could not import it."""
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
    assert sorted(computed.reason.to_list(), key=str) == [pd.NA, "python.is_long"]


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


def test_read_table_returns_a_dask_dataframe(client: Client, recipe: Recipe) -> None:
    report = run(recipe, cluster=client)
    documents = etl.read_table(str(recipe.lake), "documents")
    counts = documents.groupby("verdict").size().compute().to_dict()
    assert counts == {"kept": report.kept, "rejected": report.rows - report.kept}
    tokens = etl.read_table(str(recipe.lake), "tokens")
    assert tokens.num_tokens.sum().compute() == report.tokens
    empty = etl.read_table(str(recipe.lake), "documents", version=0)
    assert len(empty) == 0
    assert list(empty.columns) == list(documents.columns)


def test_a_frame_with_different_columns_is_refused(
    client: Client, recipe: Recipe, place: UPath
) -> None:
    frame = etl.apply(etl.read(recipe.source), ["gopher_quality"])
    url = str(place / "documents")
    etl.write(frame, url)
    with pytest.raises(TableError, match="num_words"):
        etl.write(frame.drop(columns="num_words"), url)


def test_a_table_managed_by_a_recipe_is_refused(client: Client, recipe: Recipe) -> None:
    run(recipe, cluster=client)
    frame = etl.apply(etl.read(recipe.source), recipe.documents_stages)
    with pytest.raises(MismatchError, match="managed by a recipe"):
        etl.write(frame, recipe.table_url("documents"))


def test_tokens_can_be_compressed_for_an_archive(
    client: Client, recipe: Recipe, place: UPath
) -> None:
    run(recipe, cluster=client)
    url = str(place / "archive" / "tokens")
    etl.write(etl.read_table(str(recipe.lake), "tokens"), url, archive=True)
    assert rows(str(place / "archive"), "tokens") == rows(recipe.lake, "tokens")
    (path, *_) = at(url).glob("*.parquet")
    assert opened(path).metadata.row_group(0).column(3).compression == "ZSTD"
