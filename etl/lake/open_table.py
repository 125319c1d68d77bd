"""Open the tables of a lake by URL or by name; a table of another format version is refused."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from typing import Final

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import DamagedLogError, TableError
from etl.lake.commit_info import check_format
from etl.lake.missing_tables import hint_for_missing_table

_COLUMNS: Final[Mapping[str, AbstractSet[str]]] = {
    "documents": {"source", "row", "verdict"},
    "texts": {"source", "row", "text"},
    "tokens": {"source", "row", "tokens"},
}
"""Columns by which a lake's table is recognized."""


def open_table(url: str, version: int | datetime | None = None) -> Table:
    """Open a table at the newest or the given version, as ``Table.open`` does.

    Raises TableError also if the table was written in another format version.
    """
    try:
        table = _checked(url, partial(Table.open, url, version))
    except DamagedLogError:
        raise
    except TableError as error:
        if Table.exists(url):
            raise
        hint = hint_for_missing_table(storage.normalize(url))
        raise TableError(error.what, where=error.where, hint=hint) from error
    assert table is not None
    return table


def find_table(url: str) -> Table | None:
    """Open a table at its newest version as ``open_table`` does; return None if it does not exist."""
    return _checked(url, partial(Table.find, url))


def _checked(url: str, read: Callable[[], Table | None]) -> Table | None:
    """Return the table that ``read`` opens; raise TableError if it is not what this release reads."""
    lake, _, name = storage.normalize(url).rpartition("/")
    try:
        table = read()
        if table is not None:
            _check_name(table, name)
            _check_columns(table, name)
    except DamagedLogError as error:
        hint = f"`etl repair {lake} --yes` restores the log; `etl run` then does lost work again"
        raise DamagedLogError(error.what, where=error.where, hint=hint) from error
    if table is not None:
        check_format(table)
    return table


def _check_name(table: Table, name: str) -> None:
    """Raise DamagedLogError if a table of a lake was created as another one: its checkpoint is another's."""
    if schemas.kind_of(name) in schemas.TABLES and table.name not in (None, name):
        what = f"the log has a checkpoint of another table, {table.name!r}"
        raise DamagedLogError(what, where=table.url)


def _check_columns(table: Table, name: str) -> None:
    """Raise TableError if a table has the name of a lake's, and is another program's."""
    if missing := _COLUMNS.get(schemas.kind_of(name), set()) - {*table.schema.names}:
        raise TableError(
            f"not a table of Tokenlake: it has no column {min(missing)!r}",
            where=table.url,
            hint="give a lake that `etl run` has written; to read this table, make it a recipe's source",
        )
