"""Checks of a copy of the package to which the format ``lines`` was added; run by test_formats.py."""

import gzip
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from etl.errors import RecipeError, SourceError
from etl.recipe.json_schema import json_schema
from etl.recipe.recipe import Recipe
from etl.sources import Source
from etl.sources.formats import detect_format
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from tests.fuzz import targets

CONTENT = "".join(f"line {number}\n" for number in range(50))


def check_the_format_is_detected_by_the_extension() -> None:
    assert str(detect_format("s3://crawl/A.LINES")) == "lines"
    assert str(detect_format("s3://crawl/a.lines.zst")) == "lines"


def check_recipes_accept_the_format_and_suggest_it(folder: Path) -> None:
    recipe = "name: a\nsource: {path: a, format: %s}\nlake: lake\nstages: [c4]\n"
    (folder / "recipe.yaml").write_text(recipe % "lines")
    assert str(Recipe.load(folder / "recipe.yaml").source.format) == "lines"
    (folder / "recipe.yaml").write_text(recipe % "line")
    with pytest.raises(RecipeError, match=r"unknown format 'line': did you mean 'lines'\?"):
        Recipe.load(folder / "recipe.yaml")


def check_the_json_schema_allows_the_format() -> None:
    assert "'lines'" in str(json_schema()["$defs"]["Source"]["properties"]["format"])


def check_an_unknown_extension_is_refused_with_all_formats(folder: Path) -> None:
    (folder / "notes.md").touch()
    with pytest.raises(SourceError, match=r"hint: set source\.format to one of .*\blines\b"):
        list_splits(Source(path=str(folder / "notes.md")))


def check_files_are_listed_cut_counted_and_read(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.lines").write_text(CONTENT)
    (folder / "in" / "b.lines.gz").write_bytes(gzip.compress(CONTENT.encode()))
    source = Source(path=str(folder / "in"), split_bytes=100)
    pieces = list(list_splits(source))
    assert [split.format for split in pieces] == ["lines"] * 5
    counts = [None if split.is_whole else count_records(split) for split in pieces]
    assert sum(filter(None, counts)) == 50
    tables = [t for split in number_splits(pieces, counts) for t in read_split(split, source)]
    texts = [text for table in tables for text in table["text"].to_pylist()]
    assert texts == CONTENT.splitlines() * 2
    assert [row for table in tables for row in table["row"].to_pylist()] == [*range(50)] * 2


def check_the_documentation_lists_the_format() -> None:
    page = runpy.run_path("docs/generate.py")["formats_page"]()
    summary = "Reader for a format made up for the tests: each line of a file is a document."
    assert f"| `lines` | `.lines` | yes | `lines.py` | {summary} |" in page


def check_the_fuzzer_has_its_targets() -> None:
    added = [name for name in targets.TARGETS if name.startswith("lines")]
    assert added == ["lines", "lines.gz", "lines.zst"]
    targets.SEEDS["lines"] = lambda: [CONTENT.encode()]
    for name in added:
        assert [targets.run(name, content) for content in targets.seeds(name)] == ["read"]


if __name__ == "__main__":
    check_the_format_is_detected_by_the_extension()
    check_the_json_schema_allows_the_format()
    check_the_documentation_lists_the_format()
    check_the_fuzzer_has_its_targets()
    with TemporaryDirectory() as name:
        check_recipes_accept_the_format_and_suggest_it(Path(name))
        check_an_unknown_extension_is_refused_with_all_formats(Path(name))
        check_files_are_listed_cut_counted_and_read(Path(name))
