"""`etl logs`: print what the driver of a submitted recipe prints."""

from typing import Annotated

import typer

from etl.cli import options, output
from etl.visible_text import one_line

app = typer.Typer()


@app.command(epilog=options.examples("etl logs cluster.yaml", "etl logs cluster.yaml --follow"))
def logs(
    file: options.ClusterFile,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the driver has ended.")
    ] = False,
) -> None:
    """Print the log of the driver that `etl submit` has started."""
    from etl.compute.kubernetes import cluster_commands

    for line in cluster_commands.driver_log(file, follow=follow):
        output.echo(one_line(line))
