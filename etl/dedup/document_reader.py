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
    """The tables that deduplication reads and writes, and the choice of the best row among equals."""

    documents: str  # URLs
    duplicates: str
    stage: DedupMinhash | None = None
    has_references: bool = False  # whether other lakes' documents may be keepers
    paragraphs: DedupParagraphs | None = None

    @property
    def schema(self) -> pa.Schema:
        """That of ``duplicates``."""
        return schemas.duplicates(
            has_references=self.has_references, has_cuts=self.paragraphs is not None
        )

    def uri(self, file: NumberedFile) -> str:
        """Where a data file is."""
        url = self.documents if file.lake is None else storage.join(file.lake, "documents")
        return storage.join(url, file.path)

    def read(self, file: NumberedFile, columns: Sequence[str]) -> pa.Table:
        """The rows of a data file that are no duplicates yet: ``row``, ``rank`` float64, and the columns.

        The less the rank, the better: of what is decided already it is less than of all others.
        """
        by = self._rank_columns()
        with storage.open_input(self.uri(file)) as source:
            names = [*dict.fromkeys(["row", *columns, *by])]
            table = pq.read_table(source, columns=names, use_threads=False)
        if file.duplicates:
            url = self.duplicates if file.lake is None else storage.join(file.lake, "duplicates")
            known = duplicate_rows(url, file.duplicates, [file.path], kinds=schemas.WHOLE)
            is_new = ~np.isin(np.asarray(table["row"].combine_chunks()), known)
            table = table.filter(pa.array(is_new))
        rank = pa.array(self._rank(file, table), pa.float64())
        return table.append_column("rank", rank).select(["row", "rank", *columns])

    def read_rows(self, file: NumberedFile, rows: NDArray[np.int64], column: str) -> pa.Array:
        """The values of a column in some rows of a data file, in their order."""
        sought, found = np.unique(rows), []
        wanted = pa.array(sought)
        with storage.open_input(self.uri(file)) as source:
            parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            for group in range(parquet.num_row_groups):
                if not _may_hold(parquet.metadata.row_group(group), sought):
                    continue
                part = parquet.read_row_group(group, columns=["row", column], use_threads=False)
                found.append(part.filter(pc.is_in(part["row"], wanted)))
        table = pa.concat_tables(found).combine_chunks()
        places = pc.index_in(pa.array(rows), table["row"].combine_chunks())
        assert places.null_count == 0, "a row is not where it was"
        return table[column].combine_chunks().take(places)

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
            fits = [fnmatchcase(file.source, pattern) for pattern in keep.sources]
            return np.full(size, float([*fits, True].index(True)))
        column = table[str(self.stage.keep_column)].combine_chunks()
        sign = -1.0 if keep.highest is not None else 1.0
        values: NDArray[np.float64] = sign * column.to_numpy(zero_copy_only=False)
        values[np.isnan(values)] = np.inf
        return np.maximum(values, -np.finfo(np.float64).max)  # what is decided comes first


def _may_hold(group: pq.RowGroupMetaData, rows: NDArray[np.int64]) -> bool:
    """Whether a row group may hold some of these rows (sorted), by its footer."""
    columns = [group.column(k) for k in range(group.num_columns)]
    known = next(c.statistics for c in columns if c.path_in_schema == "row")
    if known is None or not known.has_min_max:
        return True
    return len(between(rows, known.min, known.max)) > 0


def _lengths(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.float64]:
    """The words (or characters) of each document, which its signature begins with; 0 where it has none."""
    lengths = np.zeros(len(signatures))
    has_some = signatures.is_valid().to_numpy(zero_copy_only=False)
    lengths[has_some] = stage.numbers(signatures.drop_null())[:, 0]
    return lengths
