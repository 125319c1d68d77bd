"""Number the units of work that a pass reads, and address rows by file number and row.

Documents are decided in the order of their arrival (``WorkUnit.arrival``), and the documents of one arrival
at once. The documents of earlier arrivals are decided, and stay. If documents were read again after a
repair, the others of their arrival may be decided: these take part in the comparison, but their decisions
do not change. So decisions that are made again do not change. Documents of later arrivals are left out. Units
are numbered by arrival, then in the order of addresses. In the code of the passes, a unit is a numbered file:
it has one data file of ``texts``, or several if it is large.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl import schemas
from etl.compact_collections import SpilledList, sort_spilled
from etl.dedup.reference_lakes import ReferenceLake
from etl.delta.logical_file import LogicalFile
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KINDS, KeyFile, KeysTable, Kind, list_key_files
from etl.lake.work_units import WorkUnit, kept_units
from etl.stages.dedup_base import DedupStage

ROW_BITS = 40
"""Bits of the row in an address: row numbers are below 2^40, and a lake has fewer than 2^23 units."""


@dataclass(frozen=True)
class NumberedFile:
    """The kept rows of a unit of work; numbers follow arrivals, then the order of addresses."""

    number: int
    source: str
    unit: str  # its key
    files: tuple[LogicalFile, ...]  # of ``texts``, in row order
    rows: int
    decided: bool
    earlier: bool  # whether it arrived before the documents to decide on, or is in another lake
    duplicates: tuple[LogicalFile, ...]  # of that table, which may list rows of this file
    kinds: tuple[str, ...] = KINDS  # kinds of duplicates to compare its rows for
    keyed: tuple[Kind, ...] = ()  # the kinds whose keys are in a table ``keys``
    lake: str | None = None  # URL of the lake, if it is another one
    judged: tuple[LogicalFile, ...] = ()  # data files of ``documents``, if a pass reads them


class FileList(Protocol):
    """A list of numbered files, numbered from 0."""

    def take(self, numbers: NDArray[np.int64]) -> Sequence[NumberedFile]:
        """Return the files with these numbers (ascending, unique)."""
        ...

    def fields(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pd.DataFrame:
        """Return fields of the files with these numbers (ascending, unique), indexed by number."""
        ...


@dataclass(frozen=True)
class FilesInMemory:
    """A list of numbered files that is held in memory, for a few of them."""

    files: Sequence[NumberedFile]

    def take(self, numbers: NDArray[np.int64]) -> list[NumberedFile]:
        """Return the files with these numbers."""
        return [self.files[number] for number in numbers]

    def fields(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pd.DataFrame:
        """Return fields of the files with these numbers, indexed by number."""
        values = [[getattr(file, name) for name in names] for file in self.take(numbers)]
        return pd.DataFrame(values, columns=list(names), index=numbers)


def files_of(
    units: Iterable[WorkUnit],
    decisions: DedupDecisions,
    *,
    arrival: int | None = None,
    kinds: tuple[str, ...] = KINDS,
    keyed: Callable[[WorkUnit], tuple[Kind, ...]] = lambda _: (),
    lake: str | None = None,
) -> Iterator[NumberedFile]:
    """Yield units as files, all with the number 0.

    ``arrival`` is that of the documents to decide on; by default, all units are earlier. ``keyed`` returns
    the kinds for which a unit's keys are in a table ``keys``; ``lake`` is the URL of the units' lake if it is
    another one.
    """
    for unit in units:
        decided = decisions.include(unit)
        earlier = arrival is None or unit.arrival < arrival
        assert decided or not earlier, f"{unit.source}: an earlier unit is undecided"
        keyed_kinds = keyed(unit) if earlier else ()
        is_read = decided and not set(kinds) <= set(keyed_kinds)
        duplicates = decisions.files(unit) if is_read else ()
        yield NumberedFile(
            number=0,
            source=unit.source,
            unit=unit.key,
            files=unit.files,
            rows=unit.rows,
            decided=decided,
            earlier=earlier,
            duplicates=duplicates,
            kinds=kinds,
            keyed=keyed_kinds,
            lake=lake,
            judged=() if earlier else unit.judged,
        )


def number_files(files: Iterable[NumberedFile]) -> Iterator[NumberedFile]:
    """Yield files, which are in the order of arrivals and addresses, with numbers from 0."""
    return (replace(file, number=number) for number, file in enumerate(files))


def address(files: NDArray[np.int64] | np.int64, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the addresses of rows: file number and row in one integer, ordered by file, then row."""
    return rows | files << np.int64(ROW_BITS)


def file_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the file numbers of addresses."""
    return addresses >> np.int64(ROW_BITS)


def row_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of addresses."""
    return addresses & np.int64((1 << ROW_BITS) - 1)


class ComparisonSet:
    """Units and data files of ``keys`` to compare, to decide on the documents of an arrival."""

    def __init__(
        self,
        units: Iterable[WorkUnit],
        decisions: DedupDecisions,
        keys: KeysTable,
        others: Sequence[ReferenceLake],
        *,
        arrival: int,
        stages: Iterable[DedupStage],
    ) -> None:
        """Collect a lake's units up to ``arrival``, and the other lakes' decided units."""
        kinds = dict.fromkeys([*KINDS, *(kind for stage in stages for kind in stage.kinds)])
        kinds.pop(schemas.SHORT, None)  # a result of the comparison for CUT
        other_files = (file for other in others for file in _decided_files(other))
        own_files = files_of(
            by_arrival(units),
            decisions,
            arrival=arrival,
            kinds=tuple(kinds),
            keyed=keys.kinds_of,
        )
        self.files = SpilledList(number_files(chain(other_files, own_files)))
        tables = [*(other.keys for other in others), keys]
        self.keys = [file for table in tables for file in _keys_of(table)]


def by_arrival(units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
    """Yield units, which are in the order of addresses, by arrival first."""
    return sort_spilled(units, key=lambda unit: unit.arrival)


def _decided_files(other: ReferenceLake) -> Iterator[NumberedFile]:
    decisions = DedupDecisions(other.duplicates)
    return files_of(
        (unit for unit in kept_units(other.texts) if decisions.include(unit)),
        decisions,
        kinds=other.kinds,
        keyed=other.keyed_kinds,
        lake=other.url,
    )


def _keys_of(keys: KeysTable | None) -> list[KeyFile]:
    if keys is None or not keys.fits or keys.ledger.table is None:
        return []
    return list_key_files(keys.ledger.table)
