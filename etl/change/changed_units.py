"""Apply a changed recipe to the stored documents of a unit of work: their new rows."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.change.input_rows import InputUnit
from etl.change.judge import Judge
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.table_specs import DOCUMENTS
from etl.lake.unit_files import unit_files
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from etl.stages.apply import apply
from etl.stages.document_columns import judged_schema

UnitFiles = Sequence[Mapping[str, Any]]
"""The entries of a unit's data files in ``documents`` or ``texts``, as ``unit_files`` yields them."""


@dataclass(frozen=True, kw_only=True)
class UnitChange:
    """What a change of the recipe does to the documents of a unit, by their row numbers.

    The documents in ``by_text`` and ``by_input`` must be judged again: documents in ``by_text`` have a
    stored text, the others are read from the input.
    """

    leave: int  # kept now, and rejected by stored columns
    come: int  # rejected now, and kept by stored columns
    others: int  # rejected for another reason, or with other values
    by_text: frozenset[int]
    by_input: frozenset[int]
    filled: frozenset[str] = frozenset()  # columns that some document has a value in

    @property
    def is_empty(self) -> bool:
        """Whether no document changes."""
        return not (self.leave or self.come or self.others or self.is_open)

    @property
    def is_open(self) -> bool:
        """Whether documents must be judged again."""
        return bool(self.by_text or self.by_input)


def files_by_unit(table: Table) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of the data files of ``documents`` or ``texts`` by unit."""
    by_unit: dict[str, list[dict[str, Any]]] = {}
    for file in unit_files(table, "partition.verdict"):
        by_unit.setdefault(file["unit"], []).append(file)
    return by_unit


def read_rows(table: Table, files: UnitFiles, columns: Sequence[str] | None = None) -> pa.Table:
    """Return live rows of a unit with their verdict, in the order of ``row``."""
    parts = []
    for file in files:
        rows = read_live_rows(table.url, file, None if columns is None else [*columns])
        verdict = pa.repeat(pa.scalar(file["partition.verdict"]), rows.num_rows)
        parts.append(rows.append_column("verdict", verdict))
    joined = pa.concat_tables(parts)
    return joined.take(pc.sort_indices(joined["row"]))


@dataclass(frozen=True, kw_only=True)
class JudgedUnit:
    """The stored documents of a unit, and what another recipe makes of them: ``Judge.judge``."""

    stored: pa.Table
    judged: pl.DataFrame
    change: UnitChange


def judge_unit(
    judge: Judge,
    table: Table,
    files: UnitFiles,
    columns: Sequence[str] | None = None,
    *,
    has_texts: bool,
) -> JudgedUnit:
    """Judge the documents of a unit by the new recipe.

    ``columns`` are read, at least ``judge.reads``; None: all, which ``new_rows`` needs. ``has_texts`` says
    whether the stored texts are as in the input. Raises TableError if the old recipe does not give the stored
    reasons.
    """
    stored = read_rows(table, files, columns)
    frame = pl.DataFrame(stored)
    judged = judge.judge(frame)
    change = _change(frame, judged, has_texts=has_texts)
    return JudgedUnit(stored=stored, judged=judged, change=change)


def _change(frame: pl.DataFrame, judged: pl.DataFrame, *, has_texts: bool) -> UnitChange:
    now, then, is_known = frame["reason"], judged["then"], judged["is_known"]
    leave = is_known & now.is_null() & then.is_not_null()
    come = is_known & now.is_not_null() & then.is_null()
    others = is_known & ~leave & ~come & ~now.eq_missing(then)
    for name in judged.columns:
        if name in frame.columns:  # otherwise the schema changes, and with it all units
            others |= is_known & ~leave & ~come & ~judged[name].eq_missing(frame[name])
    has_text = now.is_null() if has_texts else pl.repeat(False, frame.height, eager=True)
    return UnitChange(
        leave=int(leave.sum()),
        come=int(come.sum()),
        others=int(others.sum()),
        by_text=frozenset(frame["row"].filter(~is_known & has_text).to_list()),
        by_input=frozenset(frame["row"].filter(~is_known & ~has_text).to_list()),
        filled=frozenset(each.name for each in judged if each.null_count() < len(each)),
    )


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Reads records of units as a source does, from stored texts and from the input, and judges them."""

    recipe: Recipe
    documents: Table
    texts: Table | None
    text_files: Mapping[str, UnitFiles]
    inputs: Mapping[str, InputUnit]

    def judged(
        self, unit: str, files: UnitFiles, *, by_text: Collection[int], by_input: Collection[int]
    ) -> pa.Table:
        """Return rows of a unit as the recipe judges them, in the schema of ``judged_schema``."""
        schema = judged_schema(self.recipe.stages)
        batches: Iterator[pa.Table] = iter(())
        if by_input:
            batches = self.inputs[unit].read(self.recipe, by_input)
        if by_text:
            batches = chain(batches, self._stored(unit, files, by_text))
        judge = self._apply
        return pa.concat_tables([schema.empty_table(), *map(judge, batches)])

    def _apply(self, batch: pa.Table) -> pa.Table:
        return apply(batch, self.recipe.stages, rejected=self.recipe.rejected)

    def _stored(self, unit: str, files: UnitFiles, rows: Collection[int]) -> Iterator[pa.Table]:
        """Yield kept rows with their stored texts, in batches of ``schemas.RAW``."""
        assert self.texts is not None
        wanted = pa.array(sorted(rows), pa.int64())
        kept = [file for file in files if file["partition.verdict"] == "kept"]
        held = read_rows(self.documents, kept, ["row", "metadata"])
        for file in self.text_files[unit]:
            stored = read_live_rows(self.texts.url, file, ["id", "source", "row", "url", "text"])
            stored = stored.filter(pc.is_in(stored["row"], wanted))
            found = pc.index_in(stored["row"], held["row"].combine_chunks())
            metadata = held["metadata"].combine_chunks().take(found.combine_chunks())
            null = pa.nulls(stored.num_rows, pa.string())
            stored = stored.append_column("metadata", metadata)
            stored = stored.append_column("media_type", null).append_column("reason", null)
            yield stored.select(schemas.RAW.names).cast(schemas.RAW)


def new_rows(unit: JudgedUnit, schema: pa.Schema, read: pa.Table) -> pa.Table:
    """Return all documents of a unit as the new recipe judges them, in the order of ``row``.

    ``schema`` is the new one of ``documents``. ``read`` are the documents that were judged again.
    """
    frame, judged = pl.DataFrame(unit.stored), unit.judged
    verdict = pl.when(pl.col("reason").is_null()).then(pl.lit("kept")).otherwise(pl.lit("rejected"))
    fixed = frame.select(name for name in schema.names if name not in judged.columns)
    known = fixed.with_columns(judged["then"].alias("reason"), *judged.drop("then", "is_known"))
    known = known.filter(judged["is_known"]).with_columns(verdict=verdict)
    rows = pa.concat_tables(
        [known.select(schema.names).to_arrow().cast(schema), read.select(schema.names).cast(schema)]
    )
    assert rows.num_rows == unit.stored.num_rows, "rows were lost or doubled"
    return rows.take(pc.sort_indices(rows["row"]))


def write_rows(url: str, schema: pa.Schema, unit: str, rows: pa.Table) -> list[DataFile]:
    """Write the documents of a unit, which have the schema of the table, to new data files."""
    written: list[DataFile] = []
    for verdict in schemas.VERDICTS:
        partition = {"verdict": verdict}
        writer = DataFileWriter(url, schema, DOCUMENTS.layout, name=unit, partition=partition)
        writer.append(rows.filter(pc.equal(rows["verdict"], verdict)))
        written += writer.close()
    return written
