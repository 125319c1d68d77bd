"""The rows of `documents` that a page is drawn from: signals and verdicts of a sample, with weights."""

from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.audit.sampled_rows import FILE, sample_rows
from etl.audit.shown_documents import Documents
from etl.audit.tune.rejudge import columns_of
from etl.audit.value_counts import with_verdict

MAX_ROWS: Final = 60_000
"""Rows read of each verdict; shares are then exact to about half a percentage point."""

_MAX_FILES: Final = 64
# Columns to estimate tokens from, best first.
_SIZES: Final = ("num_chars", "num_segments", "num_words")


@dataclass(frozen=True, kw_only=True)
class PageSample:
    """Sampled rows, at most ``MAX_ROWS`` of each verdict.

    ``frame`` has the numbers of ``documents`` and other columns that rules read, except texts; ``reason``,
    ``rule`` (``reason`` without details), ``lang``, the address, ``FILE`` and ``weight``: how many documents
    of its verdict a row represents.
    """

    frame: pl.DataFrame
    signals: list[str]
    rows: int  # of the table
    size: str | None  # the column that estimates the number of tokens best

    @property
    def is_complete(self) -> bool:
        """Whether all rows were read."""
        return self.frame.height == self.rows


def read_sample(documents: Documents, seed: int = 0) -> PageSample:
    """Read the sample of a page; no texts are read."""
    table = documents.table
    signals = [field.name for field in table.schema if field.type == pa.float64()]
    columns = [*columns_of(documents.filters), "lang", "id", *signals]
    files = table.data_files([*FILE, "rows", "partition.verdict"])
    parts = []
    for verdict in schemas.VERDICTS:
        of_verdict = with_verdict(files, verdict)
        total = pc.sum(of_verdict["rows"]).as_py() or 0
        rows = sample_rows(
            table, of_verdict, columns, rows=MAX_ROWS, max_files=_MAX_FILES, seed=seed
        )
        parts.append(rows.with_columns(weight=pl.lit(total / max(rows.height, 1))))
    frame = pl.concat(parts)
    rule = pl.col("reason").str.split(": ").list.first()
    return PageSample(
        frame=frame.with_columns(rule=rule),
        signals=signals,
        rows=pc.sum(files["rows"]).as_py() or 0,
        size=next((name for name in _SIZES if name in signals), None),
    )
