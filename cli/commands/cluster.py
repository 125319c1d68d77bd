"""`etl cluster`: start, show and delete the cluster of a cluster file, and stop its driver."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.compute.print_listener import PrintListener

if TYPE_CHECKING:
    from etl.compute.kubernetes.cluster_commands import ClusterState
    from etl.compute.kubernetes.cluster_status import Status

app = typer.Typer()


class Action(StrEnum):
    """What to do with a cluster."""

    UP = "up"
    STATUS = "status"
    DOWN = "down"
    STOP = "stop"


@app.command(
    epilog=options.examples(
        "etl cluster up cluster.yaml --workers 16",
        "etl cluster status cluster.yaml",
        "etl cluster down cluster.yaml",
        "etl cluster stop cluster.yaml",
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
    """Manage a Dask cluster on Kubernetes, and its driver.

    Runs with the same file use a cluster that is up, and leave it up. After idle_timeout seconds without
    work, the operator deletes it. `up` ends when all workers are ready or the others cannot start, and `down`
    when nothing is left; it is refused while runs use the cluster. `stop` terminates the driver, which keeps
    what it has committed, and deletes the cluster that the driver has created.
    """
    from etl.compute.kubernetes import cluster_commands

    with PrintListener(sys.stderr) as listener:
        if action is Action.UP:
            cluster_commands.start(file, workers, listener)
        elif action is Action.DOWN:
            cluster_commands.delete(file, listener, force=force)
        elif action is Action.STOP:
            cluster_commands.stop_driver(file, listener)
        state = cluster_commands.state(file)
    output.print_result(state, lines, as_json=as_json)


def lines(state: "ClusterState") -> Iterator[str]:
    """Yield the pods of a cluster, its driver and what is wrong."""
    cluster = state.cluster
    yield f"cluster     {state.name} in namespace {state.namespace}"
    if cluster.image is None:
        yield "image       not running"
        if cluster.left:
            counts = ", ".join(f"{count:,} {kind}" for kind, count in cluster.left.items())
            yield f"left        {counts}"
    else:
        yield f"image       {cluster.image}"
        yield f"scheduler   {cluster.scheduler}"
    for group in sorted({*cluster.workers, *cluster.wanted}):
        yield f"workers     {group}: {_count(group, cluster)}"
    for user in cluster.users:
        yield f"in use by   {user}"
    for abandoned in cluster.abandoned:
        yield f"abandoned   {abandoned}"
    for problem in cluster.problems:
        yield f"problem     {problem}"
    if state.driver is not None:
        yield f"driver      {state.driver.state}"


def _count(group: str, cluster: "Status") -> str:
    """Return the numbers of ready and wanted workers of a group, and what the others are doing."""
    states = cluster.workers.get(group, {})
    ready = f"{states.get('ready', 0):,}"
    if (wanted := cluster.wanted.get(group)) is not None:
        ready += f" of {wanted:,}"
    others = [f"{count:,} {name}" for name, count in sorted(states.items()) if name != "ready"]
    return ", ".join([f"{ready} ready", *others])
