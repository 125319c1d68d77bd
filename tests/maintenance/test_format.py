"""A lake of another format version is refused by every command, with one message."""

import re
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

import etl
from etl import storage
from etl.audit.duplicates.duplicate_report import duplicates
from etl.cli.app import app
from etl.errors import LoaderError, TableError
from etl.job.plan import Drops, make_plan
from etl.lake.releases import create_release
from etl.loader import TokenDataset
from etl.recipe.recipe import Recipe
from etl.schemas import FORMAT_VERSION
from tests.helpers.paths import at

COMMANDS: dict[str, Callable[[Recipe, str], object]] = {
    "plan": lambda recipe, _: make_plan(recipe),
    "plan --rebuild": lambda recipe, _: make_plan(recipe, Drops(rebuild=True)),
    "run": lambda recipe, _: etl.run(recipe),
    "history": lambda _, lake: etl.history(f"{lake}/documents"),
    "diff": lambda _, lake: etl.diff(f"{lake}/documents", 1, 2),
    "diff_lakes": lambda _, lake: etl.diff_lakes(lake),
    "lineage": lambda _, lake: etl.graph(f"{lake}/documents"),
    "trace": lambda _, lake: etl.trace(lake, id="doc-00000"),
    "report": lambda _, lake: etl.report(lake),
    "duplicates": lambda _, lake: duplicates(lake),
    "verify": lambda _, lake: etl.verify(lake),
    "tune": lambda _, lake: etl.tune(lake, ["gopher_quality.min_words=60"]),
    "release": lambda _, lake: create_release(lake, "first"),
    "vacuum": lambda _, lake: etl.vacuum(lake),
    "repair": lambda _, lake: etl.repair(lake),
    "optimize": lambda _, lake: etl.optimize(lake),
    "read_table": lambda _, lake: etl.read_table(lake, "documents"),
}


@pytest.fixture
def old(recipe: Recipe) -> Recipe:
    """A recipe with a lake of format version 4, whose log entries have no checksums."""
    for entry in at(recipe.lake).glob("*/_delta_log/*.json"):
        written = rb"\"format\":%d," % FORMAT_VERSION
        content = entry.read_bytes().replace(written, rb"\"format\":4,")
        entry.write_bytes(re.sub(rb',"(previous|checksum)":"[0-9a-f]*"', b"", content))
    return recipe


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lake_of_another_format_version_is_refused(old: Recipe, command: str) -> None:
    with pytest.raises(TableError) as caught:
        COMMANDS[command](old, str(old.lake))
    error = caught.value
    read = f"this release reads format version {FORMAT_VERSION}"
    assert error.what == f"the lake has format version 4, but {read}"
    assert error.where is not None
    assert error.where.startswith(storage.normalize(old.lake))
    assert error.hint is not None
    assert "--lake NEW" in error.hint


@pytest.mark.parametrize("version", [None, 1])
def test_training_refuses_a_lake_of_another_format_version(
    old: Recipe, version: int | None
) -> None:
    with pytest.raises(LoaderError, match="the lake has format version 4, but this release reads"):
        TokenDataset(str(old.lake), version=version, seq_len=16)


def test_show_refuses_a_lake_of_another_format_version(old: Recipe) -> None:
    result = CliRunner().invoke(app, ["show", f"{old.lake}/documents"])
    assert result.exit_code != 0
    assert "the lake has format version 4" in result.stderr


def test_a_lake_to_compare_with_is_refused_too(old: Recipe) -> None:
    stages = [
        stage if stage.kind != "dedup_exact" else {"dedup_exact": {"against": [str(old.lake)]}}
        for stage in old.stages
    ]
    other = Recipe(name="other", source=old.source, lake=f"{old.lake}-other", stages=stages)
    with pytest.raises(TableError, match="format version 4"):
        make_plan(other)
