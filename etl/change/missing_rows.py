"""Write the rows of documents that a table lacks after a change: their texts, or their tokens."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.change.changed_units import RowReader, files_by_unit
from etl.change.input_rows import find_inputs
from etl.delta.live_rows import read_live_rows_with
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.table_specs import SPECS, token_layout
from etl.lake.token_writer import TokenWriter
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from etl.stages.stage_clock import StageClock
from etl.stages.tokenize import Tokenize

RowsByUnit = Mapping[str, AbstractSet[int]]
"""Row numbers by unit of work."""

_KEPT = {"verdict": "kept"}


def write_texts(
    recipe: Recipe, documents: Ledger, texts: Ledger, missing: RowsByUnit
) -> list[LedgerEntry]:
    """Read documents from the input, and write their texts; return the entries of their units.

    Raises MismatchError if the input has changed or is gone, SourceError if it cannot be read.
    """
    if not missing:
        return []
    assert documents.table is not None
    files = {u: each for u, each in files_by_unit(documents.table).items() if u in missing}
    firsts = {unit: min(file["min.row"] for file in each) for unit, each in files.items()}
    inputs = find_inputs(recipe, documents, texts, firsts)
    if gone := [unit for unit in missing if unit not in inputs]:
        source = files[gone[0]][0]["min.source"]
        raise MismatchError(
            "the file has changed or is not listed any more, but documents from it must be read again",
            where=source,
            hint="restore the file and run again, or pass --rebuild",
        )
    reader = RowReader(
        recipe=recipe, documents=documents.table, texts=None, text_files={}, inputs=inputs
    )
    entries, spec = [], SPECS["texts"]
    schema = spec.schema(recipe)
    read = reader.judged_input(dict(sorted(missing.items())))
    for unit, parts in groupby(read, key=itemgetter(0)):
        writer = DataFileWriter(texts.url, schema, spec.layout, name=unit, partition=_KEPT)
        found = 0
        for _, judged in parts:
            kept = judged.filter(pc.equal(judged["verdict"], "kept"))
            found += kept.num_rows
            writer.append(kept)
        assert found == len(missing[unit]), "a kept document is rejected when it is read again"
        entries.append(_entry(texts, unit, writer.close()))
    assert len(entries) == len(missing), "a kept document is not in the input"
    return entries


def write_tokens(
    stage: Tokenize, ledger: Ledger, texts: Table, missing: RowsByUnit
) -> list[LedgerEntry]:
    """Tokenize documents from their stored texts; return the entries of their units."""
    entries, text_files = [], files_by_unit(texts)
    layout = token_layout(stage)
    encoded: list[pa.Table] = []
    tokens = TokenWriter(stage, encoded.append, StageClock())  # checks the tokenizer once
    for unit, rows in sorted(missing.items()):
        writer = DataFileWriter(ledger.url, schemas.TOKENS, layout, name=ledger.key(unit))
        wanted, found = pa.array(sorted(rows), pa.int64()), 0
        for file in text_files[unit]:
            columns = ["id", "source", "row", "text"]
            for chosen in read_live_rows_with(texts.url, file, "row", wanted, columns):
                found += chosen.num_rows
                tokens.append(chosen)
                writer.append(encoded.pop())
        assert found == len(rows), "a kept document has no text"
        entries.append(_entry(ledger, unit, writer.close()))
    return entries


def _entry(ledger: Ledger, unit: str, files: Sequence[DataFile]) -> LedgerEntry:
    """Return the entry of a unit that is done already, and keeps its arrival."""
    key = ledger.key(unit)
    return LedgerEntry(key, files, arrival=ledger.arrival_of(key))
