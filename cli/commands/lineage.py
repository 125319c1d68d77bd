"""`etl lineage`: print where the rows of a table come from."""

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from etl.cli import options, output
from etl.cli.json_text import json_text
from etl.visible_text import VisibleStream

if TYPE_CHECKING:
    from etl.audit.lineage_graph import Node

app = typer.Typer()

_BRANCHES: Final = re.compile("^[│ ]*[├└]─")
_OF_ASCII: Final = str.maketrans("│├└─", "||`-")


@app.command(
    epilog=options.examples(
        "etl lineage lake/tokens",
        "etl lineage lake/tokens --openlineage > events.jsonl",
    )
)
def lineage(
    table: options.TableArgument,
    *,
    at_version: options.AtVersion = None,
    openlineage: Annotated[
        bool, typer.Option("--openlineage", help="Print OpenLineage run events, one per line.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Print the tables and input files that a table comes from."""
    from etl.audit.lineage_graph import graph
    from etl.audit.openlineage import run_events

    node = graph(table, options.version_number(table, at_version))
    if openlineage:
        for event in run_events(node):
            output.echo(json_text(event, indent=None))
        for each in node.walk():
            for note in each.notes:
                options.warn(f"{each.name}: {note}")
        return
    output.print_result(node, lines, as_json=as_json)


def lines(root: "Node") -> Iterator[str]:
    """Yield the tables and files as a tree, whose branches are ASCII where stdout can write no others."""
    is_ascii = not VisibleStream.of(sys.stdout).can_write("└")
    for line in root.lines():
        yield _BRANCHES.sub(lambda match: match[0].translate(_OF_ASCII), line) if is_ascii else line
