"""The notebook interface computes the same rows as a run."""

import pytest
from distributed import Client
from upath import UPath

import etl
from etl.delta.table import Table
from etl.errors import MismatchError, TableError
from etl.job.run import run
from etl.lake.commit_info import fields_of
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import judged, rows
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
    by_hand, of_run = rows(str(place / "notebook"), "documents"), judged(recipe.lake)
    left_out = {*of_run[0]} - {*by_hand[0]}
    unread = {"text_bytes", "text_hash", "content_hash", "lang", "lang_score"}
    assert left_out == unread, "nothing reads these"
    assert any(row["verdict"] == "rejected" and row["text"] for row in by_hand)
    for row in by_hand:
        del row["media_type"]
        row["text"] = row["text"] if row["verdict"] == "kept" else None  # as the recipe stores it
    assert by_hand == [{n: v for n, v in row.items() if n not in left_out} for row in of_run]
    schemas = [Table.open(recipe.table_url(name)).schema for name in ("documents", "texts")]
    fields = {field.name: field for schema in schemas for field in schema}
    assert all(fields[name] == table.schema.field(name) for name in by_hand[0])


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
