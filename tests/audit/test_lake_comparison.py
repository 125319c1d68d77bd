"""Two lakes are compared by their digests: how they were made does not matter, one changed byte does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_comparison import SourceDifference, compare_lakes
from etl.delta.table import Table
from etl.errors import TableError
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake import table_digest
from etl.lake.table_specs import SPECS, open_tables
from etl.maintenance.optimize import optimize
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.paths import NewPlace, at, copy
from tests.helpers.recipes import small_recipe

NAMES = ("a.parquet", "b.jsonl", "c.jsonl")


@pytest.fixture(scope="module")
def crawl(new_place: NewPlace) -> UPath:
    folder = new_place("crawl")
    write_parquet(folder / "a.parquet", records(0, 90), group=10)
    write_jsonl(folder / "b.jsonl", records(90, 150))
    write_jsonl(folder / "c.jsonl", [*records(150, 200), *records(0, 5)])
    return folder


@pytest.fixture(scope="module")
def first(client: Client, crawl: UPath, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake made in one run, with small splits; read-only."""
    recipe = small_recipe(crawl, new_place("first") / "lake", tiny_tokenizer, split_bytes=2048)
    assert run(recipe, cluster=client).ok
    return recipe


def another(recipe: Recipe, lake: UPath, **source: Any) -> Recipe:
    """Return a recipe for another lake, with other settings of the source."""
    changed = recipe.source.model_copy(update=source)
    return recipe.model_copy(update={"lake": str(lake), "source": changed})


def differing(first: Recipe, second: Recipe) -> dict[str, list[str]]:
    """Return the input files, by name, whose rows differ in each table of two lakes."""
    comparison = compare_lakes(str(first.lake), str(second.lake))
    assert [table.table for table in comparison.tables] == [*open_tables(str(first.lake))]
    return {
        table.table: [each.source.rpartition("/")[2] for each in table.sources]
        for table in comparison.tables
        if not table.is_same
    }


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"split_bytes": 1 << 20}, marks=pytest.mark.slow),
        {"split_bytes": 4096},
        pytest.param({"path": NAMES[::-1]}, marks=pytest.mark.slow),
        {"path": [*NAMES[1:], NAMES[0]], "split_bytes": 1024},
    ],
    ids=str,
)
def test_other_splits_and_another_order_make_the_same_lake(
    client: Client, first: Recipe, crawl: UPath, place: UPath, source: Mapping[str, Any]
) -> None:
    paths = tuple(str(crawl / name) for name in source.get("path", ()))
    second = another(first, place / "lake", **{**source, **({"path": paths} if paths else {})})
    assert run(second, cluster=client).ok
    for name, table in open_tables(str(second.lake)).items():
        same = open_tables(str(first.lake))[name]
        assert table.data_files()["path"] != same.data_files()["path"]
    assert differing(first, second) == {}
    optimize(str(second.lake))
    assert differing(first, second) == {}


def with_a_changed_byte(crawl: UPath, folder: UPath, name: str) -> None:
    """Copy the input, and change one byte of the text of a kept document, in one file of lines."""
    copy(crawl, folder)
    content = (folder / name).read_bytes()
    at_byte = content.index(b"number1") - 1  # the space before the last word of the first document
    (folder / name).write_bytes(content[:at_byte] + b"x" + content[at_byte + 1 :])


@pytest.mark.parametrize(
    ("name", "compacts"),
    [
        ("b.jsonl", True),
        ("c.jsonl", False),
        pytest.param("b.jsonl", False, marks=pytest.mark.slow),
        pytest.param("c.jsonl", True, marks=pytest.mark.slow),
    ],
)
def test_one_changed_byte_is_found_by_its_source(
    client: Client,
    first: Recipe,
    crawl: UPath,
    place: UPath,
    name: str,
    *,
    compacts: bool,
) -> None:
    crawled = at(str(first.source.path))
    content = (crawled / name).read_bytes()
    second = another(first, place / "second")
    with_a_changed_byte(crawl, place / "changed", name)
    try:  # the same URI with other content, as on another day
        (crawled / name).write_bytes((place / "changed" / name).read_bytes())
        assert run(second, cluster=client).ok
    finally:
        (crawled / name).write_bytes(content)
    if compacts:
        optimize(str(second.lake))
    found = differing(first, second)
    assert "documents" in found
    assert {source for sources in found.values() for source in sources} == {name}
    for table in compare_lakes(str(first.lake), str(second.lake)).tables:
        for each in table.sources:
            files = Table.open(first.table_url(table.table)).dataset().to_table(["source"])
            rows = files["source"].to_pylist().count(each.source)
            assert (each.rows, each.other_rows) == (rows, rows)


def test_rows_of_several_sources_are_read_only_if_their_digests_differ(
    client: Client, first: Recipe, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lakes are compacted; one has another input file."""
    mine = first.model_copy(update={"lake": str(copy(first.lake, place / "mine"))})
    other = first.model_copy(update={"lake": str(copy(first.lake, place / "other"))})
    for recipe in (mine, other):
        optimize(str(recipe.lake))
    folder = place / "more"
    write_jsonl(folder / "d.jsonl", records(300, 340))
    assert run(another(other, place / "other", path=str(folder)), cluster=client).ok
    read: list[str] = []
    read_live_row_groups = table_digest.read_live_row_groups
    monkeypatch.setattr(
        table_digest,
        "read_live_row_groups",
        lambda url, file, columns: read.append(url) or read_live_row_groups(url, file, columns),
    )
    found = {t.table: t for t in compare_lakes(str(mine.lake), str(other.lake)).tables}
    assert read == [], "the files of several sources are the same"
    source = f"{at(folder / 'd.jsonl')}"
    rows = found["documents"].sources
    assert [(each.source.endswith("d.jsonl"), each.rows, each.other_rows) for each in rows] == [
        (True, 0, 40)
    ], source
    optimize(str(other.lake))
    again = compare_lakes(str(mine.lake), str(other.lake))
    assert {t.table: t for t in again.tables} == found
    assert read != [], "files were merged, so that none is the same"


def test_a_table_that_only_one_lake_has_differs(
    client: Client, first: Recipe, place: UPath
) -> None:
    other = first.model_copy(update={"lake": str(copy(first.lake, place / "other"))})
    shuffle(str(other.lake), cluster=client)
    (table,) = (
        each for each in compare_lakes(str(first.lake), str(other.lake)).tables if not each.is_same
    )
    assert (table.table, table.digest, table.sources) == ("tokens_shuffled", None, [])
    assert SPECS[table.table].is_index
    with pytest.raises(TableError, match="no lake"):
        compare_lakes(str(first.lake), str(place / "nowhere"))


def test_the_command_prints_digests_and_differences(
    client: Client, first: Recipe, place: UPath
) -> None:
    tables = open_tables(str(first.lake))
    printed = etl("verify", first.lake, "--digest")
    assert printed.exit_code == 0
    lines = printed.stdout.splitlines()
    assert lines[0] == "no problems found"
    digests = dict(line.split() for line in lines[2:])
    assert digests.keys() == tables.keys()
    parsed = json.loads(etl("verify", first.lake, "--digest", "--json", "--quick").stdout)
    assert parsed == {"problems": [], "digests": digests}
    assert etl("verify", first.lake, "--digest", first.lake).exit_code == 0
    other = another(first, place / "lake", path=str(at(str(first.source.path)) / "a.parquet"))
    assert run(other, cluster=client).ok
    compared = etl("verify", first.lake, "--digest", other.lake)
    assert compared.exit_code == 1
    assert "documents: 2 input files with different rows" in compared.stdout
    fields = json.loads(etl("verify", first.lake, "--digest", other.lake, "--json").stdout)
    expected = compare_lakes(str(first.lake), str(other.lake))
    assert [SourceDifference(**each) for each in fields["tables"][0]["sources"]] == expected.tables[
        0
    ].sources
    assert "2 input files" not in repr(expected)
    assert "differing documents" in repr(expected)
    assert etl("verify", first.lake, other.lake).exit_code == 2
