"""Number the data files that a pass reads, and address rows by file number and position."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from etl.compact_collections import SpilledList
from etl.dedup.reference_lakes import ReferenceLake
from etl.kernels.hashing.sorted_sets import between
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KINDS, KeyFile, KeysTable, Kind, list_key_files
from etl.lake.work_units import WorkUnit, kept_units
from etl.stages.dedup import DedupStage

ROW_BITS = 40
"""Bits of the row in an address: a file has fewer than 2^40 rows, and a lake fewer than 2^23 files."""


FILES_PER_DUPLICATES_FILE = 64
"""Neighbouring data files of ``documents`` whose duplicates share a data file of ``duplicates``."""


@dataclass(frozen=True)
class NumberedFile:
    """A data file of ``documents`` with kept rows; numbers follow the order of addresses."""

    number: int
    source: str
    path: str
    rows: int
    decided: bool
    duplicates: tuple[str, ...]  # data files of ``duplicates`` that may list rows of this file
    kinds: tuple[str, ...] = KINDS  # kinds of duplicates to compare its rows for
    keyed: tuple[Kind, ...] = ()  # the kinds whose keys are in a table ``keys``
    lake: str | None = None  # URL of the lake, if it is another one


def number_files(
    units: Iterable[WorkUnit],
    decisions: DedupDecisions,
    *,
    numbers: Iterator[int] | None = None,
    kinds: tuple[str, ...] = KINDS,
    keyed: Callable[[WorkUnit], tuple[Kind, ...]] = lambda _: (),
    lake: str | None = None,
) -> Iterator[NumberedFile]:
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
            yield NumberedFile(
                number, source, path, rows, decided, duplicates, kinds, keyed_kinds, lake
            )


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


class ComparisonSet:
    """Data files of ``documents`` and of ``keys`` to compare, those of other lakes first."""

    def __init__(
        self,
        units: Iterable[WorkUnit],
        decisions: DedupDecisions,
        keys: KeysTable,
        others: Sequence[ReferenceLake],
        *,
        stages: Iterable[DedupStage],
    ) -> None:
        """Collect the files of all ``units`` of a lake and of the other lakes' decided units."""
        kinds = dict.fromkeys([*KINDS, *(kind for stage in stages for kind in stage.kinds)])
        numbers = count()
        other_files = (file for other in others for file in _files_of(other, numbers))
        own_files = number_files(
            units,
            decisions,
            numbers=numbers,
            kinds=tuple(kinds),
            keyed=lambda unit: KINDS if keys.has(unit.key) else (),
        )
        self.files = SpilledList(chain(other_files, own_files))
        tables = [*(other.keys for other in others), keys]
        self.keys = [file for table in tables for file in _keys_of(table)]


def _files_of(other: ReferenceLake, numbers: Iterator[int]) -> Iterator[NumberedFile]:
    decisions = DedupDecisions(other.duplicates)
    return number_files(
        (unit for unit in kept_units(other.documents) if decisions.include(unit)),
        decisions,
        numbers=numbers,
        kinds=other.kinds,
        keyed=lambda unit: other.keyed_kinds(unit.key),
        lake=other.url,
    )


def _keys_of(keys: KeysTable | None) -> list[KeyFile]:
    if keys is None or not keys.fits or keys.ledger.table is None:
        return []
    return list_key_files(keys.ledger.table)
