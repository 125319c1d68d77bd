"""Rows of the tables of a lake, in an order that does not depend on its files."""

import pyarrow as pa

from etl import storage
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.recipe.recipe import Recipe

Row = dict[str, object]


def rows(lake: str | None, name: str, version: int | None = None) -> list[Row]:
    """Return all rows of a table sorted by address, without columns that depend on the data files."""
    table = Table.open(storage.join(str(lake), name), version)
    varying = ("file", "token_end")  # the position of a row, not its content
    contents: list[Row] = []
    for file in table.data_files().to_pylist():
        partition = {name: file[f"partition.{name}"] for name in table.partition_columns}
        stored = [field for field in table.schema if field.name not in partition]
        live = read_live_rows(table.url, file, pa.schema(stored)).drop_columns(
            [name for name in varying if name in table.schema.names]
        )
        contents += [{**row, **partition} for row in live.to_pylist()]
    return sorted(contents, key=lambda row: (str(row["source"]), int(str(row["row"]))))


def rows_by_table(recipe: Recipe) -> dict[str, list[Row]]:
    """Return the rows of all tables of a recipe's lake."""
    return {name: rows(recipe.lake, name) for name in recipe.steps}


def addresses(table: list[Row]) -> list[tuple[object, object]]:
    return [(row["source"], row["row"]) for row in table]


def names(table: list[Row]) -> list[Row]:
    """Return rows with URIs shortened to file names."""
    uris = {"source", "keeper_source"}
    return [{k: str(v).rsplit("/", 1)[-1] if k in uris else v for k, v in r.items()} for r in table]
