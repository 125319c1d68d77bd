"""Export the kept documents of a lake as Parquet or JSON Lines: the texts that are tokenized.

Duplicates are left out, and units that ``dedup_paragraphs`` removes are cut. Each file ``DIR/00000.parquet``
(or ``.jsonl.zst``) has documents of one split of the input, with the columns ``id``, ``source``, ``row``,
``text``, ``url``, ``lang``, ``lang_score``, ``metadata`` (JSON) and the signals (float64).

``DIR/_export.json`` is written last. It names the lake, its versions and its recipe; without it, the export
is incomplete. Memory: for each of four splits, a row group of 4 MB of text, and all other columns.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import zstandard

from etl import schemas, storage
from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake.commit_info import find_record
from etl.lake.dedup_decisions import cut_rows, duplicate_rows, without_cuts
from etl.lake.open_ledger import find_ledger
from etl.lake.releases import tables_at
from etl.lake.row_ranges import RangeIndex, read_source, take_rows
from etl.lake.work_units import WorkUnit, kept_units
from etl.loader.version_lease import VersionLease
from etl.parquet.parquet_file import parquet_writer
from etl.recipe.recipe import Recipe
from etl.row_condition import check_condition
from etl.stages.dedup_base import find_cutting_stage

Format = Literal["parquet", "jsonl"]

EXTENSIONS: Final[Mapping[Format, str]] = {"parquet": "parquet", "jsonl": "jsonl.zst"}

_THREADS: Final = 4
_MANIFEST: Final = "_export.json"
_FIRST: Final = ("id", *schemas.ADDRESS)  # the columns before the text
_LEFT_OUT: Final = {schemas.CONTENT_HASH.name, "reason", "verdict"}


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
    documents = _KeptDocuments(tables, where)
    manifest = storage.join(target, _MANIFEST)
    if storage.find_files(target) or storage.file_info(manifest) is not None:
        hint = "name another folder, or delete its files"
        raise TableError("the folder has files", where=target, hint=hint)

    def write(part: tuple[int, WorkUnit]) -> int:
        number, unit = part
        uri = storage.join(target, f"{number:05}.{EXTENSIONS[file_format]}")
        return _write(uri, documents.schema, documents.read(unit), file_format)

    with ExitStack() as leases, ThreadPoolExecutor(_THREADS) as pool:
        for table in (documents.table, documents.texts):
            leases.callback(VersionLease(table.url, table.version).end)
        counts = list(pool.map(write, documents.parts()))
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
    """The kept documents of a lake that are not duplicates, by unit of work."""

    def __init__(self, tables: Mapping[str, Table], where: str | None) -> None:
        self.table, self.texts = tables["documents"], tables["texts"]
        self._stored = [field for field in self.table.schema if field.name not in _LEFT_OUT]
        first, rest = self._stored[: len(_FIRST)], self._stored[len(_FIRST) :]
        self.schema = pa.schema([*first, self.texts.schema.field("text"), *rest])
        self._duplicates = duplicates = tables.get("duplicates")
        self._where = None if where is None else self._checked(where)
        self._documents = RangeIndex.of(self.table, verdict="kept")
        self._decisions = RangeIndex(()) if duplicates is None else RangeIndex.of(duplicates)
        self._cutting = None
        record = find_record(self.table)
        if record is not None:
            recipe = Recipe.recorded(record.canonical, where=self.table.url)
            self._cutting = find_cutting_stage(recipe.dedup_stages)

    def parts(self) -> Iterator[tuple[int, WorkUnit]]:
        """Yield each unit of work with a number.

        Raises TableError if its documents have not been compared with others.
        """
        ledger = None if self._duplicates is None else find_ledger(self._duplicates)
        for number, unit in enumerate(kept_units(self.texts)):
            if ledger is not None and not ledger.is_done(ledger.key(unit.key)):
                what = "duplicates among the newest documents have not been determined yet"
                hint = "finish the run: `etl run RECIPE`"
                raise TableError(what, where=self.table.url, hint=hint)
            yield number, unit

    def read(self, unit: WorkUnit) -> Iterator[pa.Table]:
        """Yield the documents of a unit, one row group of texts at a time."""
        left_out, cuts = np.empty(0, np.int64), None
        if self._duplicates is not None:
            listed = self._duplicates.url, self._decisions.files_between(*unit.span), unit.key
            left_out = duplicate_rows(*listed)
            cuts = cut_rows(*listed) if self._cutting is not None else None
        url, files = self.table.url, self._documents.files_between(*unit.span)
        documents = read_source(url, files, unit.source, pa.schema(self._stored))
        for texts in (group for file in unit.files for group in self._texts_in(file)):
            is_new = ~np.isin(np.asarray(texts["row"].combine_chunks()), left_out)
            rows = texts.filter(pa.array(is_new))
            if cuts is not None and self._cutting is not None:
                rows = without_cuts(rows, cuts, self._cutting)
            found = take_rows(documents, rows["row"], url)
            yield self._selected(
                found.append_column("text", rows["text"]).select(self.schema.names)
            )

    def _texts_in(self, file: LogicalFile) -> Iterator[pa.Table]:
        return read_live_row_groups(self.texts.url, file, ["row", "text"])

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
