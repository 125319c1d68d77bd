"""The commands of ``etl``: each parses its options, calls ``etl`` and prints what comes back.

The libraries are imported inside the commands, so that ``etl --help`` is there at once.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from etl import pipelines
from etl.cli import audit, care, options
from etl.errors import TokenlakeError

_QUARANTINED = 3
_INTERRUPTED = 130


class _Commands(TyperGroup):
    """The commands; a user's error is printed, with its hint, and not its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit with 1 on a TokenlakeError unless ``--debug`` shows where it rose."""
        try:
            return super().invoke(ctx)
        except TokenlakeError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands,
    name="etl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Raw text in object storage -> versioned, auditable token tables.",
)


def main() -> None:
    """Run the command line."""
    app(prog_name="etl")


@app.callback()
def _common(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="TOKENLAKE_DEBUG", help="Show the traceback of an error."),
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    del debug  # read where errors are printed
    if show_version:
        try:
            typer.echo(f"tokenlake {version('tokenlake')}")
        except PackageNotFoundError:
            typer.echo("tokenlake (not installed)")
        raise typer.Exit


@app.command(
    epilog=options.examples(
        "etl run demo --lake lake",
        "etl run web.yaml --source 's3://crawl/*.parquet' --set gopher_quality.min_words=80",
        "etl run web.yaml --cluster tcp://scheduler:8786",
    )
)
def run(  # noqa: PLR0913 - a command has as many parameters as options
    recipe: options.RecipeArgument,
    *,
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="ADDRESS",
            envvar="TOKENLAKE_CLUSTER",
            help="A Dask scheduler, as tcp://host:8786; without it, this machine.",
        ),
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="TOKENLAKE_TLS",
            help="Speak TLS with these certificates only; `etl certificates` makes them.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes on this machine; one per core if left out."),
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Memory of each worker, as 2GiB.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="A split that takes longer is put aside."),
    ] = 6 * 3600,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    no_python: options.NoPython = False,
    as_json: options.AsJson = False,
) -> None:
    """Do what is left of a recipe: read, filter, deduplicate, tokenize, commit.

    Running again goes on where a run was stopped, and takes up new input files.
    """
    from etl.cli import render
    from etl.cli.progress import ProgressLine
    from etl.compute.cluster import Cluster
    from etl.job.run import run as run_recipe
    from etl.recipe.recipe import Recipe

    loaded = Recipe.load(recipe, settings=options.settings_of(sources, lake, settings))
    _tell_code(loaded, forbidden=no_python)
    try:
        with ProgressLine(sys.stderr) as progress:
            report = run_recipe(
                loaded,
                cluster=Cluster(cluster, workers, memory_limit, tls, time_limit),
                rebuild=rebuild,
                replace_changed=replace_changed,
                on_progress=progress.update,
                on_client=lambda client: progress.note(f"dashboard  {client.dashboard_link}"),
            )
    except KeyboardInterrupt:
        typer.echo("interrupted: what is committed stays; run the same command to go on", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    render.output(report, render.run_report, to_json=as_json)
    for note in report.quarantined:
        typer.echo(render.quarantined(note), err=True)
    if not report.ok:
        raise typer.Exit(_QUARANTINED)


@app.command(
    epilog=options.examples(
        "etl plan web.yaml",
        "etl plan demo --lake lake --json",
    )
)
def plan(  # noqa: PLR0913 - as above
    recipe: options.RecipeArgument,
    *,
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    no_python: options.NoPython = False,
    as_json: options.AsJson = False,
) -> None:
    """Say what a run would do, and do nothing."""
    from etl.cli import render, render_plan
    from etl.job.plan import make_plan
    from etl.recipe.recipe import Recipe

    loaded = Recipe.load(recipe, settings=options.settings_of(sources, lake, settings))
    _tell_code(loaded, forbidden=no_python)
    made = make_plan(loaded, rebuild=rebuild, replace_changed=replace_changed)
    render.output(render_plan.facts(made) if as_json else made, render_plan.lines, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl recipes",
        "etl recipes demo > web.yaml",
    )
)
def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this recipe's file.")
    ] = None,
    *,
    as_json: options.AsJson = False,
) -> None:
    """List the shipped recipes, or print one to begin your own with."""
    from etl.cli import render

    names = pipelines.names()
    if name is None:
        about = [{"name": n, "about": _about(pipelines.path(n).read_text("utf-8"))} for n in names]
        render.output(about, render.recipes, to_json=as_json)
        return
    if name not in names:
        raise typer.BadParameter(f"no shipped recipe {name!r}; there are {', '.join(names)}")
    text = pipelines.path(name).read_text("utf-8")
    render.output(
        {"name": name, "text": text}, lambda found: found["text"].splitlines(), to_json=as_json
    )


app.add_typer(audit.app)
app.add_typer(care.app)


@app.command(
    epilog=options.examples(
        "etl certificates certs",
        "etl run web.yaml --tls certs",
        "dask scheduler --tls-ca-file certs/ca.pem --tls-cert certs/scheduler.pem "
        "--tls-key certs/scheduler.pem --protocol tls",
    )
)
def certificates(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where they are written.")],
    *,
    days: Annotated[int, typer.Option(min=1, help="How long they are valid.")] = 365,
) -> None:
    """Make what a cluster needs to speak TLS: an authority and certificates for each role.

    Every machine needs the folder; keep it as you keep a password.
    """
    from etl.compute.certificates import make_certificates

    for path in make_certificates(folder, days=days):
        typer.echo(str(path))


@app.command(
    epilog=options.examples(
        "etl schema > recipe.schema.json",
    )
)
def schema() -> None:
    """Print the JSON Schema of recipe files, for editors."""
    from etl.cli import render
    from etl.recipe.json_schema import json_schema

    typer.echo(render.as_json(json_schema()))


def _tell_code(recipe: Any, *, forbidden: bool) -> None:
    """Say which code of which file a recipe runs, or refuse it, before any of it is loaded."""
    if forbidden:
        recipe.without_python()
    for code in recipe.code:
        typer.echo(f"warning: the recipe runs Python code: {code}", err=True)


def _about(text: str) -> str:
    """The first line of a recipe's opening comment."""
    first = text.split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
