"""`etl lineage`: print where the rows of a table come from."""

from typing import Annotated

import typer

from etl.cli import options, output

app = typer.Typer()


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
            output.echo(output.json_text(event, indent=None))
        for each in node.walk():
            for note in each.notes:
                options.warn(f"{each.name}: {note}")
        return
    output.print_result(node, lambda root: root.lines(), as_json=as_json)
