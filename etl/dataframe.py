"""Read sources, apply stages, and read and write tables as Dask DataFrames, for notebooks.

These functions run the same code as ``etl.run``, with one difference: ``etl.run`` streams a split in batches,
and here a partition holds a whole split in memory.

>>> import etl                                                          # doctest: +SKIP
>>> documents = etl.read(etl.Source(path="data/*.parquet"))             # doctest: +SKIP
>>> etl.apply(documents, ["gopher_quality"]).reason.value_counts().compute()    # doctest: +SKIP
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, overload

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import MismatchError, RecipeError, TableError
from etl.lake.commit_info import to_commit_info
from etl.lake.releases import open_version
from etl.lake.table_specs import ARCHIVED_TOKENS, SPECS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.data_file_reader import fill_columns, read_columns
from etl.parquet.layout import Layout
from etl.recipe.recipe_errors import explain_stage_errors
from etl.recipe.stage_list import StageList, parse_stage
from etl.sources import Source, Split
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from etl.stages import Filter, Stage, Transform
from etl.stages.apply import apply as apply_stages
from etl.stages.document_columns import documents_schema
from etl.stages.function import Function

Stages = Sequence[Stage | str | Mapping[str, Any] | Callable[[Any], Any]]

_OTHER_LAYOUT = Layout(statistics=(), dictionary=("source",))  # of tables that are not of a lake


def read(source: Source | str) -> dd.DataFrame:
    """Return a source as a Dask DataFrame with the columns of ``schemas.RAW``, one partition per split.

    Nothing is read until the frame is computed. Raises SourceError if the source matches no files.
    """
    source = Source(path=source) if isinstance(source, str) else source
    splits = list(list_splits(source))
    cut = {split.uri for split in splits if split.first_row is None}
    uncounted = [split for split in splits if split.uri in cut]
    if uncounted:
        counts = dask.compute(*(dask.delayed(count_records)(split) for split in uncounted))
        numbered = number_splits(uncounted, counts)
        by_start = {(split.uri, split.start): split for split in numbered}
        splits = [by_start.get((split.uri, split.start), split) for split in splits]
    return dd.from_map(_read_split, splits, source=source, meta=_meta(schemas.RAW), label="read")


@overload
def apply(frame: dd.DataFrame, stages: Stages) -> dd.DataFrame: ...
@overload
def apply(frame: pa.Table, stages: Stages) -> pa.Table: ...
def apply(frame: dd.DataFrame | pa.Table, stages: Stages) -> dd.DataFrame | pa.Table:
    """Apply stages and return all documents, kept and rejected, with signals, reason and verdict.

    ``stages`` are filters and transforms, as objects or written as in a recipe. A function is a ``python``
    stage: any callable that takes a table of the documents still kept and returns a verdict for each, or with
    ``per: document`` a dict and one verdict. An Arrow table needs only the column ``text``; its rows are
    numbered unless it has the columns ``source`` and ``row``. Raises RecipeError for invalid stages, and for
    those that need a whole lake: deduplication and tokenize.

    >>> table = pa.table({"text": ["Too short.", "Long enough to be kept by this."]})
    >>> apply(table, [{"length": {"min_words": 5}}])["reason"].to_pylist()
    ['length.few_words', None]
    >>> is_long = lambda document: len(document["text"]) > 20
    >>> apply(table, [{"python": {"call": is_long, "per": "document"}}])["reason"].to_pylist()
    ['python.lambda', None]
    """
    parsed = _parse(stages)
    if others := [s.kind for s in parsed if not isinstance(s, Filter | Transform)]:
        raise RecipeError(
            f"{', '.join(others)} cannot be applied to a table or DataFrame: only filters and transforms can",
            hint=f"remove {', '.join(others)} here; `etl.run` applies all stages of a recipe to a lake",
        )
    if isinstance(frame, pa.Table):
        return apply_stages(_raw(frame), parsed)
    meta = _meta(documents_schema(parsed))
    return frame.map_partitions(_apply_stages, parsed, meta=meta)


def _parse(stages: Stages) -> tuple[Stage, ...]:
    """Return the stages as objects; raise RecipeError if one is invalid."""
    written = [parse_stage(stage) for stage in stages]
    values = [
        Function.of(stage.pop("call"), **stage)
        if isinstance(stage, dict) and callable(stage.get("call"))
        else stage
        for stage in written
    ]
    try:
        return TypeAdapter(StageList).validate_python(values)
    except ValidationError as error:
        raise explain_stage_errors(error) from error


def read_table(lake: str, name: str, version: int | str | None = None) -> dd.DataFrame:
    """Return a table of a lake as a Dask DataFrame, one partition per data file.

    ``version`` is a number or the name of a release. Raises TableError if the table or version does not
    exist.
    """
    url = storage.join(storage.normalize(lake), name)
    table = open_version(url, version)
    data_files = table.data_files()
    partitions = [n for n in data_files.column_names if n.startswith("partition.")]
    rows = data_files.select(["path", *partitions]).to_pylist()
    if not rows:
        return dd.from_pandas(_meta(table.schema), npartitions=1)
    return dd.from_map(
        _read_data_file, rows, url=table.url, schema=table.schema, meta=_meta(table.schema)
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
    created, with the schema for its name (documents, duplicates, keys, tokens) or, for other names, the
    schema of the frame. ``archive`` compresses tokens as far as possible, for tables that are stored rather
    than trained on. Raises TableError if the columns differ from the table's columns, and MismatchError if
    the table is managed by ``etl.run``.
    """
    url = storage.normalize(table_url)
    table = Table.open(url) if Table.exists(url) else None
    schema = _schema_of(frame, url) if table is None else table.schema
    if table is not None and table.transactions().get("recipe") is not None:
        raise MismatchError(
            "the table is managed by a recipe", where=url, hint="write to another URL"
        )
    spec = SPECS.get(url.rsplit("/", 1)[-1])
    layout = _OTHER_LAYOUT if spec is None else spec.layout
    if archive and spec is TOKENS:
        layout = ARCHIVED_TOKENS
    missing = set(schema.names) - set(frame.columns)
    extra = set(frame.columns) - set(schema.names)
    if missing or extra:
        raise TableError(
            "the columns differ from those of the table "
            f"(missing {sorted(missing)}, unknown {sorted(extra)})",
            where=url,
        )
    writer = _WritePartition(url, schema, layout, uuid.uuid4().hex)
    meta = pd.DataFrame({"result": pd.Series(dtype=object)})
    with dask.config.set({"dataframe.convert-string": False}):
        written = frame.map_partitions(writer, meta=meta, enforce_metadata=False)
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


def _raw(table: pa.Table) -> pa.Table:
    """Return the documents with the columns of ``schemas.RAW``; missing ones get defaults."""
    if "text" not in table.column_names:
        names = ", ".join(table.column_names)
        raise TableError("the table has no column 'text'", hint=f"its columns are {names}")
    size = table.num_rows
    defaults = {
        "source": pa.repeat(pa.scalar("table"), size),
        "row": pa.array(range(size), pa.int64()),
    }
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else defaults.get(field.name, pa.nulls(size, field.type))
        for field in schemas.RAW
    ]
    return pa.table(columns, schema=schemas.RAW)


def _meta(schema: pa.Schema) -> pd.DataFrame:
    return to_pandas(schema.empty_table())


def _read_split(split: Split, *, source: Source) -> pd.DataFrame:
    return to_pandas(pa.concat_tables([schemas.RAW.empty_table(), *read_split(split, source)]))


def _apply_stages(frame: pd.DataFrame, stages: Sequence[Stage]) -> pd.DataFrame:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if "media_type" not in table.column_names:  # as in documents that were read from a lake
        table = table.append_column("media_type", pa.nulls(len(table), pa.string()))
    return to_pandas(apply_stages(table, stages))


def _read_data_file(row: Mapping[str, str], *, url: str, schema: pa.Schema) -> pd.DataFrame:
    table = read_columns(url, row)
    for name, value in row.items():
        if name.startswith("partition."):
            column = pa.repeat(pa.scalar(value, pa.string()), table.num_rows)
            table = table.append_column(name.removeprefix("partition."), column)
    return to_pandas(fill_columns(table, schema))


def _schema_of(frame: dd.DataFrame, url: str) -> pa.Schema:
    """Return the schema of a new table, which depends on its name."""
    own = pa.Schema.from_pandas(frame._meta, preserve_index=False).remove_metadata()
    name = url.rsplit("/", 1)[-1]
    if name == "documents":
        known = {*schemas.documents([], schemas.DEDUP_COLUMNS).names}
        signals = [name for name in own.names if name not in known]
        present = {schemas.CONTENT_HASH.name, *own.names}
        return schemas.documents(
            signals, [field for field in schemas.DEDUP_COLUMNS if field.name in present]
        )
    if name == "duplicates":
        return schemas.duplicates(
            has_references="keeper_lake" in own.names,
            has_cuts="cut" in own.names,
            has_estimates="is_estimate" in own.names,
        )
    return {"keys": schemas.KEYS, "tokens": schemas.TOKENS}.get(name, own)


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
