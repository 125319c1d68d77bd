"""What new documents are compared with: those of the lake, and those that other lakes keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from etl.job.decisions import Decisions
from etl.job.files import DataFile, data_files
from etl.job.keys import KeyFile, key_files
from etl.key_table import KINDS, KeyTable
from etl.plan import Unit, kept_units
from etl.references import OtherLake


@dataclass(frozen=True)
class Compared:
    """The data files of ``documents``, other lakes' first, and the data files with keys of them."""

    files: list[DataFile]
    keys: list[KeyFile]

    @classmethod
    def of(
        cls,
        units: Sequence[Unit],
        decisions: Decisions,
        keys: KeyTable,
        others: Sequence[OtherLake],
    ) -> "Compared":
        """All that bears on the units of a lake that are not decided yet."""
        found = cls([], [])
        for other in others:
            found._add_other(other)
        found.files.extend(
            data_files(
                units,
                decisions,
                first=len(found.files),
                keyed=lambda unit: KINDS if keys.has(unit.key) else (),
            )
        )
        found._add_keys(keys)
        return found

    def _add_other(self, other: OtherLake) -> None:
        decisions = Decisions(other.duplicates)
        units = [unit for unit in kept_units(other.documents) if decisions.include(unit)]
        self.files.extend(
            data_files(
                units,
                decisions,
                first=len(self.files),
                kinds=other.kinds,
                keyed=lambda unit: other.keyed_kinds(unit.key),
                lake=other.url,
            )
        )
        self._add_keys(other.keys)

    def _add_keys(self, keys: KeyTable | None) -> None:
        if keys is not None and keys.fits and keys.ledger.table is not None:
            self.keys.extend(key_files(keys.ledger.table))
