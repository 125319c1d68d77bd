"""Read rows and columns of `texts` by row address, without the rows listed as duplicates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl import schemas, storage
from etl.dedup.keep_preference import KeepPreference
from etl.dedup.numbered_files import NumberedFile
from etl.delta.live_rows import live_rows, read_live_rows
from etl.kernels.hashing.sorted_sets import between
from etl.lake.dedup_decisions import duplicate_rows
from etl.lake.row_ranges import read_source, take_rows
from etl.stages.dedup_base import DedupStage, duplicates_schema


@dataclass(frozen=True)
class DocumentReader:
    """The lake whose tables deduplication reads and writes, and the stages that it runs for.

    ``struck`` are the lakes, this one or others, of whose ``texts`` rows may be struck: keys in their tables
    ``keys`` may be of documents that are gone.
    """

    lake: str  # its URL
    stages: tuple[DedupStage, ...] = ()
    struck: frozenset[str] = frozenset()

    @property
    def duplicates(self) -> str:
        """The URL of ``duplicates``."""
        return storage.join(self.lake, "duplicates")

    @property
    def duplicates_schema(self) -> pa.Schema:
        """The schema of ``duplicates``."""
        return duplicates_schema(self.stages)

    def table_of(self, file: NumberedFile) -> str:
        """Return the URL of the table ``texts`` that a file belongs to."""
        return storage.join(file.lake or self.lake, "texts")

    def read(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return ``row`` and ``columns`` of the rows of a file that are not listed as duplicates."""
        names = [*dict.fromkeys(["row", *columns])]
        table = self.read_all(file, names)
        dropped = self.listed_rows(file, schemas.WHOLE)
        if len(dropped):
            is_kept = ~np.isin(np.asarray(table["row"].combine_chunks()), dropped)
            table = table.filter(pa.array(is_kept))
        return table.select(names)

    def read_all(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows of a file."""
        url = self.table_of(file)
        return pa.concat_tables(read_live_rows(url, part, columns) for part in file.files)

    def is_struck(self, file: NumberedFile) -> bool:
        """Return whether rows of a file may be struck."""
        return (file.lake or self.lake) in self.struck

    def listed_rows(self, file: NumberedFile, kinds: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of a file that are listed in ``duplicates`` with one of the kinds."""
        url = storage.join(file.lake or self.lake, "duplicates")
        return duplicate_rows(url, file.duplicates, file.unit, kinds=kinds)

    def read_ranked(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return what ``read`` returns, with the rank of each row (float64) as the column ``rank``.

        Of several duplicates, the lowest rank is kept; documents of earlier arrivals have rank -inf.
        """
        preference = KeepPreference.of(self.stages)
        table = self.read(file, [*columns, *preference.text_columns()])
        for name in preference.columns() if file.judged else ():
            url, names = storage.join(self.lake, "documents"), [*schemas.ADDRESS, name]
            documents = read_source(url, file.judged, file.source, names)
            found = take_rows(documents, table["row"], url)
            table = table.append_column(name, found[name])
        rank = pa.array(preference.rank(file, table), pa.float64())
        return table.append_column("rank", rank).select(["row", "rank", *columns])

    def read_rows(self, file: NumberedFile, rows: NDArray[np.int64], column: str) -> pa.Array:
        """Return the values of a column in the given rows of a file, in the order of ``rows``."""
        return self.take(file, rows, column)[column].combine_chunks()

    def take(self, file: NumberedFile, rows: NDArray[np.int64], *columns: str) -> pa.Table:
        """Return ``row`` and columns of the given rows of a file, in the order of ``rows``."""
        wanted = pa.array(rows)
        parts = self.read_row_groups(file, np.unique(rows), *columns)
        table = pa.concat_tables(part.filter(pc.is_in(part["row"], wanted)) for part in parts)
        indices = pc.index_in(wanted, table["row"].combine_chunks())
        assert indices.null_count == 0, f"rows are missing from {file.files}"
        return table.take(indices)

    def read_row_groups(
        self, file: NumberedFile, rows: NDArray[np.int64], *columns: str
    ) -> Iterator[pa.Table]:
        """Yield ``row`` and columns of the row groups that may hold some of ``rows`` (ascending)."""
        for part in file.files:
            with live_rows(self.table_of(file), part, ["row", *columns]) as opened:
                for group in opened.groups:
                    bounds = opened.bounds(group, "row")
                    if bounds is None or len(between(rows, *bounds)):
                        yield opened.row_group(group)
