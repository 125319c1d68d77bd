"""Report the mean losses of documents that trainings have measured, by run, input file and language.

Memory: the sums of each input file, and the languages of the documents of one.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import polars as pl

from etl.audit.duplicates.rows_by_source import RowsBySource, read_batches
from etl.audit.report_records import MeanLoss, MeanLosses
from etl.delta.table import Table

_COLUMNS: Final = ("source", "row", "run", "num_tokens", "loss")


def mean_losses(losses: Table, documents: Table, *, has_languages: bool) -> MeanLosses:
    """Compute the mean losses of a table; read languages from the kept documents."""
    infinite = 0
    by_source, by_language = _Sums("source"), _Sums("lang")
    languages = _Languages(documents)
    for batch in read_batches(losses, _COLUMNS):
        rows = pl.DataFrame(batch)
        finite = rows.filter(pl.col("loss").is_finite())
        infinite += len(rows) - len(finite)
        by_source.add(finite)
        if has_languages:
            for part in languages.join(finite):
                by_language.add(part)
    return MeanLosses(
        by_source=by_source.means(), by_language=by_language.means(), infinite=infinite
    )


class _Languages:
    """The languages of documents, read by input file; rows of ``losses`` are sorted by it."""

    def __init__(self, documents: Table) -> None:
        self._rows = RowsBySource(documents, verdict="kept")
        self._read = lru_cache(4)(self._read_source)

    def join(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield rows with the language of their document."""
        for (source,), part in rows.partition_by("source", as_dict=True).items():
            joined = part.join(self._read(str(source)), on="row", how="left")
            yield joined.with_columns(pl.col("lang").fill_null("none"))

    def _read_source(self, source: str) -> pl.DataFrame:
        return pl.DataFrame(self._rows.read(source, ["row", "lang"]))


class _Sums:
    """Sums of losses and tokens by run and another column."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._sums = pl.DataFrame(
            schema={"run": pl.String, column: pl.String, "tokens": pl.Int64, "sum": pl.Float64}
        )

    def add(self, rows: pl.DataFrame) -> None:
        """Add the losses of rows."""
        keys = ["run", self._column]
        weighted = (pl.col("loss") * pl.col("num_tokens")).sum()
        sums = rows.group_by(keys).agg(tokens=pl.col("num_tokens").sum(), sum=weighted)
        self._sums = pl.concat([self._sums, sums]).group_by(keys).sum()

    def means(self) -> list[MeanLoss]:
        """Return the means, sorted by run and with the greatest loss first."""
        means = self._sums.with_columns(loss=pl.col("sum") / pl.col("tokens"))
        means = means.sort("run", "loss", self._column, descending=[False, True, False])
        return [
            MeanLoss(run=run, group=group, tokens=tokens, loss=loss)
            for run, group, tokens, loss in means.select(
                "run", self._column, "tokens", "loss"
            ).iter_rows()
        ]
