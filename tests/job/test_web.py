"""Web crawls as a source: WARC, WET and HTML in Parquet, from the crawl record to the table."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from upath import UPath

from etl.audit.trace import trace
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose
from tests.helpers.lake_rows import judged
from tests.helpers.warc_archives import HANGS, conversion, pack, record, response


def _page(text: str) -> str:
    head = "<!DOCTYPE html><html><head><meta charset=utf-8><title>T</title></head>"
    navigation = "<nav><a href='/'>Home</a><a href='/all'>All</a></nav>"
    return f"{head}<body>{navigation}<main><p>{text}</p></main><script>x < y</script></body></html>"


@pytest.fixture
def crawl(place: UPath) -> UPath:
    """The same five texts as WARC, WET and Parquet, and other records that a crawl contains."""
    folder = place / "crawl"
    folder.mkdir()
    texts = [prose(number) for number in range(5)]
    archive = [
        record("warcinfo", 100, b"software: none"),
        *(response(number, _page(text).encode()) for number, text in enumerate(texts)),
        response(5, b"moved", status="301 Moved"),
        response(6, b"\x89PNG\r\n\x1a\n" + bytes(99), Content_Type="image/png"),
        response(7, HANGS.encode()),
        response(8, b"<html><body></body></html>"),
        response(
            9, _page("die Straße").encode("latin-1"), Content_Type="text/html; charset=latin1"
        ),
    ]
    content = pack(archive, "gzip") + b"\x1f\x8b\x08 and the rest is lost"
    (folder / "a.warc.gz").write_bytes(content)
    wet = [conversion(number, text) for number, text in enumerate(texts)]
    (folder / "b.warc.wet.gz").write_bytes(pack(wet, "gzip"))
    table = pa.table({"html": [_page(text) for text in texts], "doc": [*"01234"]})
    with (folder / "c.parquet").open("wb") as file:
        pq.write_table(table, file)
    return folder


def test_a_crawl_becomes_documents(client: Client, crawl: UPath, place: UPath) -> None:
    recipe = Recipe(
        name="web",
        source={"path": str(crawl), "columns": {"text": "html", "id": "doc"}},
        lake=str(place / "lake"),
        stages=[{"extract": {"seconds": 0.3}}],
    )
    assert run(recipe, cluster=client).ok
    by_file: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(judged(recipe.lake), key=lambda each: int(str(each["row"]))):
        by_file.setdefault(Path(str(each["source"])).name, []).append(each)
    documents = {(name, n): each for name, some in by_file.items() for n, each in enumerate(some)}
    for name in ("a.warc.gz", "b.warc.wet.gz", "c.parquet"):
        assert [documents[name, number]["text"] for number in range(5)] == [
            prose(number) for number in range(5)
        ]
    others = {row: documents["a.warc.gz", row] for row in range(5, 11)}
    assert {row: each["reason"] for row, each in others.items()} == {
        5: "source.http_status",
        6: "source.not_text",
        7: "extract.timeout",
        8: "extract.empty",
        9: None,
        10: "source.damaged",
    }
    assert others[9]["text"] == "die Straße"
    assert len(documents) == 5 + 6 + 5 + 5
    assert "0.3 s of processor time" in json.loads(str(others[7]["metadata"]))["error"]
    assert documents["b.warc.wet.gz", 0]["extract_html_chars"] is None
    page = len(_page(prose(0)))
    assert documents["a.warc.gz", 0]["extract_html_chars"] == page
    assert documents["c.parquet", 0]["extract_html_chars"] == page

    [followed] = trace(
        str(recipe.lake), source=str(crawl / "a.warc.gz"), row=int(str(others[7]["row"]))
    )
    assert (followed.id, followed.url) == ("<urn:uuid:7>", "https://example.org/7")
    assert followed.reason == "extract.timeout"
