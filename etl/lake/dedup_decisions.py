"""Which units are deduplicated, and which of their rows are left out or cut, by ``duplicates``."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.lake.ledger import Ledger
from etl.lake.work_units import WorkUnit
from etl.parquet.data_file_reader import read_columns
from etl.stages.dedup_base import DedupStage


class DedupDecisions:
    """The decisions in the newest ``duplicates``; without the table, all units are decided and kept."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._spans = RangeIndex(())
        if ledger is not None:
            ledger.refresh()
            assert ledger.table is not None
            files = ledger.table.files("path", "min.source", "max.source")
            self._spans = RangeIndex((f["min.source"], f["max.source"], f["path"]) for f in files)

    def include(self, unit: WorkUnit) -> bool:
        """Return whether the unit's rows are decided."""
        return self._ledger is None or self._ledger.is_done(self._ledger.key(unit.key))

    def files(self, source: str) -> tuple[str, ...]:
        """Return the data files of ``duplicates`` that may name rows of an input file.

        Each of them covers a range of sources. The ranges are known from statistics: file names begin with
        hashes and have no order.
        """
        return self._spans.files_around(source)


class RangeIndex:
    """Data files by the first and last name in each of them.

    >>> RangeIndex([("a", "c", "0.parquet"), ("c", "d", "1.parquet")]).files_around("c")
    ('0.parquet', '1.parquet')
    """

    def __init__(self, spans: Iterable[tuple[str, str, str]]) -> None:
        self._spans = sorted(spans)
        self._lows = [low for low, _, _ in self._spans]
        self._reach = list(accumulate((high for _, high, _ in self._spans), max))

    def files_around(self, name: str) -> tuple[str, ...]:
        """Return the files that may hold a name; few are compared if few overlap."""
        first, stop = bisect_left(self._reach, name), bisect_right(self._lows, name)
        return tuple(path for _, high, path in self._spans[first:stop] if name <= high)


def duplicate_rows(
    table_url: str,
    files: Sequence[str],
    paths: Sequence[str],
    *,
    kinds: Sequence[str] = (*schemas.WHOLE, schemas.SHORT),
) -> npt.NDArray[np.int64]:
    """Return the ``row`` of each document in the data files ``paths`` of ``documents`` that is left out.

    ``files`` are the data files of ``duplicates`` to read; ``kinds`` are the reasons to leave a row out.
    """
    tables = _read_rows(table_url, files, paths, kinds, ["row"])
    rows = [np.asarray(table["row"].combine_chunks()) for table in tables]
    return np.concatenate([np.empty(0, np.int64), *rows])


def cut_rows(table_url: str, files: Sequence[str], paths: Sequence[str]) -> pa.Table:
    """Return ``row`` and ``cut`` (the ordinals of the removed units) of the documents that are cut.

    The arguments are as in ``duplicate_rows``.
    """
    schema = pa.schema([schemas.DUPLICATES.field("row"), schemas.CUTS.field("cut")])
    tables = _read_rows(table_url, files, paths, [schemas.CUT], schema.names)
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


def without_cuts(documents: pa.Table, cuts: pa.Table, stage: DedupStage) -> pa.Table:
    """Return documents without the units that are repeated from others; ``cuts`` is from ``cut_rows``."""
    rows = documents["row"].combine_chunks()
    indexes = pc.index_in(rows, cuts["row"].combine_chunks())
    text = stage.cut(documents["text"], cuts["cut"].combine_chunks().take(indexes))
    return documents.set_column(documents.column_names.index("text"), "text", text)


def _read_rows(
    table_url: str,
    files: Sequence[str],
    paths: Sequence[str],
    kinds: Sequence[str],
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    wanted_files, wanted_kinds = (pa.array(list(each), pa.string()) for each in (paths, kinds))
    for name in files:
        table = read_columns(table_url, name, ["file", "kind", *columns])
        wanted = pc.and_(
            pc.is_in(table["file"], wanted_files), pc.is_in(table["kind"], wanted_kinds)
        )
        yield table.filter(wanted).select(list(columns))
