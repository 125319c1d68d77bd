"""`etl diff`: print what changed between two versions of a table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.audit.table_diff import Difference

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl diff lake/documents 3 7",
    )
)
def diff(
    table: options.TableArgument,
    old: Annotated[str, typer.Argument(help="The older version: a number or a release.")],
    new: Annotated[str, typer.Argument(help="The newer version: a number or a release.")],
    *,
    as_json: options.AsJson = False,
) -> None:
    """Print what changed between two versions of a table.

    Compares rows, files, tokens, counts by reason, settings, library versions and input files.
    """
    from etl.audit.table_diff import diff as compare
    from etl.lake.releases import version_of

    difference = compare(table, version_of(table, old), version_of(table, new))
    output.print_result(difference, lines, as_json=as_json)


def lines(difference: "Difference") -> Iterator[str]:
    """Yield the changed counts, then the changed settings, libraries and input files."""
    yield f"{difference.url}: version {difference.old} -> {difference.new}"
    rows = [
        [name, f"+{added:,}", f"-{removed:,}"]
        for name, added, removed in (
            ("rows", difference.rows_added, difference.rows_removed),
            ("files", difference.files_added, difference.files_removed),
            ("bytes", difference.bytes_added, difference.bytes_removed),
            ("tokens", difference.tokens_added, difference.tokens_removed),
        )
    ]
    yield from output.columns(["", "added", "removed"], rows, numbers=(1, 2))
    if difference.counts is None:
        yield "counts by reason: unknown, the data files of the old version are deleted"
    counts = [[f"  {reason}", f"{n:+,}"] for reason, n in (difference.counts or {}).items()]
    if counts:
        yield from output.columns(["reason", "change"], counts, numbers=(1,))
    for title, entries in (
        ("recipe", difference.recipe),
        ("library", difference.libraries),
        ("input added", [file.uri for file in difference.inputs_added]),
        ("input replaced", [file.uri for file in difference.inputs_replaced]),
        ("input removed", [file.uri for file in difference.inputs_removed]),
    ):
        for entry in entries:
            yield f"{title}: {entry}"
