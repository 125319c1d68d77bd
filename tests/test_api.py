"""The functions of `etl`: which there are, and what a notebook shows of their results."""

import ast
import inspect
import math
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from typer.main import get_command
from upath import UPath

import etl
import etl.loader
from etl.cli import app as cli
from etl.cli.app import COMMANDS
from etl.errors import RecipeError, TokenlakeError
from etl.html.card import Card, CardList, cards_html
from etl.html.grid import Grid
from etl.recipe.recipe import Recipe
from tests.helpers.lakes import make_lake_with_an_unreadable_file
from tests.helpers.listeners import Recorder
from tests.helpers.paths import NewPlace

FUNCTIONS = {
    "certificates": "make_certificates",
    "drop": "drop_tokens",
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


@pytest.mark.local_only  # a Path has no protocol
def test_a_recipe_may_be_its_path_its_data_or_an_object(recipe: Recipe, tmp_path: Path) -> None:
    """In every function that takes one; a source may be its path."""
    file = tmp_path / "web.yaml"
    file.write_text(recipe.to_yaml())
    data = {**dict(recipe), "source": dict(recipe.source), "lake": Path(str(recipe.lake))}
    for each in (recipe, file, str(file), recipe.written(), dict(recipe), data):
        assert etl.Recipe.of(each) == recipe
        assert etl.plan(each, reads_sample=False).plan.recipe == recipe
        assert etl.make_trial(each, limit=5) == etl.make_trial(recipe, limit=5)
    wanted = {"name": "x", "gopher_quality.min_words": 7, "source.path": ["/a.jsonl"]}
    pairs = ["name=x", "gopher_quality.min_words=7", "source.path=['/a.jsonl']"]
    changed = etl.Recipe.of(file, settings=pairs)
    assert etl.Recipe.of(recipe.written(), settings=wanted) == changed
    assert etl.Recipe.of(recipe, settings=wanted) == changed
    assert changed.source.paths == ("/a.jsonl",)
    for source in ("a.jsonl", Path("a.jsonl"), {"path": "a.jsonl"}, etl.Source(path="a.jsonl")):
        assert etl.Recipe(source=source).source.path == str(Path.cwd() / "a.jsonl")
        assert etl.Recipe.of({"source": source}) == etl.Recipe(source=source)
    file.write_text("source: [a.jsonl, b.jsonl]\nstages: []\n")
    assert etl.Recipe.load(file, settings="source.limit=5").source == etl.Source(
        path=[str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")], limit=5
    )


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({}, "Recipe: 'source' is missing"),
        ({"source": "a", "stges": []}, "unknown key 'stges'\n  hint: did you mean 'stages'"),
        ({"source": "a", "stages": ["c5"]}, r"Recipe.stages\[0\]: unknown stage 'c5'"),
        ({"source": "a", "stages": "c4"}, "Recipe: stages must be a list"),
        ({"source": {"pth": "a"}}, "'source.path' is missing"),
        ({"source": 5}, "source: must be a mapping, not 5"),
        ({"source": "a", 5: 1}, "keys should be strings, not 5"),
        (5, "int is not a type of recipes\n  hint: give a Recipe, a dict"),
        (["a"], "list is not a type of recipes"),
        (None, "NoneType is not a type of recipes"),
    ],
)
def test_a_wrong_recipe_is_explained(recipe: Any, message: str) -> None:
    for function in (etl.run, etl.plan, etl.make_trial):
        with pytest.raises(RecipeError, match=message):
            function(recipe)


def test_a_setting_that_yaml_lacks_is_refused() -> None:
    with pytest.raises(RecipeError, match="settings: a value cannot be written"):
        etl.Recipe.of("demo", settings={"seed": object()})
    with pytest.raises(RecipeError, match=r'--set seed="x": seed: .*integer'):
        etl.Recipe.of("demo", settings={"seed": "x"})


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (etl, "rport", "report"),
        (etl, "aply", "apply"),
        (etl, "zzz", None),
        (etl.loader, "TokenDatset", "TokenDataset"),
        (etl.loader, "zzz", None),
    ],
)
def test_a_misspelled_attribute_is_answered(module: Any, name: str, near: str | None) -> None:
    what = f"module {module.__name__!r} has no attribute {name!r}"
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == what + (f"; did you mean {near!r}?" if near else "")
    lines = traceback.format_exception_only(caught.value)
    assert lines[-1].count("id you mean") == (near is not None), "Python adds no second suggestion"


def test_the_package_has_its_version() -> None:
    assert etl.__version__ == version("tokenlake")


def test_etl_submit_takes_what_etl_run_takes() -> None:
    of_run, of_submit = (
        dict(inspect.signature(function).parameters) for function in (etl.run, etl.submit)
    )
    assert {*of_run} <= {*of_submit}
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
    assert function - command == {"listener"}
    in_cluster = {name for name, why in OF_THE_COMMAND.items() if why == "is a field of Cluster"}
    assert in_cluster <= {field.name for field in fields(etl.Cluster)}
    kinds = inspect.signature(etl.Cluster).parameters.items()
    assert all((each.kind is each.KEYWORD_ONLY) == (name != "address") for name, each in kinds)


def test_a_run_has_settings_and_may_be_a_trial(
    process_client: Client, recipe: Recipe, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(recipe.to_yaml())
    shown = Recorder()
    of_file, of_recipe = (
        etl.run(
            each,
            settings=["name=changed", "gopher_quality.min_words=100000"],
            limit=5,
            cluster=process_client,
            listener=shown,
        )
        for each in (file, recipe)
    )
    for report in (of_file, of_recipe):
        assert (report.recipe, report.lake) == ("changed", f"{recipe.lake}-trial")
        assert 0 < report.rows <= 5
        assert report.kept == 0
    assert f"trial      {recipe.lake}-trial" in shown.lines
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
    history = etl.history(f"{lake}/documents")
    yield history
    yield history[0]
    yield etl.sweep(lake, "gopher_quality.min_words=20,80")
    yield etl.diff(f"{lake}/documents", 0, 1)
    yield etl.diff_lakes(lake)
    yield etl.vacuum(lake)
    yield etl.repair(lake)
    yield etl.list_stages()
    yield etl.propose_recipe(etl.Recipe.load("demo").source.paths[0])
    yield etl.RunReport("web", lake, "run-1", rows=3, kept=2, rejected={"length.few_words": 1})


def test_a_notebook_shows_results_as_html(made: Recipe) -> None:
    for result in results(str(made.lake)):
        shown = Shown(result._repr_html_())
        assert not shown.tags & {"script", "style", "link", "img"}
        assert len(shown.text) > 50, type(result)


def test_a_prompt_shows_each_result_in_a_short_line(made: Recipe) -> None:
    for result in (*results(str(made.lake)), made, etl.plan(made), made.source, *made.stages):
        lines = repr(result).split("\n")
        assert len(lines) == (len(result) if isinstance(result, CardList) else 1)
        for line in lines:
            assert len(line) < 250, type(result)
            assert " object at 0x" not in line
    assert repr(etl.Recipe(source="/a.jsonl", lake="/lake", stages=["c4"])) == (
        "<Recipe recipe; source /a.jsonl; lake /lake; stages c4>"
    )
    assert str(etl.Source(path="/a.jsonl", limit=5)) == "path='/a.jsonl' limit=5"
    report = etl.RunReport("web", "lake", "run-1", rows=9, kept=2)
    assert repr(report).startswith("<RunReport Recipe web; lake lake; rows 9; kept 2 (22.2 %)")


def test_a_long_list_is_cut_at_a_prompt() -> None:
    reports = CardList(etl.RunReport("web", "lake", f"run-{n}") for n in range(100))
    lines = repr(reports).split("\n")
    assert lines[-1] == " ... 60 more]"
    assert len(lines) == 41


def test_a_notebook_shows_recipes_and_problems(made: Recipe, tmp_path: Path) -> None:
    shown = Shown(made._repr_html_())
    assert made.to_yaml().strip() in shown.text
    problems = etl.verify(str(made.lake))
    assert repr(problems) == "<Problems No problems found>"
    assert "No problems found" in Shown(problems._repr_html_()).text
    lake = tmp_path / "lake"
    etl.write(etl.read_table(str(made.lake), "documents"), str(lake / "documents"))
    next((lake / "documents").rglob("*.parquet")).unlink()
    damaged = etl.verify(str(lake))
    shown = Shown(damaged._repr_html_())
    assert all(problem.what in shown.text for problem in damaged)
    assert repr(damaged).startswith(f"<Problems {len(damaged)} problem")
    assert damaged[0].what in repr(damaged)


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
