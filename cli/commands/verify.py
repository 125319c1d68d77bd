"""`etl verify`: check a lake and print the problems, or compare the rows of two lakes."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.lake_comparison import LakeComparison, SourceDifference
    from etl.audit.verify.verify import Problem, Problems

app = typer.Typer()

_MAX_SOURCES_SHOWN = 10


@app.command(
    epilog=options.examples(
        "etl verify lake",
        "etl verify lake --quick",
        "etl verify lake --sources",
        "etl verify lake --digest",
        "etl verify lake --digest other-lake",
    )
)
def verify(
    lake: options.LakeArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="OTHER", help="With --digest: a lake that should have the same rows."
        ),
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read only logs and file footers, no values.")
    ] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Read the input files again, and compare their rows.")
    ] = False,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest",
            help="Print the digest of each table; with OTHER, only compare the lakes by their digests.",
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check the data files and the counts of a lake.

    Checks that every file exists, that every count is right, and that the tables are consistent. Prints
    each problem with its data file, and exits with 1 if there are any. With --digest and another lake,
    prints the input files whose rows differ instead, and exits with 1 if there are any.
    """
    if other is not None:
        if not digest or quick or sources:
            raise typer.BadParameter("OTHER requires --digest, without --quick and --sources")
        _compare(lake, other, as_json=as_json)
        return
    from etl.audit.verify.verify import verify as check

    problems = check(lake, quick=quick, sources=sources)
    if as_json and digest:
        output.print_result(
            {"problems": problems, "digests": problems.digests}, lines, as_json=True
        )
    else:
        output.print_result(problems, digest_lines if digest else lines, as_json=as_json)
    if problems:
        raise typer.Exit(output.FAILED)


def lines(problems: Sequence["Problem"]) -> Iterator[str]:
    """Yield a line for each problem."""
    if not problems:
        yield "no problems found"
    for problem in problems:
        yield str(problem)


def digest_lines(problems: "Problems") -> Iterator[str]:
    """Yield a line for each problem, and for the digest of each table whose data files have none."""
    yield from lines(problems)
    if problems.digests:
        yield from output.columns(
            ["table", "digest"], [[*each] for each in problems.digests.items()]
        )


def _compare(lake: str, other: str, *, as_json: bool) -> None:
    """Compare two lakes, and exit with 1 if they differ."""
    from etl.audit.lake_comparison import compare_lakes

    comparison = compare_lakes(lake, other)
    output.print_result(comparison, comparison_lines, as_json=as_json)
    if not comparison.is_same:
        raise typer.Exit(output.FAILED)


def comparison_lines(comparison: "LakeComparison") -> Iterator[str]:
    """Yield the digest of each table in both lakes, and the first input files whose rows differ."""
    rows = [
        [
            each.table,
            each.digest or "missing",
            "same" if each.is_same else each.other_digest or "missing",
        ]
        for each in comparison.tables
    ]
    yield from output.columns(["table", "digest", "other"], rows)
    for table in comparison.tables:
        if table.sources:
            yield f"{table.table}: {many(len(table.sources), 'input file')} with different rows"
            yield from _source_lines(table.sources)


def _source_lines(sources: Sequence["SourceDifference"]) -> Iterator[str]:
    shown = islice(sources, _MAX_SOURCES_SHOWN)
    rows = [[f"  {each.source}", f"{each.rows:,}", f"{each.other_rows:,}"] for each in shown]
    yield from output.columns(["  input file", "rows", "other"], rows, numbers=(1, 2))
    if (more := len(sources) - _MAX_SOURCES_SHOWN) > 0:
        yield f"  and {more:,} more"
