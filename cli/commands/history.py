"""`etl history`: list the versions of a table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.lake.table_versions import History, Version

app = typer.Typer()

_HEADER = (
    "version",
    "time (UTC)",
    "step",
    "action",
    "rows",
    "kept",
    "rejected",
    "tokens",
    "run",
    "recipe",
)


@app.command(
    epilog=options.examples(
        "etl history lake/documents",
    )
)
def history(table: options.TableArgument, *, as_json: options.AsJson = False) -> None:
    """List the versions of a table, newest first.

    Each line has the counts of the commit, and the run and the recipe that made it.
    """
    from etl.lake.table_versions import history as list_versions

    output.print_result(list_versions(table), lines, as_json=as_json)


def lines(versions: "History") -> Iterator[str]:
    """Yield a line for each version, after a header, and which log entries are gone."""
    from etl.lake.table_versions import lost_entries

    yield from output.columns(_HEADER, [_cells(each) for each in versions], numbers=(0, 4, 5, 6, 7))
    yield from lost_entries(versions, versions.newest)


def _cells(version: "Version") -> list[str]:
    cells = [str(version.version), f"{version.time:%Y-%m-%d %H:%M:%S}"]
    record = version.lineage
    if record is None:
        return [*cells, version.operation.lower(), "", "", "", "", "", "", ""]
    counts = record.counts
    rejected = sum(counts.rejected.values())
    numbers = [f"{counts.rows:,}"]
    numbers += [f"{n:,}{output.percent(n, counts.rows)}" for n in (counts.kept, rejected)]
    numbers += [f"{counts.tokens:,}"]
    made_by = [record.run_id, f"{record.recipe} {record.recipe_fingerprint[:12]}"]
    return [*cells, record.step, record.action, *numbers, *made_by]
