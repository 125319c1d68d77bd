"""Export the kept documents of a lake as Parquet or JSON Lines: the texts that are tokenized.

Duplicates are left out, and units that ``dedup_paragraphs`` removes are cut. Each file ``DIR/00000.parquet``
(or ``.jsonl.zst``) has documents of one data file of the lake, with the columns ``id``, ``source``, ``row``,
``text``, ``url``, ``lang``, ``lang_score``, ``metadata`` (JSON) and the signals (float64).

``DIR/_export.json`` is written last. It names the lake, its versions and its recipe; without it, the export
is incomplete. Memory: a row group of each of four data files, about 16 MB of text.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import zstandard

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake.commit_info import find_record
from etl.lake.dedup_decisions import RangeIndex, cut_rows, duplicate_rows, without_cuts
from etl.lake.ledger import find_ledger
from etl.lake.releases import tables_at
from etl.lake.work_units import kept_units
from etl.loader.version_lease import VersionLease
from etl.parquet.data_file_reader import read_row_groups
from etl.parquet.parquet_file import parquet_writer
from etl.recipe.recipe import Recipe
from etl.row_condition import check_condition
from etl.stages.dedup_base import find_cutting_stage

Format = Literal["parquet", "jsonl"]

EXTENSIONS: Final[Mapping[Format, str]] = {"parquet": "parquet", "jsonl": "jsonl.zst"}

_THREADS: Final = 4
_MANIFEST: Final = "_export.json"
_LEFT_OUT: Final = {*schemas.DEDUP_COLUMNS.names, "reason", "verdict"}


@dataclass(frozen=True, kw_only=True)
class DocumentsExport:
    """Exported documents, with the versions of the tables and the recipe behind them."""

    lake: str
    versions: dict[str, int]
    recipe: str | None
    fingerprint: str | None
    where: str | None
    to: str
    format: Format
    documents: int
    files: int


def export_documents(
    lake: str,
    to: str,
    *,
    file_format: Format = "parquet",
    where: str | None = None,
    version: int | str | None = None,
) -> DocumentsExport:
    """Write the kept documents of a lake for which an SQL condition is true to files in a folder.

    ``where`` is a condition over the exported columns, as in ``lang = 'de' AND num_words > 100``; a document
    for which it is null is left out. ``version`` is as in ``etl.report``. Raises TableError if the version
    does not exist, if the folder has files, if the condition is invalid, or if a run has not compared all
    documents yet.
    """
    url, target = storage.normalize(lake), storage.normalize(to)
    tables = tables_at(url, version)
    documents = _KeptDocuments(tables["documents"], tables.get("duplicates"), where)
    manifest = storage.join(target, _MANIFEST)
    if storage.find_files(target) or storage.file_info(manifest) is not None:
        hint = "name another folder, or delete its files"
        raise TableError("the folder has files", where=target, hint=hint)

    def write(part: tuple[int, str, str]) -> int:
        number, source, path = part
        uri = storage.join(target, f"{number:05}.{EXTENSIONS[file_format]}")
        return _write(uri, documents.schema, documents.read(source, path), file_format)

    lease = VersionLease(documents.table.url, documents.table.version)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            counts = list(pool.map(write, documents.parts()))
    finally:
        lease.end()
    record = find_record(documents.table)
    export = DocumentsExport(
        lake=url,
        versions={name: table.version for name, table in tables.items()},
        recipe=None if record is None else record.recipe,
        fingerprint=None if record is None else record.recipe_fingerprint,
        where=where,
        to=target,
        format=file_format,
        documents=sum(counts),
        files=sum(count > 0 for count in counts),
    )
    text = json.dumps(asdict(export), indent=2, ensure_ascii=False)
    storage.write_bytes(manifest, f"{text}\n".encode())
    return export


class _KeptDocuments:
    """The kept documents of a lake that are not duplicates, by data file."""

    def __init__(self, table: Table, duplicates: Table | None, where: str | None) -> None:
        self.table = table
        self.schema = pa.schema([field for field in table.schema if field.name not in _LEFT_OUT])
        self._duplicates = duplicates
        self._where = None if where is None else self._checked(where)
        self._decisions = RangeIndex(())
        self._cutting = None
        record = find_record(table)
        if duplicates is not None:
            files = duplicates.files("path", "min.source", "max.source")
            self._decisions = RangeIndex(
                (f["min.source"], f["max.source"], f["path"]) for f in files
            )
        if record is not None:
            recipe = Recipe.recorded(record.canonical, where=table.url)
            self._cutting = find_cutting_stage(recipe.dedup_stages)

    def parts(self) -> Iterator[tuple[int, str, str]]:
        """Yield a number, the input file and the path of each data file.

        Raises TableError if its documents have not been compared with others.
        """
        ledger = None if self._duplicates is None else find_ledger(self._duplicates)
        number = 0
        for unit in kept_units(self.table):
            if ledger is not None and not ledger.is_done(ledger.key(unit.key)):
                what = "duplicates among the newest documents have not been determined yet"
                hint = "finish the run: `etl run RECIPE`"
                raise TableError(what, where=self.table.url, hint=hint)
            for path in unit.paths:
                yield number, unit.source, path
                number += 1

    def read(self, source: str, path: str) -> Iterator[pa.Table]:
        """Yield the documents of a data file, one row group at a time."""
        left_out, cuts = np.empty(0, np.int64), None
        if self._duplicates is not None:
            files = self._duplicates.url, self._decisions.files_around(source), [path]
            left_out = duplicate_rows(*files)
            cuts = cut_rows(*files) if self._cutting is not None else None
        for stored in read_row_groups(self.table.url, path, self.schema):
            is_new = ~np.isin(np.asarray(stored["row"].combine_chunks()), left_out)
            rows = stored.filter(pa.array(is_new))
            if cuts is not None and self._cutting is not None:
                rows = without_cuts(rows, cuts, self._cutting)
            yield self._selected(rows)

    def _selected(self, rows: pa.Table) -> pa.Table:
        """Return the rows for which the condition is true."""
        if self._where is None:
            return rows
        is_true = pl.DataFrame(rows).select(keep=self._where.fill_null(value=False))["keep"]
        return rows.filter(is_true.to_arrow())

    def _checked(self, where: str) -> pl.Expr:
        types = pl.DataFrame(self.schema.empty_table()).schema
        try:
            check_condition(where, types)
        except ValueError as error:
            raise TableError(f"the condition is invalid: {error}", where="--where") from error
        return pl.sql_expr(where)


def _write(uri: str, schema: pa.Schema, tables: Iterator[pa.Table], file_format: Format) -> int:
    """Write documents to a file, unless there are none; return their number."""
    filled = (table for table in tables if table.num_rows)
    first = next(filled, None)
    if first is None:
        return 0
    count = 0
    with storage.open_output(uri) as output:
        if file_format == "parquet":
            with parquet_writer(output, schema) as writer:
                for table in chain([first], filled):
                    writer.write_table(table)
                    count += table.num_rows
        else:
            with zstandard.ZstdCompressor().stream_writer(output, closefd=False) as lines:
                for table in chain([first], filled):
                    lines.write(pl.DataFrame(table).write_ndjson().encode())
                    count += table.num_rows
    return count
