"""Open a table of tokens for a training or an export."""

from etl import storage
from etl.delta.table import Table
from etl.errors import LoaderError, TableError
from etl.lake.missing_tables import tables_of
from etl.lake.releases import open_version
from etl.lake.table_names import token_tables


def open_tokens(lake: str, version: int | str | None) -> Table:
    """Open the table ``tokens`` of a lake, or the token table at a URL, at a version as ``open_version``.

    Raises LoaderError if the table or the version does not exist.
    """
    url = storage.normalize(lake)
    candidates = (storage.join(url, "tokens"), url)
    table_url = next((candidate for candidate in candidates if Table.exists(candidate)), None)
    if table_url is None:
        named = [storage.join(url, name) for name in token_tables(tables_of(url))]
        hint = "use the URL of a lake whose recipe ends with `tokenize`"
        if named:
            hint = f"its tokenizers have names: use {' or '.join(named)}"
        raise LoaderError("no token table found here or in the folder tokens", where=url, hint=hint)
    try:
        return open_version(table_url, version)
    except TableError as error:
        raise LoaderError(error.what, where=error.where, hint=error.hint) from error
