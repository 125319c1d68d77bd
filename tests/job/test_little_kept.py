"""The end of a run that keeps hardly anything: the rule, its setting, and a command that works."""

import shlex
from pathlib import Path

from distributed import Client
from typer.testing import CliRunner

from etl.cli.app import app
from etl.cli.commands.run import lines
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl


def test_the_command_at_the_end_of_a_run_finds_a_better_limit(
    client: Client, tmp_path: Path
) -> None:
    crawl = write_jsonl(tmp_path / "a.jsonl", records(0, 60))
    recipe = Recipe(
        name="strict",
        source={"path": str(crawl), "columns": {"text": "body"}},
        lake=str(tmp_path / "lake"),
        stages=[{"length": {"min_words": 100_000}}],
    )
    report = run(recipe, cluster=client)
    assert report.kept == 0
    assert report.little_kept is not None
    (hint,) = [line for line in lines(report) if line.startswith("hint")]
    assert "`length.few_words` (length.min_words is 100000) rejects " in hint
    command = hint.partition("try `")[2].partition("`")[0]
    printed = CliRunner().invoke(app, shlex.split(command)[1:])
    assert printed.exit_code == 0, printed.output
    assert "75000" in printed.output
    assert "null" in printed.output
    good = recipe.model_copy(update={"lake": str(tmp_path / "good"), "stages": ()})
    assert run(good, cluster=client).little_kept is None
