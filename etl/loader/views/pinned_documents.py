"""The version of ``documents`` that a version of a token table was made from."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import pyarrow as pa

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import LoaderError, TableError, nearest_names
from etl.lake import releases
from etl.lake.commit_info import fields_of, input_versions
from etl.loader.fetch.range_requests import VERIFY, Ranges, Remote, open_file
from etl.loader.fetch.table_index import TableIndex
from etl.parquet.data_file_reader import fill_columns
from etl.parquet.parquet_file import open_parquet
from etl.plural import many

_REMOTE_THREADS = 16
_LOCAL_THREADS = 4  # of which Arrow and Polars compute without the GIL

RowGroups = Iterator[pa.Table]
"""The rows of a data file, one row group at a time."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RowFile:
    """A data file of a table, with the number of its first row among the rows of the table."""

    path: str
    size: int
    first: int
    rows: int


@dataclass(frozen=True)
class PinnedTable:
    """The rows of a table version that are in some of its data files, numbered in the order of these.

    Struck rows are among them.
    """

    url: str
    version: int
    schema: pa.Schema
    files: Sequence[RowFile]
    remote: Remote | None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.files[-1].first + self.files[-1].rows if self.files else 0

    def uri(self, file: RowFile) -> str:
        """Return the URI of a data file."""
        return storage.join(self.url, file.path)

    def digest(self) -> str:
        """Return a hash of the data files, which identify the rows and their numbers."""
        names = [f"{file.path} {file.rows}" for file in self.files]
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise LoaderError for a column that the table does not have."""
        for name in names:
            if name not in self.schema.names:
                raise LoaderError(
                    f"the table has no column {name!r}",
                    where=self.url,
                    hint=nearest_names(name, self.schema.names),
                )

    def read(
        self, columns: Sequence[str], function: Callable[[RowGroups], _Result]
    ) -> Iterator[tuple[RowFile, _Result]]:
        """Yield what a function makes of the rows of each data file, in the order of the files.

        It gets the rows of one row group at a time, and is called in threads. Raises LoaderError if a file
        is damaged or has another number of rows than the log says.
        """

        def call(file: RowFile) -> tuple[RowFile, _Result]:
            return file, function(self._row_groups(file, list(columns)))

        return _in_order(
            call, self.files, _LOCAL_THREADS if self.remote is None else _REMOTE_THREADS
        )

    def _row_groups(self, file: RowFile, columns: list[str]) -> RowGroups:
        uri, done = self.uri(file), 0
        ranges = None if self.remote is None else Ranges(self.remote)
        schema = pa.schema([self.schema.field(name) for name in columns])
        with open_file(uri, file.size, ranges) as source:
            try:
                parquet = open_parquet(source, pre_buffer=ranges is not None)
                stored = [name for name in columns if name in parquet.schema_arrow.names]
                for number in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(number, stored, use_threads=False)
                    done += rows.num_rows
                    yield fill_columns(rows, schema)
            except (pa.ArrowException, OSError) as error:
                what = f"the columns {', '.join(columns)} cannot be read ({error})"
                raise LoaderError(what, where=uri, hint=VERIFY) from error
        if done != file.rows:
            raise LoaderError(
                f"the file has {many(done, 'row')}, but the log records {file.rows:,}",
                where=uri,
                hint=VERIFY,
            )


@dataclass(frozen=True)
class Pinned:
    """A token table, and the kept documents that it was made from."""

    tokens: PinnedTable
    documents: PinnedTable


def find_pinned(index: TableIndex) -> Pinned:
    """Return the tables behind a token table, at the versions that its lineage names.

    Raises LoaderError if the lineage names no version of ``documents``, or if that was vacuumed.
    """
    lake, _, name = index.url.rpartition("/")
    table = Table.open(index.url, index.version)
    versions = _versions_read_by(table)
    if (tokens := schemas.shuffled_from(name)) is not None and tokens in versions:
        versions = _versions_read_by(Table.open(storage.join(lake, tokens), versions[tokens]))
    if "documents" not in versions:
        raise LoaderError(
            "a view needs the table documents, but the lineage of the tokens names no version of it",
            where=index.url,
            hint="write the tokens with `etl run`, and keep the tables of a lake in one folder",
        )
    return Pinned(
        _pinned(table, index.remote, by=("path",)),
        _pin_documents(lake, versions["documents"], index.remote),
    )


def _versions_read_by(table: Table) -> Mapping[str, int]:
    """Return the newest version of each table that the rows of a table were made from."""
    versions: dict[str, int] = {}
    for entry in table.history():
        for name, version in input_versions(entry).items():
            versions[name] = max(version, versions.get(name, 0))
        if fields_of(entry).get("action") == "rebuild":
            break
    return versions


def _pin_documents(lake: str, version: int, remote: Remote | None) -> PinnedTable:
    try:
        table = releases.open_version(storage.join(lake, "documents"), version)
    except TableError as error:
        what = f"a view needs version {version} of documents, but {error.what}"
        raise LoaderError(what, where=error.where, hint=error.hint) from error
    # Neighbours in ``tokens`` are then neighbours here, too.
    return _pinned(table, remote, by=("min.source", "min.row", "path"), verdict="kept")


def _pinned(
    table: Table, remote: Remote | None, *, by: Sequence[str], verdict: str | None = None
) -> PinnedTable:
    partition = () if verdict is None else ("partition.verdict",)
    known = table.data_files().column_names
    by = [name for name in by if name in known]
    columns = list(dict.fromkeys(["path", "size", "physical_rows", *by, *partition]))
    entries = [
        entry
        for entry in table.files(*columns, by=by)
        if verdict is None or entry["partition.verdict"] == verdict
    ]
    firsts = accumulate((entry["physical_rows"] for entry in entries), initial=0)
    files = [
        RowFile(entry["path"], entry["size"], first, entry["physical_rows"])
        for entry, first in zip(entries, firsts, strict=False)
    ]
    names = [name for name in table.schema.names if name not in table.partition_columns]
    schema = pa.schema([table.schema.field(name) for name in names])
    return PinnedTable(table.url, table.version, schema, files, remote)


def _in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """Yield the results of calls in threads, in the order of the items; few are ahead of the reader."""
    threads = min(threads, os.cpu_count() or 1) if threads == _LOCAL_THREADS else threads
    ahead: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
