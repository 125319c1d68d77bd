"""`etl show`: print the schema, the size and the first rows of a table."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    import pyarrow as pa

    from etl.delta.table import Table

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl show lake/texts --columns id,url,text --limit 3",
        "etl show lake/tokens --version 2",
    )
)
def show(
    table: options.TableArgument,
    *,
    at_version: options.AtVersion = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show the version at this time, e.g. 2026-10-01T12:00 (UTC)."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many rows to print.")] = 5,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Print only these columns, e.g. id,reason.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the schema, the size and the first rows of a table."""
    from etl.audit.row_lookup import read_first_rows
    from etl.lake.open_table import open_table
    from etl.lake.vacuums import check_not_vacuumed

    if at_version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    opened = open_table(
        table,
        options.version_number(table, at_version) if timestamp is None else _time(timestamp),
    )
    if at_version is not None or timestamp is not None:
        check_not_vacuumed(opened)
    rows = read_first_rows(opened, limit, columns.split(",") if columns else None)
    output.print_result(facts(opened, rows), lines, as_json=as_json)


def facts(table: "Table", rows: "pa.Table") -> dict[str, Any]:
    """Return the URL, schema and size of a table, and the given rows, as data for JSON."""
    files = table.data_files()
    return {
        "url": table.url,
        "version": table.version,
        "schema": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            for field in table.schema
        ],
        "files": files.num_rows,
        "rows": sum(files["rows"].to_pylist()) if files.num_rows else 0,
        "bytes": sum(files["size"].to_pylist()) if files.num_rows else 0,
        "sample": rows.to_pylist(),
    }


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the size, the schema and the rows of a table."""
    yield f"{facts['url']} version {facts['version']}"
    rows, files = many(facts["rows"], "row"), many(facts["files"], "file")
    yield f"{rows}, {files}, {many(facts['bytes'], 'byte')}"
    yield ""
    width = max(len(field["name"]) for field in facts["schema"])
    for field in facts["schema"]:
        yield f"  {field['name']:<{width}}  {field['type']}{'' if field['nullable'] else ' not null'}"
    for number, row in enumerate(facts["sample"]):
        yield ""
        yield f"row {number}"
        for name, value in row.items():
            yield f"  {name:<{width}}  {output.cell(value)}"


def _time(text: str) -> datetime:
    """Return an ISO 8601 time; without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a valid time; write it as 2026-10-01T12:00"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
