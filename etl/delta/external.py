"""Open Delta tables of any writer with delta-rs, and refuse features that plain readers ignore."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from etl import storage
from etl.errors import StorageError, TableError, error_line


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
    features = set(delta.protocol().reader_features or ())
    check_supported_features(url, delta.metadata().configuration, features - {"v2Checkpoint"})
    try:
        delta.to_pyarrow_dataset()  # refuses tables that plain Parquet readers would read wrongly
    except Exception as error:
        raise _not_plain(url, error_line(error)) from error
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
    """Return the URL or local path of a table for delta-rs: in a path, # and ? are ordinary characters."""
    if not storage.is_local(url):
        return url
    if re.search("%[0-9A-Fa-f]{2}", url):
        raise StorageError(
            "a local path must not contain a percent escape like %20",
            where=url,
            hint="rename the folder",
        )
    return str(storage.local_path(url))
