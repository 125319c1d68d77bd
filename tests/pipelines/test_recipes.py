"""The shipped recipes for web data run unchanged on WARC, WET and Parquet."""

import gzip
import html
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from etl import pipelines
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import STAGES
from tests.helpers.lake_rows import rows
from tests.helpers.warc_archives import conversion, pack, response

WEB = ("c4", "fineweb", "gopher", "multilingual")
SAMPLE = Path(pipelines.__file__).parent / "sample"


@pytest.fixture(scope="module")
def crawl(tmp_path_factory) -> Path:
    """Chapters of the King James Bible from the sample, different ones per format, and junk in each."""
    folder = tmp_path_factory.mktemp("crawl")
    with gzip.open(SAMPLE / "kjv.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["content"] for line in lines][:60]
    junk = [
        "# # # # # # #\n" * 40,
        "too short",
        "Der Himmel über Berlin ist heute sehr blau. " * 20,
    ]
    pages = [_page(text) for text in (*texts[:20], *junk)]
    archive = [response(number, page.encode()) for number, page in enumerate(pages)]
    (folder / "a.warc.gz").write_bytes(pack(archive, "gzip"))
    wet = [conversion(number, text) for number, text in enumerate((*texts[20:40], *junk))]
    (folder / "b.warc.wet.gz").write_bytes(pack(wet, "gzip"))
    pq.write_table(pa.table({"text": [*texts[40:], *junk]}), folder / "c.parquet")
    return folder


def _page(text: str) -> str:
    body = "".join(f"<p>{html.escape(line)}</p>" for line in text.splitlines())
    return f"<!doctype html><html><head><title>A page</title></head><body><main>{body}</main></body></html>"


@pytest.mark.parametrize("name", WEB)
def test_a_shipped_recipe_runs_on_every_crawl_format(name, crawl, client: Client, tmp_path) -> None:
    lake = str(tmp_path / "lake")
    recipe = Recipe.load(name, settings=[f"source.path={crawl}", f"lake={lake}"])
    assert run(recipe, cluster=client).ok
    documents = rows(lake, "documents")
    assert len(documents) == 69
    kept = Counter(Path(str(r["source"])).name for r in documents if r["reason"] is None)
    rejected = Counter(Path(str(r["source"])).name for r in documents if r["reason"] is not None)
    assert set(kept) == set(rejected) == {"a.warc.gz", "b.warc.wet.gz", "c.parquet"}
    assert min(kept.values()) >= 9
    assert min(rejected.values()) >= 3
    tokens = {(row["source"], row["row"]) for row in rows(lake, "tokens")}
    assert tokens == {(row["source"], row["row"]) for row in documents if row["reason"] is None}


def test_the_published_values_are_the_defaults() -> None:
    """A filter without settings equals the filter that the recipe spells out."""
    for name in ("c4", "fineweb", "gopher"):
        for stage in Recipe.load(name, settings=["source.path=a"]).documents_stages:
            if stage.kind in ("gopher_quality", "gopher_repetition", "fineweb_quality"):
                assert stage == STAGES[stage.kind].model_validate({"kind": stage.kind})
