"""Read rows and columns of `documents` by row address, without the rows listed as duplicates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from etl import schemas, storage
from etl.dedup.keep_preference import KeepPreference
from etl.dedup.numbered_files import NumberedFile
from etl.kernels.hashing.sorted_sets import between
from etl.lake.dedup_decisions import duplicate_rows
from etl.stages.dedup import DedupStage, duplicates_schema


@dataclass(frozen=True)
class DocumentReader:
    """The tables that deduplication reads and writes, and the stages that it runs for."""

    documents: str  # URL of the table
    duplicates: str  # URL of the table
    stages: tuple[DedupStage, ...] = ()

    @property
    def duplicates_schema(self) -> pa.Schema:
        """The schema of ``duplicates``."""
        return duplicates_schema(self.stages)

    def uri(self, file: NumberedFile) -> str:
        """Return the URI of a data file."""
        url = self.documents if file.lake is None else storage.join(file.lake, "documents")
        return storage.join(url, file.path)

    def read(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return ``row`` and ``columns`` of the rows of a data file that are not listed as duplicates."""
        with storage.open_input(self.uri(file)) as source:
            names = [*dict.fromkeys(["row", *columns])]
            table = pq.read_table(source, columns=names, use_threads=False)
        dropped = self.listed_rows(file, schemas.WHOLE)
        if len(dropped):
            is_kept = ~np.isin(np.asarray(table["row"].combine_chunks()), dropped)
            table = table.filter(pa.array(is_kept))
        return table.select(names)

    def listed_rows(self, file: NumberedFile, kinds: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of a data file that are listed in ``duplicates`` with one of the kinds."""
        url = self.duplicates if file.lake is None else storage.join(file.lake, "duplicates")
        return duplicate_rows(url, file.duplicates, [file.path], kinds=kinds)

    def read_ranked(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return what ``read`` returns, with the rank of each row (float64) as the column ``rank``.

        Of several duplicates, the one of the lowest rank is kept; those of earlier arrivals have rank -inf.
        """
        preference = KeepPreference.of(self.stages)
        table = self.read(file, [*columns, *preference.columns()])
        rank = pa.array(preference.rank(file, table), pa.float64())
        return table.append_column("rank", rank).select(["row", "rank", *columns])

    def read_rows(self, file: NumberedFile, rows: NDArray[np.int64], column: str) -> pa.Array:
        """Return the values of a column in the given rows of a data file, in the order of ``rows``."""
        wanted, tables = np.unique(rows), []
        wanted_array = pa.array(wanted)
        with storage.open_input(self.uri(file)) as source:
            parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            for group in range(parquet.num_row_groups):
                if not _may_hold(parquet.metadata.row_group(group), wanted):
                    continue
                part = parquet.read_row_group(group, columns=["row", column], use_threads=False)
                tables.append(part.filter(pc.is_in(part["row"], wanted_array)))
        table = pa.concat_tables(tables).combine_chunks()
        indices = pc.index_in(pa.array(rows), table["row"].combine_chunks())
        assert indices.null_count == 0, f"rows are missing from {file.path}"
        return table[column].combine_chunks().take(indices)


def _may_hold(group: pq.RowGroupMetaData, rows: NDArray[np.int64]) -> bool:
    """Return whether a row group may hold some of the rows (ascending), by its statistics."""
    columns = [group.column(k) for k in range(group.num_columns)]
    statistics = next(c.statistics for c in columns if c.path_in_schema == "row")
    if statistics is None or not statistics.has_min_max:
        return True
    return len(between(rows, statistics.min, statistics.max)) > 0
