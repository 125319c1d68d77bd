"""`etl submit`: run a recipe with its driver in the Kubernetes cluster."""

import sys
from typing import Annotated, Any

import typer

from etl.cli import options, output
from etl.cli.commands.run import run
from etl.compute.print_listener import PrintListener

app = typer.Typer()

_OF_THIS_MACHINE = ("tls", "memory_limit", "dashboard", "as_json")
_ClusterFile = Annotated[
    str, typer.Option(metavar="k8s:FILE", envvar="TOKENLAKE_CLUSTER", help="The cluster file.")
]


@app.command(
    epilog=options.examples(
        "etl submit web.yaml --cluster k8s:cluster.yaml",
        "etl submit demo --cluster k8s:cluster.yaml --lake s3://bucket/lake",
    )
)
@options.options_of(run, without=_OF_THIS_MACHINE, cluster=_ClusterFile)
def submit(  # noqa: PLR0913 - one parameter per option that is not passed on
    recipe: str,
    *,
    sources: list[str] | None,
    lake: str | None,
    settings: list[str] | None,
    env: list[str] | None,
    cluster: str,
    workers: str | None,
    limit: int | None,
    share: float | None,
    no_python: bool,
    log_format: str,
    **work: Any,
) -> None:
    """Run a recipe on Kubernetes, also when this machine is off.

    The driver is a Job: it is started again if it fails, and then continues. `etl logs FILE -f` shows what
    it prints, `etl cluster status FILE` whether it has ended.
    """
    from etl.job.submit import submit as submit_recipe

    options.check_part(limit, share)
    changes = options.settings_of(sources, lake, settings)
    options.load_recipe(recipe, changes, env=env, no_python=no_python)  # warns
    arguments = ["--no-python"] if no_python else []
    arguments += [f"--log-format={log_format}"] if log_format != "text" else []
    with PrintListener(sys.stderr) as listener:
        name = submit_recipe(
            recipe,
            cluster=options.make_cluster(cluster, workers),
            settings=changes,
            env=env or (),
            limit=limit,
            share=share,
            arguments=arguments,
            listener=listener,
            **work,
        )
    output.echo(f"driver      {name} started")
