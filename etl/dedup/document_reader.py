"""Read rows and columns of `documents` by row address, ranked by the recipe's preference."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from etl import schemas, storage
from etl.dedup.numbered_files import NumberedFile
from etl.kernels.hashing.sorted_sets import between
from etl.lake.dedup_decisions import duplicate_rows
from etl.stages import DedupMinhash, DedupParagraphs
from etl.stages.dedup_minhash import KeepRule


@dataclass(frozen=True)
class DocumentReader:
    """The tables that deduplication reads and writes, and the settings that rank documents."""

    documents: str  # URL of the table
    duplicates: str  # URL of the table
    stage: DedupMinhash | None = None
    has_references: bool = False  # whether documents of other lakes may be keepers
    paragraphs: DedupParagraphs | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of ``duplicates``."""
        return schemas.duplicates(
            has_references=self.has_references, has_cuts=self.paragraphs is not None
        )

    def uri(self, file: NumberedFile) -> str:
        """Return the URI of a data file."""
        url = self.documents if file.lake is None else storage.join(file.lake, "documents")
        return storage.join(url, file.path)

    def read(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a data file that are not listed as duplicates.

        The columns are ``row``, ``rank`` (float64) and ``columns``. A lower rank is better; decided
        documents have rank -inf.
        """
        with storage.open_input(self.uri(file)) as source:
            names = [*dict.fromkeys(["row", *columns, *self._rank_columns()])]
            table = pq.read_table(source, columns=names, use_threads=False)
        if file.duplicates:
            url = self.duplicates if file.lake is None else storage.join(file.lake, "duplicates")
            dropped = duplicate_rows(url, file.duplicates, [file.path], kinds=schemas.WHOLE)
            is_kept = ~np.isin(np.asarray(table["row"].combine_chunks()), dropped)
            table = table.filter(pa.array(is_kept))
        rank = pa.array(self._rank(file, table), pa.float64())
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

    def _rank_columns(self) -> list[str]:
        if self.stage is None:
            return []
        if self.stage.keep == "longest":
            return ["signature"]
        return [self.stage.keep_column] if self.stage.keep_column is not None else []

    def _rank(self, file: NumberedFile, table: pa.Table) -> NDArray[np.float64]:
        size = len(table)
        if file.decided:
            return np.full(size, -np.inf)
        if self.stage is None or self.stage.keep == "first":
            return np.zeros(size)
        keep = self.stage.keep
        if not isinstance(keep, KeepRule):
            return -_lengths(self.stage, table["signature"].combine_chunks())
        if keep.sources is not None:
            matches = [fnmatchcase(file.source, pattern) for pattern in keep.sources]
            return np.full(size, float([*matches, True].index(True)))
        column = table[str(self.stage.keep_column)].combine_chunks()
        sign = -1.0 if keep.highest is not None else 1.0
        values: NDArray[np.float64] = sign * column.to_numpy(zero_copy_only=False)
        values[np.isnan(values)] = np.inf
        return np.maximum(values, -np.finfo(np.float64).max)  # -inf is for decided documents


def _may_hold(group: pq.RowGroupMetaData, rows: NDArray[np.int64]) -> bool:
    """Return whether a row group may hold some of the rows (ascending), by its statistics."""
    columns = [group.column(k) for k in range(group.num_columns)]
    statistics = next(c.statistics for c in columns if c.path_in_schema == "row")
    if statistics is None or not statistics.has_min_max:
        return True
    return len(between(rows, statistics.min, statistics.max)) > 0


def _lengths(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.float64]:
    """Return the length of each document in words or characters, 0 without a signature.

    The first number of a signature is the length.
    """
    lengths = np.zeros(len(signatures))
    is_signed = signatures.is_valid().to_numpy(zero_copy_only=False)
    lengths[is_signed] = stage.numbers(signatures.drop_null())[:, 0]
    return lengths
