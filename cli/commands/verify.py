"""`etl verify`: check a lake and print the problems."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.audit.verify.verify import Problem

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl verify lake",
        "etl verify lake --quick",
        "etl verify lake --sources",
    )
)
def verify(
    lake: options.LakeArgument,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read only logs and file footers, no values.")
    ] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Read the input files again, and compare their rows.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check the data files and the counts of a lake.

    Checks that every file exists, that every count is right, and that the tables are consistent. Prints
    each problem with its data file, and exits with 1 if there are any.
    """
    from etl.audit.verify.verify import verify as check

    problems = check(lake, quick=quick, sources=sources)
    output.print_result(problems, lines, as_json=as_json)
    if problems:
        raise typer.Exit(output.FAILED)


def lines(problems: Sequence["Problem"]) -> Iterator[str]:
    """Yield a line for each problem."""
    if not problems:
        yield "no problems found"
    for problem in problems:
        yield str(problem)
