"""`etl schema`: print the JSON Schema of recipe files."""

import typer

from etl.cli import options, output
from etl.cli.json_text import json_text

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl schema > recipe.schema.json",
    )
)
def schema() -> None:
    """Print the JSON Schema of recipe files, for editors."""
    from etl.recipe.json_schema import json_schema

    output.echo(json_text(json_schema()))
