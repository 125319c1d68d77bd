"""Open Delta tables of any writer with delta-rs, and refuse features that plain readers ignore."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from etl import storage
from etl.errors import StorageError, TableError, error_line

_UNSUPPORTED = {
    False: re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]"),
    True: re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]^|\x00-\x1f\x7f]"),  # a local path
}
"""Whether a URL is local -> what delta-rs 1.6 cannot open in its path."""


@dataclass(frozen=True)
class ExternalTable:
    """The schema and data files of a Delta table that any program wrote.

    ``files`` has ``path`` (string, as in the log), ``size`` (int64, bytes) and ``partition.NAME``.
    """

    url: str
    schema: pa.Schema
    files: pa.Table


def open_external(url: str, version: int | None = None) -> ExternalTable:
    """Open the newest or the given version of a table that another program may have written.

    Raises TableError if the table or version does not exist, or if its rows cannot be read from its
    data files alone.
    """
    url = storage.normalize(url)
    delta = open_delta_rs(url, version)
    features = set(delta.protocol().reader_features or ())
    check_supported_features(url, delta.metadata().configuration, features - {"v2Checkpoint"})
    try:
        delta.to_pyarrow_dataset()  # refuses tables that plain Parquet readers would read wrongly
    except Exception as error:
        raise _not_plain(url, error_line(error)) from error
    actions = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    actions = actions.rename_columns({"size_bytes": "size"})
    names = [n for n in actions.column_names if n in ("path", "size") or n.startswith("partition.")]
    files = actions.select(names).sort_by("path")
    return ExternalTable(url, pa.schema(delta.schema().to_arrow()), files)


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


def check_supported_features(
    url: str, properties: Mapping[str, Any], features: Iterable[str]
) -> None:
    """Raise TableError if data files and classic checkpoints alone would give wrong rows."""
    unsupported = {"deletionVectors", "v2Checkpoint"} & set(features)
    if properties.get("delta.columnMapping.mode", "none") != "none":
        unsupported |= {"columnMapping"}
    if unsupported:
        raise _not_plain(url, ", ".join(sorted(unsupported)))


def _not_plain(url: str, why: str) -> TableError:
    return TableError(
        f"the table uses unsupported Delta features ({why})",
        where=url,
        hint="rewrite the table without these features",
    )


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
