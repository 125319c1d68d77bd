"""What new documents are compared with: those of the lake, and those that other lakes keep."""

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
    """The data files of ``documents``, other lakes' first, and the data files with keys of them."""

    def __init__(
        self,
        units: Iterable[Unit],
        decisions: Decisions,
        keys: KeyTable,
        others: Sequence[OtherLake],
    ) -> None:
        """All that bears on the units of a lake that are not decided yet."""
        numbers = count()
        of_others = (file for other in others for file in _files_of(other, numbers))
        own = data_files(
            units,
            decisions,
            numbers=numbers,
            keyed=lambda unit: KINDS if keys.has(unit.key) else (),
        )
        self.files = Spilled(chain(of_others, own))
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
