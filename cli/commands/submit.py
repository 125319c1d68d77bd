"""`etl submit`: run a recipe with its driver in the Kubernetes cluster."""

import sys
from typing import Annotated

import typer

from etl.cli import options, output
from etl.cli.progress import ProgressLine

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl submit web.yaml --cluster k8s:cluster.yaml",
        "etl submit demo --cluster k8s:cluster.yaml --lake s3://bucket/lake",
    )
)
def submit(  # noqa: PLR0913 - one parameter per option
    recipe: options.RecipeArgument,
    *,
    cluster: Annotated[
        str,
        typer.Option(metavar="k8s:FILE", envvar="TOKENLAKE_CLUSTER", help="The cluster file."),
    ],
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    env: options.Env = None,
    workers: options.Workers = None,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    drop_missing: options.DropMissing = False,
    no_python: options.NoPython = False,
    log_format: options.LogFormat = "text",
) -> None:
    """Run a recipe on Kubernetes, also when this machine is off.

    The driver is a Job: it is started again if it fails, and then continues. `etl logs FILE -f` shows what
    it prints, `etl cluster status FILE` whether it has ended.
    """
    from etl.job.submit import submit as submit_recipe
    from etl.recipe.variables import expand_setting
    from etl.recipe.yaml_file import is_shipped

    loaded = options.load_recipe(
        recipe, sources=sources, lake=lake, settings=settings, env=env, no_python=no_python
    )
    flags = {
        "--rebuild": rebuild,
        "--replace-changed": replace_changed,
        "--drop-missing": drop_missing,
        "--no-python": no_python,
    }
    arguments = [flag for flag, is_set in flags.items() if is_set]
    if (wanted := options.parse_workers(workers)) is not None:
        arguments += ["--workers", str(wanted)]
    if log_format != "text":
        arguments += ["--log-format", log_format]
    shipped = None
    if is_shipped(recipe):
        pairs = options.settings_of(sources, lake, settings)
        shipped = [recipe, *(f"--set={expand_setting(pair, env or ())}" for pair in pairs)]
    with ProgressLine(sys.stderr) as progress:
        name = submit_recipe(
            loaded, cluster, shipped=shipped, arguments=arguments, report=progress.note
        )
    output.echo(f"driver      {name} started")
