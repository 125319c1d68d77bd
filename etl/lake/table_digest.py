"""The digest of a table: of its live rows, as the sum of the digests of its data files.

The log has the digest of each data file that Tokenlake wrote. The record of a commit has the digest of the
table after it: the one before, plus the digests of the files that the commit adds, minus the digests of the
files that it removes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from etl import schemas
from etl.delta.deletion_vectors import read_struck
from etl.delta.live_rows import read_live_row_groups
from etl.delta.table import Table
from etl.errors import StorageError, TableError
from etl.lake.commit_info import fields_of, is_ours, to_commit_info
from etl.parquet.data_file import DataFile
from etl.parquet.data_file_reader import Positions, open_data_file
from etl.parquet.row_digests import add_digests, digest_rows, digests_by, from_hex, to_hex


def not_digested(url: str) -> Collection[str]:
    """Return the columns of the table at a URL that its digest leaves out."""
    return schemas.NOT_DIGESTED.get(schemas.kind_of(url.rpartition("/")[2]), ())


def _digested(table: Table) -> pa.Schema:
    """Return the columns of data files that a digest has: neither texts nor tokens need be read."""
    left_out = {*not_digested(table.url), *table.partition_columns}
    return pa.schema([field for field in table.schema if field.name not in left_out])


def table_digest(table: Table) -> int:
    """Return the digest of the live rows of a table; raise as ``file_digest`` does."""
    return add_digests(file_digest(table, file) for file in list_files(table))


def file_digest(table: Table, file: Mapping[str, Any]) -> int:
    """Return the digest of the live rows of a data file, given its entry in the list of data files.

    The log has the digest of all rows of the file, from which the struck ones, which are read, are
    subtracted. If it has none, as for the files of other programs, the live rows are read. Raises
    StorageError or TableError if the file cannot be read.
    """
    if is_digest_known(file):
        return from_hex(file["digest"])
    if file["digest"] is not None:
        struck = _digest_at(table, file, read_struck(table.url, file))
        return add_digests([from_hex(file["digest"]), -struck])
    values = partition_values(file)
    groups = read_live_row_groups(table.url, file, _digested(table))
    return add_digests(digest_rows(rows, values=values) for rows in groups)


def _digest_at(table: Table, file: Mapping[str, Any], positions: Positions) -> int:
    """Return the digest of rows of a data file, struck or not, given by position."""
    others = np.setdiff1d(np.arange(file["physical_rows"]), positions, assume_unique=True)
    columns, values = _digested(table), partition_values(file)
    with open_data_file(table.url, file, columns, struck=others) as opened:
        parts = [opened.row_group(group) for group in opened.groups_at(positions)]
    return digest_rows(pa.concat_tables([columns.empty_table(), *parts]), values=values)


def digests_by_source(table: Table, file: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Read the live rows of a data file, and yield sources with a number of their rows and its digest.

    A source may occur more than once. Raises as ``file_digest`` does.
    """
    values = partition_values(file)
    for rows in read_live_row_groups(table.url, file, _digested(table)):
        parts = digests_by(rows, "source", values=values)
        for source, (count, digest) in parts.items():
            yield source, count, digest


def only_source(file: Mapping[str, Any]) -> str | None:
    """Return the source of all rows of a data file, given its entry; None if the log does not name one."""
    source: str | None = file.get("min.source")
    is_only = file["rows"] is not None and source == file.get("max.source")
    return source if is_only else None


def is_digest_known(file: Mapping[str, Any]) -> bool:
    """Return whether the log has the digest of the live rows of a data file, given its entry."""
    return file["digest"] is not None and file["vector"] is None


def list_files(table: Table, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of data files with the columns that the functions here need, and others."""
    partition = (f"partition.{name}" for name in table.partition_columns)
    return table.files("path", "digest", "vector", "physical_rows", *partition, *columns, by=())


def partition_values(file: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the values of the partition columns of a data file, given its entry."""
    prefix = "partition."
    return {name.removeprefix(prefix): file[name] for name in file if name.startswith(prefix)}


def recorded_digest(table: Table) -> int | None:
    """Return the digest in the record of the newest commit; None if it has none."""
    info = next(table.history(), {})
    is_known = info.get("version") == table.version and is_ours(info) and not table.is_remains
    digest = fields_of(info).get("digest") if is_known else None
    return None if digest is None else from_hex(digest)


def describe_commit(
    table: Table,
    record: schemas.Lineage | None,
    add: Sequence[DataFile],
    remove: Collection[str] | None,
) -> dict[str, Any]:
    """Return the ``commitInfo`` of a commit on a version of a table: its record, with the digest after it.

    ``remove`` has the paths of the files that the commit removes; None: all. The digest is null if rows that
    it requires cannot be read. Cost: a pass over the list of data files if some are removed, or if the newest
    record has no digest.
    """
    if record is None:
        return to_commit_info({})
    try:
        before = 0 if remove is None else _digest_without(table, remove)
        digest = to_hex(add_digests([before, *(_added_digest(table, file) for file in add)]))
    except (StorageError, TableError):  # a damaged file can be dropped nevertheless
        digest = None
    return to_commit_info({**record.model_dump(mode="json"), "digest": digest})


def _digest_without(table: Table, paths: Collection[str]) -> int:
    """Return the digest of a table without some of its data files."""
    before, removed = recorded_digest(table), {*paths}
    if before is None:
        return sum(file_digest(table, f) for f in list_files(table) if f["path"] not in removed)
    files = list_files(table) if removed else ()
    return before - sum(file_digest(table, file) for file in files if file["path"] in removed)


def _added_digest(table: Table, file: DataFile) -> int:
    values = {f"partition.{name}": value for name, value in file.partition.items()}
    entry = {"path": file.path, "vector": file.vector, "digest": file.digest}
    return file_digest(table, {**entry, "physical_rows": file.rows, **values})
