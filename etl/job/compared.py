"""Documents and keys that deduplication compares: those of the lake and of its reference lakes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count

from etl.compact import Spilled
from etl.job.decisions import Decisions
from etl.job.files import DataFile, data_files
from etl.job.keys import KeyFile, key_files
from etl.key_table import KINDS, KeyTable
from etl.plan import Unit, kept_units
from etl.references import OtherLake


class Compared:
    """Data files of ``documents`` and of ``keys`` to compare, those of other lakes first."""

    def __init__(
        self,
        units: Iterable[Unit],
        decisions: Decisions,
        keys: KeyTable,
        others: Sequence[OtherLake],
    ) -> None:
        """Collect the files of all ``units`` of a lake and of the other lakes' decided units."""
        numbers = count()
        other_files = (file for other in others for file in _files_of(other, numbers))
        own_files = data_files(
            units,
            decisions,
            numbers=numbers,
            keyed=lambda unit: KINDS if keys.has(unit.key) else (),
        )
        self.files = Spilled(chain(other_files, own_files))
        tables = [*(other.keys for other in others), keys]
        self.keys = [file for table in tables for file in _keys_of(table)]


def _files_of(other: OtherLake, numbers: Iterator[int]) -> Iterator[DataFile]:
    decisions = Decisions(other.duplicates)
    return data_files(
        (unit for unit in kept_units(other.documents) if decisions.include(unit)),
        decisions,
        numbers=numbers,
        kinds=other.kinds,
        keyed=lambda unit: other.keyed_kinds(unit.key),
        lake=other.url,
    )


def _keys_of(keys: KeyTable | None) -> list[KeyFile]:
    if keys is None or not keys.fits or keys.ledger.table is None:
        return []
    return key_files(keys.ledger.table)
