"""Rows of the tables of a lake, in an order that does not depend on its files."""

from etl import storage
from etl.delta.table import Table
from etl.recipe.recipe import Recipe

Row = dict[str, object]


def rows(lake: str | None, name: str, version: int | None = None) -> list[Row]:
    """Return all rows of a table sorted by address, without columns that depend on the data files."""
    table = Table.open(storage.join(str(lake), name), version).dataset().to_table()
    varying = ("unit", "token_end")  # the position of a row, not its content
    contents = [{k: v for k, v in row.items() if k not in varying} for row in table.to_pylist()]
    return sorted(contents, key=lambda row: (row["source"], row["row"]))


def judged(lake: str | None) -> list[Row]:
    """Return the rows of ``documents`` with the columns of ``texts``; without a row, ``text`` is None."""
    texts = {(row["source"], row["row"]): row for row in rows(lake, "texts")}
    documents = rows(lake, "documents")
    return [{"text": None} | texts.get((r["source"], r["row"]), {}) | r for r in documents]


def rows_by_table(recipe: Recipe) -> dict[str, list[Row]]:
    """Return the rows of all tables of a recipe's lake."""
    return {name: rows(recipe.lake, name) for name in recipe.steps}


def addresses(table: list[Row]) -> list[tuple[object, object]]:
    return [(row["source"], row["row"]) for row in table]


def names(table: list[Row]) -> list[Row]:
    """Return rows with URIs shortened to file names."""
    uris = {"source", "keeper_source"}
    return [{k: str(v).rsplit("/", 1)[-1] if k in uris else v for k, v in r.items()} for r in table]
