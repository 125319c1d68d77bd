"""`etl logs`: print what the driver, the scheduler or the workers of a cluster print."""

from typing import Annotated

import typer

from etl.cli import options, output
from etl.visible_text import one_line

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl logs cluster.yaml --follow",
        "etl logs cluster.yaml --of worker --grep ERROR",
        "etl logs cluster.yaml --of tokenlake-default-worker-0c3f2a1b9d --previous",
    )
)
def logs(
    file: options.ClusterFile,
    *,
    of: Annotated[
        str,
        typer.Option(metavar="WHAT", help="driver, scheduler, worker, or the name of a pod."),
    ] = "driver",
    grep: Annotated[
        str, typer.Option(metavar="TEXT", help="Print only lines that contain a text.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the containers have ended.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", help="Print the containers that have ended before.")
    ] = False,
) -> None:
    """Print the logs of a driver, a scheduler or workers.

    Lines of several pods start with the pod's name.
    """
    from etl.compute.kubernetes import cluster_commands
    from etl.compute.kubernetes.pod_logs import LogQuery

    if follow and previous:
        raise typer.BadParameter("containers that have ended cannot be followed")
    query = LogQuery(of=of, grep=grep, follow=follow, previous=previous)
    for line in cluster_commands.logs(file, query):
        output.echo(one_line(line))
