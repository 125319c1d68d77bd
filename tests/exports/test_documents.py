"""The export of documents: exactly those with tokens, with the texts that were tokenized."""

import io
import json
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
import zstandard
from distributed import Client
from tokenizers import Tokenizer
from upath import UPath

from etl.delta.table import Table
from etl.errors import TableError
from etl.exports.documents import export_documents
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.lakes import make_sound_lake
from tests.helpers.paths import NewPlace


@pytest.fixture(scope="module")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Any) -> Recipe:
    return make_sound_lake(new_place("made"), client, tiny_tokenizer)


def read_parquet(folder: UPath) -> list[dict[str, Any]]:
    """Return the rows of all Parquet files of an export, in the order of their names."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.parquet")):
        with path.open("rb") as file:
            rows += pq.read_table(file).to_pylist()
    return rows


def tokens_of(recipe: Recipe) -> dict[tuple[str, int], list[int]]:
    rows = Table.open(recipe.table_url("tokens")).dataset().to_table().to_pylist()
    return {(row["source"], row["row"]): row["tokens"] for row in rows}


def check_texts(recipe: Recipe, exported: list[dict[str, Any]]) -> None:
    """Check that the exported texts are those that were tokenized, and no others."""
    stage = recipe.tokenizers["tokens"]
    tokenizer = Tokenizer.from_file(str(stage.tokenizer))
    end = [0]  # <|endoftext|>
    encoded = {
        (row["source"], row["row"]): tokenizer.encode(row["text"]).ids + end for row in exported
    }
    assert len(encoded) == len(exported)
    assert encoded == tokens_of(recipe)


def test_the_documents_are_those_with_tokens(made: Recipe, place: UPath) -> None:
    export = export_documents(str(made.lake), str(place / "out"))
    rows = read_parquet(place / "out")
    check_texts(made, rows)
    assert export.documents == len(rows)
    assert export.files == len(list((place / "out").glob("*.parquet")))
    assert rows[0].keys() >= {"id", "source", "row", "text", "url", "lang", "num_words"}
    assert not rows[0].keys() & {"reason", "verdict", "content_hash"}
    manifest = json.loads((place / "out" / "_export.json").read_text())
    assert manifest["versions"] == export.versions
    assert manifest["fingerprint"] == made.fingerprint()


def test_repeated_paragraphs_are_cut(client: Client, place: UPath, tiny_tokenizer: Any) -> None:
    shared = prose(1)
    rows = [{"text": f"{prose(10 + k)}\n\n{shared}\n\n{prose(50 + k)}"} for k in range(8)]
    write_jsonl(place / "in" / "a.jsonl", rows)
    recipe = Recipe(
        name="cut",
        source={"path": str(place / "in")},
        lake=str(place / "lake"),
        stages=["dedup_paragraphs", {"tokenize": str(tiny_tokenizer)}],
    )
    report = run(recipe, cluster=client)
    assert report.cut > 0
    export_documents(str(recipe.lake), str(place / "out"))
    exported = read_parquet(place / "out")
    check_texts(recipe, exported)
    assert sum(shared in row["text"] for row in exported) == 1


def test_json_lines_have_the_same_documents(made: Recipe, place: UPath) -> None:
    export_documents(str(made.lake), str(place / "parquet"))
    export_documents(str(made.lake), str(place / "jsonl"), file_format="jsonl")
    rows: list[dict[str, Any]] = []
    for path in sorted((place / "jsonl").glob("*.jsonl.zst")):
        reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes()))
        rows += [json.loads(line) for line in io.TextIOWrapper(reader, encoding="utf-8")]
    assert rows == read_parquet(place / "parquet")


def test_a_condition_selects_documents(made: Recipe, place: UPath) -> None:
    export_documents(str(made.lake), str(place / "all"))
    condition = "row > 20 AND url LIKE '%1%'"
    export = export_documents(str(made.lake), str(place / "some"), where=condition)
    assert export.documents > 0
    expected = pl.DataFrame(read_parquet(place / "all")).filter(pl.sql_expr(condition))
    assert pl.DataFrame(read_parquet(place / "some")).equals(expected)
    assert export.where == condition
    none = export_documents(str(made.lake), str(place / "none"), where="lang = 'xx'")
    assert (none.documents, none.files) == (0, 0)


@pytest.mark.parametrize("condition", ["num_wrds > 1", "num_words", "row = (SELECT 1)", "a b"])
def test_an_invalid_condition_is_refused(made: Recipe, place: UPath, condition: str) -> None:
    with pytest.raises(TableError, match="the condition is invalid"):
        export_documents(str(made.lake), str(place / "out"), where=condition)


def test_a_folder_with_files_is_refused(made: Recipe, place: UPath) -> None:
    export_documents(str(made.lake), str(place / "out"))
    with pytest.raises(TableError, match="the folder has files"):
        export_documents(str(made.lake), str(place / "out"))


def test_an_earlier_version_has_its_documents(made: Recipe, place: UPath) -> None:
    first = export_documents(str(made.lake), str(place / "first"), version=1)
    newest = export_documents(str(made.lake), str(place / "newest"))
    assert 0 < first.documents < newest.documents
    assert first.versions["tokens"] == 1


def test_documents_that_were_not_compared_are_refused(
    client: Client, place: UPath, tiny_tokenizer: Any
) -> None:
    write_jsonl(place / "in" / "a.jsonl", [{"text": prose(k)} for k in range(20)])
    settings = {"name": "later", "source": {"path": str(place / "in")}, "lake": str(place / "lake")}
    recipe = Recipe(**settings, stages=["dedup_exact"])
    run(recipe, cluster=client)
    filters_only = Recipe(**settings, stages=[])
    write_jsonl(place / "in" / "b.jsonl", [{"text": prose(k)} for k in range(19)])
    run(filters_only, cluster=client)
    with pytest.raises(TableError, match="have not been determined yet"):
        export_documents(str(recipe.lake), str(place / "out"))


def test_the_command_exports_documents(made: Recipe, place: UPath) -> None:
    words = ("--where", "num_words > 80", "--format", "jsonl")
    done = etl("export", made.lake, "--to", place / "out", *words)
    assert done.exit_code == 0, done.output
    assert "documents   " in done.stdout
    wrong = etl(
        "export", made.lake, "--to", place / "m", "--format", "megatron", "--where", "row = 1"
    )
    assert wrong.exit_code == 2
