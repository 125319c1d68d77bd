"""What is cut in a lake: the documents that lost most, and totals of documents, passages and tokens."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.audit.duplicates.rows_by_source import RowsBySource, read_batches
from etl.audit.row_lookup import text_of
from etl.audit.trace_records import Cut, cut_of, recorded_cutting_stage
from etl.delta.table import Table
from etl.stages.dedup_base import DedupStage

_COLUMNS: Final = (
    *("kind", "source", "row", "cut", "cut_chars", "similarity"),
    *("keeper_source", "keeper_row"),
)
_SAMPLE: Final = 8  # input files from which tokens per character are estimated


@dataclass(frozen=True, kw_only=True)
class CutDocument:
    """A document that lost some of its units, or was left out because too little remained."""

    source: str
    row: int
    id: str | None
    cut: Cut


@dataclass(frozen=True, kw_only=True)
class CutTotals:
    """Documents that lost some of their units, and documents left out because too little remained.

    ``tokens`` is an estimate: the removed characters times the tokens per character of eight input files;
    None if the lake has no tokens.
    """

    documents: int
    units: int  # paragraphs, lines or sentences; or passages
    unit: str  # which of them, in the singular
    chars: int  # code points in the units
    left_out: int
    left_out_chars: int
    tokens: int | None
    largest: list[CutDocument]  # by the code points in their units


def cut_totals(
    texts: Table, duplicates: Table, tokens: Table | None, *, top: int
) -> CutTotals | None:
    """Sum up all of ``duplicates``; return None if the recipe of the lake cuts nothing.

    ``largest`` has the ``top`` documents that lost most.
    """
    if "cut" not in duplicates.schema.names:
        return None
    stage, sums = recorded_cutting_stage(duplicates), np.zeros(5, np.int64)
    largest = pl.DataFrame()
    for batch in read_batches(duplicates, _COLUMNS):
        cut = batch.filter(pc.equal(batch["kind"], schemas.CUT))
        short = batch.filter(pc.equal(batch["kind"], schemas.SHORT))
        share = short["similarity"].to_numpy(zero_copy_only=False)
        chars = short["cut_chars"].to_numpy(zero_copy_only=False)
        whole = np.rint(chars / np.where(share > 0, share, 1)).sum()
        units = stage.num_cut(cut["cut"])
        cut_chars = pc.sum(cut["cut_chars"]).as_py() or 0
        sums += np.array([len(cut), units, cut_chars, len(short), whole], np.int64)
        rows = pl.DataFrame(pa.Table.from_batches([cut, short]))
        largest = _first(pl.concat([largest, rows], how="diagonal"), top)
    ratio = None if tokens is None else _tokens_per_char(texts, duplicates, tokens)
    cut_docs, units, chars, left_out, left_out_chars = sums.tolist()
    return CutTotals(
        documents=cut_docs,
        units=units,
        unit=stage.cut_unit,
        chars=chars,
        left_out=left_out,
        left_out_chars=left_out_chars,
        tokens=None if ratio is None else round(ratio * (chars + left_out_chars)),
        largest=[
            _described(texts, duplicates, stage, row) for row in largest.iter_rows(named=True)
        ],
    )


def _first(rows: pl.DataFrame, top: int) -> pl.DataFrame:
    """Return the rows that lost most, and of equal ones the first by address."""
    descending = [True, False, False]
    return rows.sort("cut_chars", "source", "row", descending=descending).head(top)


def _described(
    texts: Table, duplicates: Table, stage: DedupStage, row: dict[str, Any]
) -> CutDocument:
    document = text_of(texts, row["source"], row["row"])
    cut = cut_of(row, document["text"], duplicates, stage)
    return CutDocument(source=row["source"], row=row["row"], id=document["id"], cut=cut)


def _tokens_per_char(texts: Table, duplicates: Table, tokens: Table) -> float | None:
    """Return the ratio in the tokenized text of the first input files."""
    kept, decided = RowsBySource(texts, verdict="kept"), RowsBySource(duplicates)
    tokenized = RowsBySource(tokens)
    # Of units, the characters between them do not count.
    column = "unit_chars" if "unit_chars" in texts.schema.names else "text"
    num_tokens = num_chars = 0
    for source in tokenized.sources()[:_SAMPLE]:
        rows = tokenized.read(source, ["row", "num_tokens"])
        num_tokens += pc.sum(rows["num_tokens"]).as_py() or 0
        stored = kept.read(source, ["row", column])
        stored = stored.filter(pc.is_in(stored["row"], rows["row"].combine_chunks()))[column]
        chars = pc.utf8_length(stored) if column == "text" else pc.list_flatten(stored)
        num_chars += pc.sum(chars).as_py() or 0
        cut = decided.read(source, ["kind", "cut_chars"])
        num_chars -= (
            pc.sum(cut.filter(pc.equal(cut["kind"], schemas.CUT))["cut_chars"]).as_py() or 0
        )
    return num_tokens / num_chars if num_chars > 0 else None
