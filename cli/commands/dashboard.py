"""`etl dashboard`: open Dask's dashboard of a cluster on Kubernetes."""

import time
from typing import Annotated

import typer

from etl.cli import options, output

app = typer.Typer()


@app.command(
    epilog=options.examples("etl dashboard cluster.yaml", "etl dashboard cluster.yaml --port 9000")
)
def dashboard(
    file: options.ClusterFile,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on this machine; 0: any free one.")
    ] = 8787,
) -> None:
    """Forward the dashboard of a cluster to this machine.

    It ends with Ctrl-C.
    """
    from etl.compute.kubernetes import cluster_commands

    with cluster_commands.dashboard(file, port) as url:
        output.echo(url)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            output.echo("", err=True)
