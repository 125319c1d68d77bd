"""`etl cluster`: start, show and delete the cluster of a cluster file."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.compute.print_listener import PrintListener

if TYPE_CHECKING:
    from etl.compute.kubernetes.cluster_commands import ClusterState

app = typer.Typer()


class Action(StrEnum):
    """What to do with a cluster."""

    UP = "up"
    STATUS = "status"
    DOWN = "down"


@app.command(
    epilog=options.examples(
        "etl cluster up cluster.yaml --workers 16",
        "etl cluster status cluster.yaml",
        "etl cluster down cluster.yaml",
    )
)
def cluster(
    action: Annotated[Action, typer.Argument(help="What to do with the cluster.")],
    file: options.ClusterFile,
    *,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers to start; default: as the file says.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Delete a cluster under the runs that use it.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Start, show or delete a Dask cluster on Kubernetes.

    Runs with the same file use a cluster that is up, and leave it up. After idle_timeout seconds without
    work, the operator deletes it. `down` is refused while runs use the cluster.
    """
    from etl.compute.kubernetes import cluster_commands

    with PrintListener(sys.stderr) as listener:
        if action is Action.UP:
            cluster_commands.start(file, workers, listener)
        elif action is Action.DOWN:
            cluster_commands.stop(file, listener, force=force)
        state = cluster_commands.state(file)
    output.print_result(state, lines, as_json=as_json)


def lines(state: "ClusterState") -> Iterator[str]:
    """Yield the pods of a cluster, its driver and what is wrong."""
    cluster = state.cluster
    yield f"cluster     {state.name} in namespace {state.namespace}"
    if cluster.image is None:
        yield "image       not running"
    else:
        yield f"image       {cluster.image}"
        yield f"scheduler   {cluster.scheduler}"
    for group, states in cluster.workers.items():
        counts = ", ".join(f"{count} {name}" for name, count in sorted(states.items()))
        yield f"workers     {group}: {counts}"
    for user in cluster.users:
        yield f"in use by   {user}"
    for left in cluster.left:
        yield f"left        {left}"
    for problem in cluster.problems:
        yield f"problem     {problem}"
    if state.driver is not None:
        yield f"driver      {state.driver.state}"
