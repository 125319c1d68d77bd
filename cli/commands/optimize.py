"""`etl optimize`: compact small data files."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.maintenance.optimize import Optimized

app = typer.Typer()


def _target_mb() -> int:
    from etl.maintenance.optimize import TARGET_BYTES

    return TARGET_BYTES >> 20


@app.command(
    epilog=options.examples(
        "etl optimize lake",
        "etl optimize lake --target-mb 512",
    )
)
def optimize(
    lake: options.LakeArgument,
    *,
    target_mb: Annotated[
        int,
        typer.Option(
            min=1,
            help="The size of a compacted file in MiB.",
            default_factory=options.LibraryDefault(_target_mb),
        ),
    ],
    as_json: options.AsJson = False,
) -> None:
    """Compact small data files of all tables.

    No row changes, and old versions stay readable. Runs and training jobs may continue in the meantime.
    Files of `documents` and `texts` grow to 64 MiB: a changed input file rewrites those with its rows.
    """
    from etl.maintenance.optimize import optimize as compact

    output.print_result(compact(lake, target_bytes=target_mb << 20), lines, as_json=as_json)


def lines(tables: Sequence["Optimized"]) -> Iterator[str]:
    """Yield the files and bytes of each table before and after."""
    for table in tables:
        files = f"{table.files_before:,} -> {many(table.files, 'file')}"
        size = f"{table.size_before:,} -> {many(table.size, 'byte')}"
        yield f"{table.table:<11} version {table.version}: {files}, {size}"
