"""Which units are deduplicated, and which of their rows are left out or cut, by ``duplicates``."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.delta.live_rows import TableFile, live_rows, read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.lake.ledger import Ledger
from etl.lake.row_ranges import RangeIndex
from etl.lake.work_units import WorkUnit
from etl.stages.dedup_base import DedupStage


class DedupDecisions:
    """The decisions in the newest ``duplicates``; without the table, all units are decided and kept."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._spans = RangeIndex(())
        if ledger is not None:
            ledger.refresh()
            assert ledger.table is not None
            self._spans = RangeIndex.of(ledger.table)

    def include(self, unit: WorkUnit) -> bool:
        """Return whether the unit's rows are decided."""
        return self._ledger is None or self._ledger.is_done(self._ledger.key(unit.key))

    def files(self, unit: WorkUnit) -> tuple[LogicalFile, ...]:
        """Return the data files of ``duplicates`` that may name rows of a unit."""
        return self._spans.files_between(*unit.span)


def duplicate_rows(
    table_url: str,
    files: Sequence[LogicalFile],
    unit: str,
    *,
    kinds: Sequence[str] = (*schemas.WHOLE, schemas.SHORT),
) -> npt.NDArray[np.int64]:
    """Return the ``row`` of each document of a unit of work, given by its key, that is left out.

    ``files`` are the data files of ``duplicates`` to read; ``kinds`` are the reasons to leave a row out.
    """
    tables = _read_rows(table_url, files, unit, kinds, ["row"])
    rows = [np.asarray(table["row"].combine_chunks()) for table in tables]
    return np.concatenate([np.empty(0, np.int64), *rows])


def cut_rows(table_url: str, files: Sequence[LogicalFile], unit: str) -> pa.Table:
    """Return ``row`` and ``cut`` (the ordinals of the removed units) of the documents that are cut.

    The arguments are as in ``duplicate_rows``.
    """
    schema = pa.schema([schemas.DUPLICATES.field("row"), schemas.CUTS.field("cut")])
    tables = _read_rows(table_url, files, unit, [schemas.CUT], schema.names)
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


def without_cuts(documents: pa.Table, cuts: pa.Table, stage: DedupStage) -> pa.Table:
    """Return documents without the units that are repeated from others; ``cuts`` is from ``cut_rows``."""
    rows = documents["row"].combine_chunks()
    indexes = pc.index_in(rows, cuts["row"].combine_chunks())
    text = stage.cut(documents["text"], cuts["cut"].combine_chunks().take(indexes))
    return documents.set_column(documents.column_names.index("text"), "text", text)


def units_led_by(
    table_url: str,
    files: Iterable[TableFile],
    sources: Collection[str],
    units: Mapping[str, WorkUnit],
) -> set[str]:
    """Return the keys of the units with documents that are left out or cut for some input files.

    Other decisions may depend on the order of these documents, so the units that are led by the input files
    of a returned unit are returned, too. ``files`` are data files of ``duplicates``; ``units`` has all units
    of the lake by key.
    """
    leading = schemas.DUPLICATES.empty_table().select(["unit", "keeper_source"])
    read = partial(read_live_rows, table_url, columns=leading.column_names)
    rows = pa.concat_tables([leading, *map(read, files)], promote_options="permissive")
    led = set[str]()
    while sources:
        named = pc.is_in(rows["keeper_source"], pa.array([*sources], pa.string()))
        more = {*pc.unique(rows["unit"].filter(named)).to_pylist()} - led
        led |= more
        sources = {units[key].source for key in more if key in units}
    return led


def _read_rows(
    table_url: str,
    files: Sequence[LogicalFile],
    unit: str,
    kinds: Sequence[str],
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    wanted_kinds = pa.array(list(kinds), pa.string())
    for file in files:
        with live_rows(table_url, file, ["unit", "kind", *columns]) as opened:
            for group in opened.groups:
                if opened.may_hold(group, "unit", unit, unit):
                    rows = opened.row_group(group)
                    is_wanted = pc.and_(
                        pc.equal(rows["unit"], unit), pc.is_in(rows["kind"], wanted_kinds)
                    )
                    yield rows.filter(is_wanted).select(list(columns))
