"""A run dies between two commits of a split, and then the input file goes: nothing is lost silently."""

import signal
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

import etl
from etl.audit.lake_status import lake_status
from etl.audit.verify.verify import verify
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers import cli
from tests.helpers.killed_runs import end_run, start_run
from tests.helpers.lake_rows import addresses, rows
from tests.helpers.paths import at, copy, move


@pytest.fixture
def own_recipe(recipe: Recipe, place: UPath) -> Recipe:
    """The recipe with its own copy of the input."""
    crawl = copy(recipe.source.path, place / "crawl")
    source = recipe.source.model_copy(update={"path": str(crawl)})
    return recipe.model_copy(update={"source": source})


def without_texts(recipe: Recipe) -> list[tuple[object, object]]:
    """Return the addresses of kept documents without a text."""
    kept = [row for row in rows(recipe.lake, "documents") if row["verdict"] == "kept"]
    texts = {*addresses(rows(recipe.lake, "texts"))}
    return [address for address in addresses(kept) if address not in texts]


def kill(recipe: Recipe, tmp_path: Path, commit: str) -> Path:
    """Run a recipe until right before a commit; return its file."""
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    process = start_run(file, commit)
    assert process.wait(timeout=300) == -signal.SIGKILL
    end_run(process)
    return file


@pytest.mark.slow
def test_documents_without_texts_are_reported_until_the_file_is_back_or_dropped(
    client: Client, own_recipe: Recipe, tmp_path: Path, place: UPath
) -> None:
    recipe, lake = own_recipe, str(own_recipe.lake)
    file = kill(recipe, tmp_path, "texts-2")
    lacking = without_texts(recipe)
    [gone] = {str(source) for source, _ in lacking}
    assert verify(lake) == [], "the file is there: unfinished work"
    assert make_plan(recipe).missing.without_texts == 0
    move(at(gone), place / "elsewhere")

    def check_reports() -> None:
        [problem] = verify(lake, quick=True)
        assert problem.what.startswith(f"{len(lacking)} documents of {gone} without texts: ")
        assert "--drop-missing" in str(problem)
        assert verify(lake) == [problem]
        missing = make_plan(recipe).missing
        assert (missing.files, missing.incomplete) == ([gone], [gone])
        assert missing.without_texts == len(lacking)
        planned = cli.etl("plan", file, "--no-sample").stdout.splitlines()
        [line] = [line for line in planned if line.startswith("no texts")]
        assert line.split()[2] == str(len(lacking))
        assert gone in line
        assert "--drop-missing" in line

    check_reports()
    [left] = etl.repair(lake, drop=True).left
    assert "--drop-missing" in left.why
    assert run(recipe, cluster=client).missing == make_plan(recipe).missing
    assert lake_status(lake).missing == make_plan(recipe).missing
    assert "no texts" in cli.etl("status", lake).stdout
    check_reports()

    dropped = recipe.model_copy(update={"lake": str(copy(lake, place / "dropped"))})
    assert run(dropped, cluster=client, drop_missing=True).missing.count == 0
    assert gone not in {row["source"] for row in rows(dropped.lake, "documents")}
    assert [*without_texts(dropped), *verify(str(dropped.lake))] == []
    assert not make_plan(dropped).has_work()

    move(place / "elsewhere", at(gone))
    assert run(recipe, cluster=client).missing == lake_status(lake).missing
    assert lake_status(lake).missing.count == 0
    assert [*without_texts(recipe), *verify(lake)] == []
    assert {*lacking} <= {*addresses(rows(lake, "texts"))}


@pytest.mark.slow
def test_a_file_that_changes_or_is_no_longer_named_is_reported(
    client: Client, own_recipe: Recipe, tmp_path: Path, place: UPath
) -> None:
    lake = str(own_recipe.lake)
    kill(own_recipe, tmp_path, "texts-2")
    lacking = without_texts(own_recipe)
    [gone] = {str(source) for source, _ in lacking}
    others = tuple(str(f) for f in at(own_recipe.source.path).iterdir() if str(f) not in gone)
    source = own_recipe.source.model_copy(update={"path": others})
    narrowed = own_recipe.model_copy(update={"source": source})
    assert run(narrowed, cluster=client).missing.without_texts == len(lacking)
    [problem] = verify(lake)
    assert "did not find its input file" in problem.what
    at(gone).write_bytes(b"PAR1 other content PAR1")
    [problem] = verify(lake)
    assert "has changed" in problem.what
    assert problem.what.startswith(f"{len(lacking)} documents of {gone} without texts")


def test_texts_that_are_committed_are_tokenized_without_the_file(
    client: Client, own_recipe: Recipe, tmp_path: Path
) -> None:
    """Without deduplication, the tokens of a split are a third commit."""
    stages = [stage for stage in own_recipe.stages if stage.kind != "dedup_exact"]
    recipe = own_recipe.model_copy(update={"stages": tuple(stages)})
    kill(recipe, tmp_path, "tokens-2")
    texts = {*addresses(rows(recipe.lake, "texts"))}
    [gone] = {str(source) for source, _ in texts - {*addresses(rows(recipe.lake, "tokens"))}}
    at(gone).unlink()
    report = run(recipe, cluster=client)
    assert (report.missing.files, report.missing.without_texts) == ([gone], 0)
    assert texts <= {*addresses(rows(recipe.lake, "tokens"))}
    assert verify(str(recipe.lake)) == []
