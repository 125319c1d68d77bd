"""Reader for Delta tables: the data files of one version, each read as Parquet.

A table is a folder and is recognized by its ``_delta_log``, so the format has no extension.
"""

from collections.abc import Iterator
from urllib.parse import unquote

from etl import storage
from etl.delta.external import ExternalTable, open_external
from etl.errors import SourceError, TableError, nearest_names
from etl.sources.formats import parquet
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = ()
COMPRESSIBLE: bool = False

cut = parquet.cut
count_records = parquet.count_records
read = parquet.read

_PARTITION = "partition."


def list_data_files(url: str, source: Source) -> Iterator[Split]:
    """Yield one split per data file of the table, at the recipe's version or the newest.

    Raises SourceError if the table, the version or a column does not exist, or if the rows cannot be read
    from the data files alone (deletion vectors, column mapping).
    """
    try:
        table = open_external(url, source.version)
    except TableError as error:
        raise SourceError(error.what, where=error.where, hint=error.hint) from error
    _check_columns(table, source)
    keys = [name for name in table.files.column_names if name.startswith(_PARTITION)]
    for file in table.files.to_pylist():
        yield Split(
            uri=storage.join(table.url, unquote(file["path"])),
            size=file["size"],
            fingerprint=str(file["size"]),  # data files are immutable
            format="delta",
            bytes=file["size"],
            partition=tuple((key.removeprefix(_PARTITION), file[key]) for key in keys),
        )


def _check_columns(table: ExternalTable, source: Source) -> None:
    names, columns = table.schema.names, source.columns
    wanted = [columns.text, columns.id, columns.url]
    wanted += [] if source.metadata == "all" else source.metadata
    for name in wanted:
        if name is not None and name not in names:
            raise SourceError(
                f"the table has no column {name!r}",
                where=table.url,
                hint=nearest_names(name, names),
            )
