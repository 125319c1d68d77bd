"""Errors for a URL without a lake or a table, with the URL that was probably meant."""

from etl import storage
from etl.delta.table import Table
from etl.errors import TableError, nearest_names
from etl.lake.table_names import table_names


def lake_url(lake: str) -> str:
    """Return the normalized URL of a lake; raise TableError if there is none."""
    url = storage.normalize(lake)
    if not Table.exists(storage.join(url, "documents")):
        raise no_lake_error(url)
    return url


def no_lake_error(url: str) -> TableError:
    """Return the error for a URL that does not name a lake."""
    hint = "check the URL; `etl run` creates lakes"
    if Table.exists(url):
        hint = _hint_for_table(url)
    elif url.endswith((".yaml", ".yml")):
        hint = "this is a recipe: give the URL of the lake that it names"
    return TableError("no lake at this URL", where=url, hint=hint)


def hint_for_missing_table(url: str) -> str:
    """Return the tables that a URL without a table may mean: those below it, or those beside it."""
    if names := tables_of(url):
        return f"this is a lake: give one of its tables, {', '.join(f'{url}/{n}' for n in names)}"
    lake, _, name = url.rpartition("/")
    if Table.exists(lake):
        return _hint_for_table(lake)
    names = tables_of(lake)
    return nearest_names(name, names) or "check the URL; a lake's tables are LAKE/documents, ..."


def _hint_for_table(url: str) -> str:
    lake, _, name = url.rpartition("/")
    return f"{name!r} is a table of a lake: give {lake}"


def tables_of(lake: str) -> list[str]:
    """Return the names of the tables that there are below a URL."""
    return [name for name in table_names(lake) if Table.exists(storage.join(lake, name))]
