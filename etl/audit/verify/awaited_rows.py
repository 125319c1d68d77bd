"""Find the rows that the next run reads again, since a repair has dropped them or a run has died.

Until then, `duplicates` may name them as keepers.
"""

from functools import cache, partial

import polars as pl

from etl.delta.table import Table
from etl.errors import TokenlakeError
from etl.lake.input_locations import find_input
from etl.lake.ledger import Ledger
from etl.lake.table_versions import LiveInputs

_ADDRESS = ["source", "row"]


class AwaitedRows:
    """The rows that ``documents`` or ``texts`` lacks, and that the next run reads again."""

    def __init__(self, documents: Table, texts: Ledger, inputs: LiveInputs) -> None:
        """Take the tables, and as ``inputs`` the input files that the log of ``documents`` records."""
        self._log = Ledger(documents.url, fingerprint="", table=documents).inputs
        self._texts = texts
        self._inputs = inputs
        self.has_source = cache(self._has_source)

    def _has_source(self, source: str) -> bool:
        """Return whether rows of an input file were dropped, and the file is there to read them again.

        Cost: a request, if rows of the file were dropped.
        """
        identity = self._log.identity_of(source)  # none if the file was dropped for good
        parts = {} if identity is None else self._log.parts([identity])
        if all(part.is_done for known in parts.values() for part in known):
            return False
        samples = partial(self._log.samples, identity)
        try:
            file, _ = find_input(self._inputs.recorded(source), source, samples)
        except TokenlakeError:  # a file that cannot be read is not read again
            return False
        return file is not None

    def exclude(self, rows: pl.DataFrame, documents: pl.DataFrame) -> pl.DataFrame:
        """Return rows without awaited ones; ``documents`` has all rows of their input files.

        Cost: a request for each input file of ``rows`` of which rows were dropped.
        """
        if rows.is_empty():
            return rows
        units = documents["unit"].unique()
        unread = [unit for unit in units if not self._texts.is_done(self._texts.key(unit))]
        without_text = documents.filter("kept", pl.col("unit").is_in(unread))
        absent = rows.join(documents, on=_ADDRESS, how="anti")
        sources = [source for source in absent["source"].unique() if self.has_source(source)]
        dropped = absent.filter(pl.col("source").is_in(sources))
        awaited = pl.concat([without_text.select(_ADDRESS), dropped.select(_ADDRESS)])
        return rows.join(awaited, on=_ADDRESS, how="anti")
