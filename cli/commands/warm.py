"""`etl warm`: compile all kernels ahead of the first run."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.compute.print_listener import PrintListener, duration
from etl.plural import many

if TYPE_CHECKING:
    from etl.job.warm import Warmed

app = typer.Typer()


@app.command(epilog=options.examples("etl warm", "TOKENLAKE_CPU=x86-64-v3 etl warm"))
def warm(
    *,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that compile; default: one per core.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compile all kernels, so that the first run does not.

    Without it, workers compile each kernel when they first need it, and keep the result for later runs.
    TOKENLAKE_CPU names the processors to compile for: generic, x86-64-v2, x86-64-v3 or x86-64-v4; default:
    this machine's.
    """
    from etl.job.warm import warm_kernels

    with PrintListener(sys.stderr) as listener:
        warmed = warm_kernels(workers=workers, listener=listener)
    output.print_result(warmed, lines, as_json=as_json)


def lines(warmed: "Warmed") -> Iterator[str]:
    """Yield what was compiled."""
    if not warmed.compiled:
        yield "nothing to do: all kernels are compiled"
    yield f"compiled    {many(warmed.compiled, 'kernel')} for {warmed.cpu}"
    yield f"in cache    {warmed.loaded:,}"
    yield f"took        {duration(warmed.seconds)}"
