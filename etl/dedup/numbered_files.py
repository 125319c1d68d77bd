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

ROW_BITS = 40
"""Of an address as one number: a file has fewer than 2^40 rows, and a lake fewer than 2^23 files."""


FILES_PER_FRAGMENT = 64
"""A fragment of ``duplicates`` names rows of so many neighbouring data files."""


@dataclass(frozen=True)
class NumberedFile:
    """One data file of ``documents`` with kept rows; its number orders it by address."""

    number: int
    source: str
    path: str
    rows: int
    decided: bool
    duplicates: tuple[str, ...]  # data files of ``duplicates`` that may name rows of it
    kinds: tuple[Kind, ...] = KINDS  # of duplicates that its rows are compared for
    keyed: tuple[Kind, ...] = ()  # of those, the ones whose keys stand in a table ``keys``
    lake: str | None = None  # URL of the other lake that it is of


def number_files(
    units: Iterable[WorkUnit],
    decisions: DedupDecisions,
    *,
    numbers: Iterator[int] | None = None,
    kinds: tuple[Kind, ...] = KINDS,
    keyed: Callable[[WorkUnit], tuple[Kind, ...]] = lambda _: (),
    lake: str | None = None,
) -> Iterator[NumberedFile]:
    """The data files of units (in the order of their addresses), numbered in that order.

    ``numbers`` are given to them, 0 and so on if not told otherwise; ``keyed`` says of which kinds a unit's
    keys stand in a table; ``lake`` is the URL of another lake.
    """
    numbers = count() if numbers is None else numbers
    for unit in units:
        decided = decisions.include(unit)
        known = keyed(unit) if decided else ()
        is_read = decided and not set(kinds) <= set(known)
        duplicates = decisions.files(unit.source) if is_read else ()
        for path in unit.paths:
            number, source, rows = next(numbers), unit.source, unit.rows
            yield NumberedFile(number, source, path, rows, decided, duplicates, kinds, known, lake)


def address(files: NDArray[np.int64] | np.int64, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of numbered files as one number each, in the order of addresses."""
    return rows | files << np.int64(ROW_BITS)


def file_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the files of such addresses."""
    return addresses >> np.int64(ROW_BITS)


def row_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of such addresses."""
    return addresses & np.int64((1 << ROW_BITS) - 1)


def of_files(addresses: NDArray[np.int64], files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of some addresses (ascending) that lie in numbered files, or between these (ascending, too)."""
    low, high = int(files[0]) << ROW_BITS, (int(files[-1]) + 1) << ROW_BITS
    return between(addresses, low, high - 1)


class ComparisonSet:
    """The data files of ``documents``, other lakes' first, and the data files with keys of them."""

    def __init__(
        self,
        units: Iterable[WorkUnit],
        decisions: DedupDecisions,
        keys: KeysTable,
        others: Sequence[ReferenceLake],
    ) -> None:
        """All that bears on the units of a lake that are not decided yet."""
        numbers = count()
        of_others = (file for other in others for file in _files_of(other, numbers))
        own = number_files(
            units,
            decisions,
            numbers=numbers,
            keyed=lambda unit: KINDS if keys.has(unit.key) else (),
        )
        self.files = SpilledList(chain(of_others, own))
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
