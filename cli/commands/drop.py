"""`etl drop`: remove the table of a tokenizer."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.maintenance.drop_tokens import DroppedTable

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl drop lake tokens_qwen",
        "etl drop lake tokens_qwen --yes",
    )
)
def drop(
    lake: options.LakeArgument,
    table: Annotated[
        str, typer.Argument(help="The table of a tokenizer: `tokens`, or `tokens_NAME`.")
    ],
    *,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Remove the table of a tokenizer, with all its versions.

    Other tables keep their rows. `etl run` makes the table again, from the stored texts, if the recipe has
    its tokenizer. Without --yes it only prints what it would do.
    """
    from etl.maintenance.drop_tokens import drop_tokens

    output.print_result(drop_tokens(lake, table, delete=yes), lines, as_json=as_json)


def lines(dropped: "Sequence[DroppedTable]") -> Iterator[str]:
    """Yield what was, or would be, removed of each table."""
    for each in dropped:
        verb = "dropped" if each.done else "would drop"
        rows, versions = many(each.rows, "row"), many(each.versions, "version")
        yield f"{verb} {each.table}: {rows} in {each.size / 1e6:,.1f} MB, {versions}"
    if dropped and not dropped[0].done:
        yield "pass --yes to remove"
