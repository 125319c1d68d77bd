"""Data files of ``documents`` as deduplication reads them: row addresses and ranks."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import schemas
from etl import storage
from etl.job.decisions import Decisions, duplicate_rows
from etl.kernels.ordered import between
from etl.key_table import KINDS, Kind
from etl.plan import Unit
from etl.stages import DedupMinhash, DedupParagraphs
from etl.stages.dedup_minhash import Best

ROW_BITS = 40
"""Bits of the row in an address: a file has fewer than 2^40 rows, and a lake fewer than 2^23 files."""

FILES_PER_FRAGMENT = 64
"""Neighbouring data files of ``documents`` whose duplicates share a fragment of ``duplicates``."""


@dataclass(frozen=True)
class DataFile:
    """A data file of ``documents`` with kept rows; numbers follow the order of addresses."""

    number: int
    source: str
    path: str
    rows: int
    decided: bool
    duplicates: tuple[str, ...]  # data files of ``duplicates`` that may list rows of this file
    kinds: tuple[Kind, ...] = KINDS  # kinds of duplicates to compare its rows for
    keyed: tuple[Kind, ...] = ()  # the kinds whose keys are in a table ``keys``
    lake: str | None = None  # URL of the lake, if it is another one


def data_files(
    units: Iterable[Unit],
    decisions: Decisions,
    *,
    numbers: Iterator[int] | None = None,
    kinds: tuple[Kind, ...] = KINDS,
    keyed: Callable[[Unit], tuple[Kind, ...]] = lambda _: (),
    lake: str | None = None,
) -> Iterator[DataFile]:
    """Yield the data files of units, which are in the order of addresses, with ascending numbers.

    ``numbers`` supplies the numbers, from 0 by default; ``keyed`` returns the kinds for which a unit's keys
    are in a table ``keys``; ``lake`` is the URL of the units' lake if it is another one.
    """
    numbers = count() if numbers is None else numbers
    for unit in units:
        decided = decisions.include(unit)
        keyed_kinds = keyed(unit) if decided else ()
        is_read = decided and not set(kinds) <= set(keyed_kinds)
        duplicates = decisions.files(unit.source) if is_read else ()
        for path in unit.paths:
            number, source, rows = next(numbers), unit.source, unit.rows
            yield DataFile(
                number, source, path, rows, decided, duplicates, kinds, keyed_kinds, lake
            )


def file_id(path: str) -> int:
    """Return the id of a data file of ``documents`` in table ``keys``: 63 bits of its path's SHA-256.

    >>> file_id("verdict=kept/0.parquet")
    6487412895188051549
    """
    return int(hashlib.sha256(path.encode()).hexdigest()[:16], 16) >> 1


def address(files: NDArray[np.int64] | np.int64, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the addresses of rows: file number and row in one integer, ordered by file, then row."""
    return rows | files << np.int64(ROW_BITS)


def file_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the file numbers of addresses."""
    return addresses >> np.int64(ROW_BITS)


def row_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of addresses."""
    return addresses & np.int64((1 << ROW_BITS) - 1)


def of_files(addresses: NDArray[np.int64], files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the addresses (ascending) from the first to the last of ``files`` (ascending)."""
    low, high = int(files[0]) << ROW_BITS, (int(files[-1]) + 1) << ROW_BITS
    return between(addresses, low, high - 1)


@dataclass(frozen=True)
class Lake:
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

    def uri(self, file: DataFile) -> str:
        """Return the URI of a data file."""
        url = self.documents if file.lake is None else storage.join(file.lake, "documents")
        return storage.join(url, file.path)

    def read(self, file: DataFile, columns: Sequence[str]) -> pa.Table:
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

    def read_rows(self, file: DataFile, rows: NDArray[np.int64], column: str) -> pa.Array:
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

    def _rank(self, file: DataFile, table: pa.Table) -> NDArray[np.float64]:
        size = len(table)
        if file.decided:
            return np.full(size, -np.inf)
        if self.stage is None or self.stage.keep == "first":
            return np.zeros(size)
        keep = self.stage.keep
        if not isinstance(keep, Best):
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
