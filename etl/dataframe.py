"""Read sources and tables as Dask DataFrames, and write these to tables, for notebooks.

These functions run the same code as ``etl.run``, with one difference: ``etl.run`` streams a split in batches,
and here a partition holds a whole split in memory.

>>> import etl                                                          # doctest: +SKIP
>>> documents = etl.read(etl.Source(path="data/*.parquet"))             # doctest: +SKIP
>>> etl.apply(documents, ["gopher_quality"]).reason.value_counts().compute()    # doctest: +SKIP
"""

import uuid
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from etl import schemas, storage
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.errors import MismatchError, TableError
from etl.lake.commit_info import to_commit_info
from etl.lake.releases import open_version
from etl.lake.table_specs import ARCHIVED_TOKENS, SPECS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.data_file_reader import fill_columns
from etl.parquet.layout import Layout
from etl.sources import Source, Split
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split

_OTHER_LAYOUT = Layout(statistics=(), dictionary=("source",))  # of tables that are not of a lake


def read(source: Source | Mapping[str, Any] | str | Sequence[str]) -> dd.DataFrame:
    """Return a source as a Dask DataFrame with the columns of ``schemas.RAW``, one partition per split.

    ``source`` is a source, a dict of its settings, or its path or paths. Nothing is read until the frame is
    computed. Raises SourceError if the source matches no files.
    """
    if not isinstance(source, Source):
        source = Source(**(source if isinstance(source, Mapping) else {"path": source}))
    splits = list(list_splits(source))
    cut = {split.uri for split in splits if split.first_row is None}
    uncounted = [split for split in splits if split.uri in cut]
    if uncounted:
        counts = dask.compute(*(dask.delayed(count_records)(split) for split in uncounted))
        numbered = number_splits(uncounted, counts)
        by_start = {(split.uri, split.start): split for split in numbered}
        splits = [by_start.get((split.uri, split.start), split) for split in splits]
    return dd.from_map(_read_split, splits, source=source, meta=_meta(schemas.RAW), label="read")


def read_table(lake: str, name: str, version: int | str | None = None) -> dd.DataFrame:
    """Return a table of a lake as a Dask DataFrame, one partition per data file.

    ``version`` is a number or the name of a release. Raises TableError if the table or version does not
    exist.
    """
    url = storage.join(storage.normalize(lake), name)
    table = open_version(url, version)
    data_files = table.data_files()
    partitions = [n for n in data_files.column_names if n.startswith("partition.")]
    rows = data_files.select(["path", "vector", *partitions]).to_pylist()
    if not rows:
        return dd.from_pandas(_meta(table.schema), npartitions=1)
    return dd.from_map(
        _read_data_file,
        rows,
        url=table.url,
        schema=table.schema,
        meta=_meta(table.schema),
        label="read_table",
    )


def write(
    frame: dd.DataFrame,
    table_url: str,
    *,
    lineage: Mapping[str, Any] | None = None,
    archive: bool = False,
) -> int:
    """Append a DataFrame to a Delta table in one commit, and return the new version.

    Workers write their partitions as data files; the commit's record holds ``lineage``. A missing table is
    created; if it has the name of a table that a recipe fills, or of ``keys``, its columns have the types of
    that table, and ``documents`` may have the columns of ``texts``. All rows are stored as they are, also
    texts of rejected documents. ``archive`` compresses tokens as far as possible, for tables that are stored
    rather than trained on. Raises TableError if the columns differ from the table's, and MismatchError if the
    table is managed by ``etl.run``.
    """
    url = storage.normalize(table_url)
    table = Table.open(url) if Table.exists(url) else None
    schema = _schema_of(frame, url) if table is None else table.schema
    if table is not None and table.transactions().get("recipe") is not None:
        raise MismatchError(
            "the table is managed by a recipe", where=url, hint="write to another URL"
        )
    spec = SPECS.get(schemas.kind_of(url.rsplit("/", 1)[-1]))
    layout = _OTHER_LAYOUT if spec is None else spec.layout
    if archive and spec is TOKENS:
        layout = ARCHIVED_TOKENS
    missing = set(schema.names) - set(frame.columns)
    extra = set(frame.columns) - set(schema.names)
    if missing or extra:
        raise TableError(
            "the columns differ from the table's "
            f"(missing {sorted(missing)}, unknown {sorted(extra)})",
            where=url,
        )
    writer = _WritePartition(url, schema, layout, uuid.uuid4().hex)
    meta = pd.DataFrame({"result": pd.Series(dtype=object)})
    with dask.config.set({"dataframe.convert-string": False}):
        written = frame.map_partitions(
            writer,
            meta=meta,
            enforce_metadata=False,
            token="write_table",  # noqa: S106 - the name of the tasks
        )
        data_files = list(chain.from_iterable(dask.compute(*written.to_delayed())))
    table = Table.open(url) if Table.exists(url) else Table.create(url, schema, layout)
    return table.commit(
        data_files, transactions={}, commit_info=to_commit_info(lineage or {})
    ).version


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a DataFrame with Arrow-backed columns, without copying."""
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def to_arrow(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Convert a DataFrame to an Arrow table with the given schema."""
    return pa.Table.from_pandas(frame, preserve_index=False).select(schema.names).cast(schema)


def _meta(schema: pa.Schema) -> pd.DataFrame:
    return to_pandas(schema.empty_table())


def _read_split(split: Split, *, source: Source) -> pd.DataFrame:
    return to_pandas(pa.concat_tables([schemas.RAW.empty_table(), *read_split(split, source)]))


def _read_data_file(row: Mapping[str, str | None], *, url: str, schema: pa.Schema) -> pd.DataFrame:
    table = read_live_rows(url, row)
    for name, value in row.items():
        if name.startswith("partition."):
            column = pa.repeat(pa.scalar(value, pa.string()), table.num_rows)
            table = table.append_column(name.removeprefix("partition."), column)
    return to_pandas(fill_columns(table, schema))


def _schema_of(frame: dd.DataFrame, url: str) -> pa.Schema:
    """Return the schema of a new table: the columns of a lake's table of that name, then all others."""
    own = pa.Schema.from_pandas(frame._meta, preserve_index=False).remove_metadata()
    known = {
        "documents": schemas.judged([], schemas.DEDUP_COLUMNS),
        "texts": schemas.texts(schemas.DEDUP_COLUMNS),
        "duplicates": schemas.duplicates(has_references=True, has_cuts=True, has_estimates=True),
        "keys": schemas.KEYS,
        "tokens": schemas.TOKENS,
    }.get(schemas.kind_of(url.rsplit("/", 1)[-1]), pa.schema([]))
    fields = [field for field in known if field.name in own.names or not field.nullable]
    return pa.schema([*fields, *(field for field in own if field.name not in known.names)])


class _WritePartition:
    """Partition task that writes rows to data files, one per value of the partition column."""

    def __init__(self, url: str, schema: pa.Schema, layout: Layout, name: str) -> None:
        self._url, self._schema, self._layout, self._name = url, schema, layout, name

    def __call__(self, frame: pd.DataFrame) -> list[DataFile]:
        table = to_arrow(frame, self._schema)
        parts: list[tuple[dict[str, str], pa.Table]] = [({}, table)]
        for column in self._layout.partition_by:
            values = table[column].unique().to_pylist()
            parts = [
                ({column: v}, table.filter(pa.compute.equal(table[column], v))) for v in values
            ]
        data_files: list[DataFile] = []
        for partition, rows in parts:
            writer = DataFileWriter(
                self._url, self._schema, self._layout, name=self._name, partition=partition
            )
            writer.append(rows)
            data_files += writer.close()
        return data_files
