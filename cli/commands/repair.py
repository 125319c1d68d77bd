"""`etl repair`: undo changes by other programs, and drop damaged data for the next run to rebuild."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output
from etl.cli.commands import verify

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
    if result.left or any(file.why_kept for file in result.torn):
        raise typer.Exit(output.FAILED)


def lines(repair: "Repair") -> Iterator[str]:
    """Yield the problems, those that remain, the dropped files, and the input files to read again."""
    for file in repair.torn:
        verb = "kept" if file.why_kept else "removed" if repair.done else "would remove"
        reason = f" ({file.why_kept})" if file.why_kept else ""
        yield f"{verb} {file.url.rpartition('/')[2]}/_delta_log/{file.name}, which is torn{reason}"
    if repair.problems or not repair.torn:
        yield from verify.lines(repair.problems)
    for left in repair.left:
        yield f"not repaired: {left.problem.table}/{left.problem.file or ''}: {left.why}"
    verb = "restored" if repair.done else "would restore"
    for kind, paths in repair.restored.items():
        yield f"{verb} {output.many(len(paths), 'file')} of {kind}"
    verb = "dropped" if repair.done else "would drop"
    for kind, paths in repair.dropped.items():
        yield f"{verb} {output.many(len(paths), 'file')} of {kind}"
    for source in repair.sources:
        yield f"to read again: {source}"
    if (repair.dropped or repair.torn) and repair.done:
        yield "`etl run` rebuilds the dropped data"
    elif repair.dropped or repair.torn:
        yield "--yes drops the files; `etl run` then rebuilds the data"
