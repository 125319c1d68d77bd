"""The functions of `etl`: which there are, and what a notebook shows of their results."""

import ast
import inspect
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from typer.main import get_command
from upath import UPath

import etl
from etl.cli import app as cli
from etl.cli.app import COMMANDS
from etl.errors import TokenlakeError
from etl.html.card import Card, cards_html
from etl.html.grid import Grid
from etl.job.progress import Progress
from etl.recipe.recipe import Recipe
from tests.helpers.lakes import make_lake_with_an_unreadable_file
from tests.helpers.paths import NewPlace

FUNCTIONS = {
    "certificates": "make_certificates",
    "export": "export_documents",
    "init": "propose_recipe",
    "lineage": "graph",
    "losses": "commit_losses",
    "recipes": "list_recipes",
    "show": "read_table",
    "stages": "list_stages",
    "warm": "warm_kernels",
}
"""Commands whose function has another name."""

WITHOUT = {
    "cluster": "operates a cluster on Kubernetes",
    "dashboard": "forwards a port until Ctrl-C",
    "logs": "prints what a pod prints",
    "schema": "is for editors",
}
"""Commands without a function, with the reason."""

LISTENERS = {"on_progress", "on_client", "on_status"}
"""Parameters of `etl.run` that `etl.submit` does not have: the driver prints its progress."""

OF_THE_COMMAND = {
    "sources": "is the setting source.path",
    "lake": "is the setting lake",
    "tls": "is a field of Cluster",
    "workers": "is a field of Cluster",
    "memory_limit": "is a field of Cluster",
    "dashboard": "is a field of Cluster",
    "no_python": "is Recipe.without_python",
    "log_format": "is about what the command prints",
    "as_json": "is about what the command prints",
}
"""Options of `etl run` that are no parameters of `etl.run`, with the reason."""


@pytest.fixture(scope="module")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    return make_lake_with_an_unreadable_file(new_place("made"), client, tiny_tokenizer)


def test_every_command_has_a_function() -> None:
    commands = {
        module.__name__.rpartition(".")[2] for group in COMMANDS.values() for module in group
    }
    assert {*FUNCTIONS, *WITHOUT} <= commands
    for command in commands - {*WITHOUT}:
        function = getattr(etl, FUNCTIONS.get(command, command))
        assert callable(function), command
        assert inspect.getdoc(function), command


def test_the_names_are_sorted_and_the_same_for_type_checkers() -> None:
    assert etl.__all__ == sorted(etl.__all__)
    tree = ast.parse(Path(etl.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    origins = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert origins == etl._ORIGINS
    assert sorted(origins) == etl.__all__


def test_a_recipe_runs_by_its_path_and_a_cluster_by_its_address(
    process_client: Client, recipe: Recipe, place: UPath, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(recipe.to_yaml())
    assert process_client.scheduler is not None
    assert etl.plan(file).plan.has_work()
    report = etl.run(file, cluster=process_client.scheduler.address)
    assert report.rows == 300
    planned = etl.plan(str(file))
    assert not planned.plan.has_work()
    assert planned.sample is None
    assert etl.make_trial(str(file), limit=5).source.limit == 5


def test_etl_submit_takes_what_etl_run_takes() -> None:
    of_run, of_submit = (
        dict(inspect.signature(function).parameters) for function in (etl.run, etl.submit)
    )
    assert {*of_run} - {*of_submit} == LISTENERS
    assert {*of_submit} - {*of_run} == {"arguments"}  # further ones of the command
    cluster = of_submit.pop("cluster")
    assert cluster.default is inspect.Parameter.empty, "a driver does not run on this machine"
    del of_submit["arguments"]
    for name, parameter in of_submit.items():
        assert parameter == of_run[name]


def test_etl_run_takes_what_its_command_takes() -> None:
    command = {option.name for option in get_command(cli.app).commands["run"].params}
    function = {*inspect.signature(etl.run).parameters}
    assert command - function == {*OF_THE_COMMAND}
    assert function - command == LISTENERS
    in_cluster = {name for name, why in OF_THE_COMMAND.items() if why == "is a field of Cluster"}
    assert in_cluster <= {field.name for field in fields(etl.Cluster)}
    kinds = inspect.signature(etl.Cluster).parameters.items()
    assert all((each.kind is each.KEYWORD_ONLY) == (name != "address") for name, each in kinds)


def test_a_run_has_settings_and_may_be_a_trial(
    process_client: Client, recipe: Recipe, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(recipe.to_yaml())
    shown: list[str] = []
    of_file, of_recipe = (
        etl.run(
            each,
            settings=["name=changed", "gopher_quality.min_words=100000"],
            limit=5,
            cluster=process_client,
            on_status=shown.append,
        )
        for each in (file, recipe)
    )
    for report in (of_file, of_recipe):
        assert (report.recipe, report.lake) == ("changed", f"{recipe.lake}-trial")
        assert 0 < report.rows <= 5
        assert report.kept == 0
    assert f"trial      {recipe.lake}-trial" in shown
    with pytest.raises(TokenlakeError, match="unknown key 'sead'"):
        etl.run(recipe, settings=["sead=1"])
    with pytest.raises(TokenlakeError, match="limit or share, not both"):
        etl.run(recipe, limit=5, share=0.5)
    for wrong in ({"limit": 0}, {"share": 2.0}, {"time_limit": 0}, {"time_limit": math.nan}):
        with pytest.raises(TokenlakeError):
            etl.run(recipe, **wrong)


def test_etl_plan_reports_what_a_run_would_do(recipe: Recipe) -> None:
    report = etl.plan(recipe)
    assert report.sample is not None
    assert report.sample.documents > 0
    assert report.estimate.usage.core_seconds > 0
    assert etl.plan(recipe, reads_sample=False).sample is None
    shown = Shown(report._repr_html_())
    assert recipe.name in shown.text
    assert str(recipe.lake) in shown.text
    assert report._repr_html_().count('<td style="text-align: start">') > 2 * len(
        report.sample.verdicts
    ), "texts are not aligned as numbers"


class Shown(HTMLParser):
    """The elements and the text of some HTML; checks that each element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, _attributes: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def results(lake: str) -> Iterator[Any]:
    yield etl.report(lake)
    yield etl.duplicates(lake)
    documents = etl.sample(lake, verdict="rejected", n=3)
    yield documents
    yield documents[0]
    yield etl.trace(lake, source=documents[0].source, row=documents[0].row)
    [kept] = etl.sample(lake, verdict="kept", n=1)
    yield etl.trace(lake, source=kept.source, row=kept.row)
    yield etl.graph(f"{lake}/tokens")
    yield etl.tune(lake, ["gopher_quality.min_words=80"])
    yield etl.status(lake)
    yield etl.history(f"{lake}/documents")
    yield etl.RunReport("web", lake, "run-1", rows=3, kept=2, rejected={"length.few_words": 1})


def test_a_notebook_shows_results_as_html(made: Recipe) -> None:
    for result in results(str(made.lake)):
        shown = Shown(result._repr_html_())
        assert not shown.tags & {"script", "style", "link", "img"}
        assert len(shown.text) > 50, type(result)


def test_a_notebook_shows_the_most_frequent_rules_of_a_run_first() -> None:
    report = etl.RunReport("web", "lake", "run-1", rows=9, kept=2, rejected={"b.x": 2, "a.y": 5})
    text = Shown(report._repr_html_()).text
    assert text.index("a.y") < text.index("b.x")


def test_a_proposed_recipe_is_shown_as_its_text(corpus: UPath) -> None:
    proposal = etl.propose_recipe(str(corpus))
    assert Shown(proposal._repr_html_()).text.count("\n") > proposal.text.count("\n")


def test_everything_that_a_notebook_shows_is_escaped() -> None:
    evil = "<script>alert(1)</script>\x1b[31m\u202e"
    grid = Grid(caption=evil, header=[evil, evil], rows=[[evil, evil]], note=evil)
    shown = Shown(cards_html(Card(title=evil, facts={evil: evil}, grids=[grid], text=evil)))
    assert "script" not in shown.tags
    assert shown.text.count("<script>alert(1)</script>") == 10
    assert "\x1b" not in shown.text
    assert "\u202e" not in shown.text


@pytest.mark.parametrize("code", ["etl.replay", "etl.commit_losses", "etl.loader.TokenDataset"])
def test_without_torch_the_extra_to_install_is_named(code: str) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import etl, etl.loader\n"
        f"try: {code}\n"
        "except etl.TokenlakeError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == (
        "the library torch is not installed\n  hint: pip install 'tokenlake[train]'\n"
    )


def test_a_notebook_shows_the_progress_of_a_run(
    process_client: Client,
    recipe: Recipe,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etl.run(recipe, cluster=process_client)
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    etl.run(recipe, cluster=process_client, rebuild=True)
    shown = capsys.readouterr().out
    assert "workers    starting" in shown
    assert "tokens" in shown


def test_progress_is_one_line_that_is_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    show = etl.PrintProgress()
    show(Progress("documents", done=1, total=3, rows=1000, kept=900, seconds=1.0))
    show(Progress("documents", done=2, total=3, rows=2000, kept=1900, seconds=2.0))  # too soon
    show(Progress("documents", done=3, total=3, rows=30, kept=19, seconds=3.0))
    show(Progress("tokens", done=1, total=1))
    lines = capsys.readouterr().out.split("\n")
    first, last = lines[0].split("\r")
    assert first.startswith("documents   1/3 splits  900 of 1,000 documents kept")
    assert last.startswith("documents   3/3 splits  19 of 30 documents kept")
    assert len(last) >= len(first)  # nothing of the longer line remains
    assert lines[1:] == ["tokens      1/1 splits  0 of 0 documents kept", ""]
