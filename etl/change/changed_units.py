"""Read the rows that a lake has of a unit of work, or records of it that a changed recipe judges again."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.change.input_rows import InputUnit
from etl.delta.live_rows import read_live_rows, read_live_rows_with
from etl.delta.table import Table
from etl.lake.unit_files import unit_files
from etl.recipe.recipe import Recipe
from etl.sources.batches import bound_batches
from etl.sources.records import MAX_ROWS
from etl.stages.apply import apply
from etl.stages.document_columns import judged_schema

_BATCH_BYTES: Final = 16 << 20  # of text

UnitFiles = Sequence[Mapping[str, Any]]
"""The entries of a unit's data files in ``documents`` or ``texts``, as ``unit_files`` yields them."""


def files_by_unit(table: Table) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of the data files of ``documents`` or ``texts`` by unit."""
    by_unit: dict[str, list[dict[str, Any]]] = {}
    for file in unit_files(table, "partition.verdict", "size"):
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
        # Most batches have few of the records, and the filters cost more to begin than to run on these.
        merged = bound_batches(batches, _BATCH_BYTES)
        return pa.concat_tables([schema.empty_table(), *map(self._apply, merged)])

    def judged_input(self, wanted: Mapping[str, Collection[int]]) -> Iterator[tuple[str, pa.Table]]:
        """Yield rows of units from the input as the recipe judges them: unit by unit, in parts."""
        held: list[tuple[str, pa.Table]] = []
        num_rows = size = 0
        for unit, rows in wanted.items():
            for batch in self.inputs[unit].read(self.recipe, rows):
                num_rows, size = num_rows + batch.num_rows, size + batch.nbytes
                if num_rows > MAX_ROWS or size > _BATCH_BYTES:
                    yield from self._apply_all(held)
                    held, num_rows, size = [], batch.num_rows, batch.nbytes
                held.append((unit, batch))
        yield from self._apply_all(held)

    def _apply_all(self, batches: Sequence[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
        """Judge batches at once, and yield the rows of each."""
        start = 0
        tables = [schemas.RAW.empty_table(), *(batch for _, batch in batches)]
        judged = self._apply(pa.concat_tables(tables).combine_chunks())
        for unit, batch in batches:
            yield unit, judged.slice(start, batch.num_rows)
            start += batch.num_rows

    def _apply(self, batch: pa.Table) -> pa.Table:
        return apply(batch, self.recipe.stages, rejected=self.recipe.rejected)

    def _stored(self, unit: str, files: UnitFiles, rows: Collection[int]) -> Iterator[pa.Table]:
        """Yield kept rows with their stored texts, in batches of ``schemas.RAW``."""
        assert self.texts is not None
        wanted = pa.array(sorted(rows), pa.int64())
        kept = [file for file in files if file["partition.verdict"] == "kept"]
        held = read_rows(self.documents, kept, ["row", "metadata"])
        for file in self.text_files[unit]:
            columns = ["id", "source", "row", "url", "text"]
            for stored in read_live_rows_with(self.texts.url, file, "row", wanted, columns):
                found = pc.index_in(stored["row"], held["row"].combine_chunks())
                metadata = held["metadata"].combine_chunks().take(found.combine_chunks())
                null = pa.nulls(len(metadata), pa.string())
                named = stored.append_column("metadata", metadata)
                named = named.append_column("media_type", null).append_column("reason", null)
                yield named.select(schemas.RAW.names).cast(schemas.RAW)
