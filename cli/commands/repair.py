"""`etl repair`: undo changes by other programs, and drop damaged data for the next run to rebuild."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output
from etl.cli.commands import verify
from etl.plural import many

if TYPE_CHECKING:
    from etl.maintenance.repair import Repair

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl repair lake",
        "etl repair lake --yes",
    )
)
def repair(
    lake: options.LakeArgument, *, yes: options.Yes = False, as_json: options.AsJson = False
) -> None:
    """Undo foreign changes, and drop damaged data to rebuild it.

    Adds data files again that another program has removed, and removes those that it has added. Drops the
    data files that `etl verify` reports, so that the next run rebuilds them. Without --yes it only prints
    what it would do. Exits with 1 if a problem cannot be repaired.
    """
    from etl.maintenance.repair import repair as repair_lake

    result = repair_lake(lake, drop=yes)
    output.print_result(result, lines, as_json=as_json)
    if result.left:
        raise typer.Exit(output.FAILED)


def lines(repair: "Repair") -> Iterator[str]:
    """Yield the problems, those that remain, the dropped files, and the input files to read again."""
    yield from verify.lines(repair.problems)
    for left in repair.left:
        name = left.problem.table + (f"/{left.problem.file}" if left.problem.file else "")
        yield f"not repaired: {name}: {left.why}"
    verb = "restored" if repair.done else "would restore"
    for kind in repair.logs:
        yield f"{verb} the log of {kind}"
    verb = "repaired" if repair.done else "would repair"
    for name in repair.files:
        yield f"{verb} {name}"
    verb = "restored" if repair.done else "would restore"
    for kind, paths in repair.restored.items():
        yield f"{verb} {many(len(paths), 'file')} of {kind}"
    verb = "dropped" if repair.done else "would drop"
    for kind, paths in repair.dropped.items():
        yield f"{verb} {many(len(paths), 'file')} of {kind}"
    for source in repair.sources:
        yield f"to read again: {source}"
    if repair.has_changes and repair.done:
        yield "`etl run` rebuilds what was dropped"
    elif repair.has_changes:
        yield "--yes does this; `etl run` then rebuilds what was dropped"
