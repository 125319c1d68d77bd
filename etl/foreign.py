"""Delta tables as delta-rs reads them: those of other programs, with all that the protocol knows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from etl import storage
from etl.errors import StorageError, TableError, said


@dataclass(frozen=True)
class Foreign:
    """A Delta table of any program, as delta-rs reads it: schema, and data files.

    ``files`` has ``path`` (string, as the log spells it), ``size`` (int64, bytes) and ``partition.NAME``.
    """

    url: str
    schema: pa.Schema
    files: pa.Table


def open_foreign(url: str, version: int | None = None) -> Foreign:
    """Open a table that another program may have written, at its newest version or another.

    Raises TableError if there is none, or if its data files are not all that there is to its rows.
    """
    url = storage.normalize(url)
    delta = opened(url, version)
    features = set(delta.protocol().reader_features or ())
    check_plain(url, delta.metadata().configuration, features - {"v2Checkpoint"})
    try:
        delta.to_pyarrow_dataset()  # refuses what plain Parquet readers would read wrongly
    except Exception as error:
        raise _not_plain(url, said(error)) from error
    actions = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    actions = actions.rename_columns({"size_bytes": "size"})
    names = [n for n in actions.column_names if n in ("path", "size") or n.startswith("partition.")]
    files = actions.select(names).sort_by("path")
    return Foreign(url, pa.schema(delta.schema().to_arrow()), files)


def opened(url: str, version: int | None) -> deltalake.DeltaTable:
    """A table as delta-rs holds it; raises TableError if there is none, or no such version."""
    try:
        delta = deltalake.DeltaTable(place(url), storage_options=storage.delta_options(url))
        if version is not None:
            delta.load_as_version(version)
    except TableNotFoundError as error:
        raise TableError("there is no Delta table", where=url, hint="check the URL") from error
    except (DeltaError, OSError) as error:
        what = "cannot be opened" if version is None else f"has no version {version}"
        raise TableError(f"{what} ({said(error)})", where=url, hint="see `etl history`") from error
    return delta


def check_plain(url: str, properties: Mapping[str, Any], features: Iterable[str]) -> None:
    """Raise TableError for what is read wrongly from data files and classic checkpoints alone."""
    found = {"deletionVectors", "v2Checkpoint"} & set(features)
    if properties.get("delta.columnMapping.mode", "none") != "none":
        found |= {"columnMapping"}
    if found:
        raise _not_plain(url, ", ".join(sorted(found)))


def _not_plain(url: str, why: str) -> TableError:
    return TableError(
        f"its data files cannot be read by themselves ({why})",
        where=url,
        hint="write the table anew without deletion vectors and column mapping",
    )


def place(url: str) -> str:
    """A table's URL as delta-rs takes it: of a local one the path, in which # and ? are letters."""
    if not storage.is_local(url):
        return url
    if re.search("%[0-9A-Fa-f]{2}", url):
        raise StorageError(
            "a local lake may not have an escape like %20 in its path", where=url, hint="rename it"
        )
    return str(storage.local_path(url))
