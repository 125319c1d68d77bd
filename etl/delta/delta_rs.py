"""Open Delta tables of any writer with delta-rs."""

import re
from dataclasses import dataclass
from urllib.parse import quote

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from etl import storage
from etl.delta import protocol
from etl.errors import StorageError, TableError, error_line

# Features that delta-rs handles, or that concern only writers.
_READER_FEATURES = protocol.PLAIN_FEATURES | {"v2Checkpoint", "vacuumProtocolCheck"}
_UNSUPPORTED = {
    False: re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]"),
    True: re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]^|\x00-\x1f\x7f]"),  # a local path
}
"""Whether a URL is local -> what delta-rs 1.6 cannot open in its path."""


@dataclass(frozen=True)
class ExternalTable:
    """A version of a Delta table that any program wrote: its id, its schema and its data files.

    ``files`` has ``path`` (string, as in the log), ``size`` (int64, bytes), ``rows`` (int64, null if unknown)
    and ``partition.NAME``.
    """

    url: str
    version: int
    id: str  # another table at the same URL has another id
    schema: pa.Schema
    files: pa.Table


def open_external(url: str, version: int | None = None) -> ExternalTable:
    """Open the newest or the given version of a table that another program may have written.

    Raises TableError if the table or version does not exist, or if its rows cannot be read from its
    data files alone.
    """
    url = storage.normalize(url)
    delta = open_delta_rs(url, version)
    required = delta.protocol()
    protocol.check_readable(
        url,
        {
            "minReaderVersion": required.min_reader_version,
            "readerFeatures": required.reader_features,
        },
        {"configuration": delta.metadata().configuration},
        features=_READER_FEATURES,
    )
    actions = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    actions = actions.rename_columns({"size_bytes": "size", "num_records": "rows"})
    own = ("path", "size", "rows")
    names = [n for n in actions.column_names if n in own or n.startswith("partition.")]
    return ExternalTable(
        url,
        delta.version(),
        str(delta.metadata().id),
        pa.schema(delta.schema().to_arrow()),
        actions.select(names).sort_by("path"),
    )


def open_delta_rs(url: str, version: int | None) -> deltalake.DeltaTable:
    """Open a table with delta-rs; raises TableError if the table or version does not exist."""
    try:
        delta = deltalake.DeltaTable(
            delta_rs_location(url), storage_options=storage.delta_options(url)
        )
        if version is not None:
            delta.load_as_version(version)
    except TableNotFoundError as error:
        raise TableError("no Delta table at this URL", where=url, hint="check the URL") from error
    except (DeltaError, OSError) as error:
        what = "cannot be opened" if version is None else f"has no version {version}"
        raise TableError(f"{what} ({error_line(error)})", where=url) from error
    return delta


def delta_rs_location(url: str) -> str:
    """Return the location of a table for delta-rs, which expects a percent-encoded URL.

    >>> delta_rs_location("s3://bucket/table #1")
    's3://bucket/table%20%231'

    Raises StorageError for the few paths that delta-rs 1.6 cannot open: it decodes a path twice.
    """
    protocol, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if match := _UNSUPPORTED[protocol == "file"].search(path):
        raise StorageError(
            f"delta-rs cannot open a table whose path contains {match[0]!r}",
            where=url,
            hint="copy the table to another folder",
        )
    return f"{protocol}://{authority}{slash}{quote(path)}"
