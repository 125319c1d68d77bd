"""The table ``keys`` of a lake: whether it is up to date, its data files and their key ranges."""

from dataclasses import dataclass
from typing import Final, Literal

from etl import schemas, storage
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake.ledger import Describe, Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.table_specs import KEYS
from etl.lake.work_units import WorkUnit

Kind = Literal["exact", "near", "cut", "near_dropped"]

KINDS: Final[tuple[Kind, ...]] = ("exact", "near", "cut")
"""The kinds of keys by which runs find duplicates, each named like the rows of ``duplicates`` that it helps
to find."""

STORED_KINDS: Final[tuple[Kind, ...]] = (*KINDS, "near_dropped")
"""All kinds of keys. Only a change of the recipe needs the keys of near duplicates."""


class KeysTable:
    """The current ``keys`` table of a lake, next to the table ``duplicates``.

    Its fingerprint includes the recipe and the generation of ``duplicates``: rebuilding that table also
    invalidates the keys.
    """

    def __init__(self, duplicates: Ledger, table: Table | None = None) -> None:
        """Open the table at its newest version, or take an open one."""
        lake, _, _ = duplicates.url.rpartition("/")
        self.ledger = Ledger(
            storage.join(lake, KEYS.name), fingerprint=duplicates.key(KEYS.name), table=table
        )
        is_other = self.ledger.table is None or self.ledger.is_other_recipe
        self.fits = not is_other and self.ledger.foreign_changes() is None
        self._lake_epoch, self._change = duplicates.lake_epoch, duplicates.change

    def create_or_rebuild(self, describe: Describe) -> None:
        """Create or rebuild the table; create a new KeysTable afterwards.

        Nothing is derived from its rows, so that rebuilding it starts no epoch. Raises MismatchError if the
        lake is in another epoch than ``duplicates`` was when it was opened.
        """
        if self.ledger.table is None:
            self.ledger.create(
                schemas.KEYS, KEYS.layout, lake_epoch=self._lake_epoch, change=self._change
            )
            return
        if self.ledger.lake_epoch != self._lake_epoch:
            raise self.ledger.other_epoch()
        drop = Drop(rebuild=(schemas.KEYS, KEYS.layout))
        self.ledger.drop(drop, describe, lake_epoch=self._lake_epoch)

    def has(self, unit: str) -> bool:
        """Return whether the table holds the keys of a unit of work, given its key."""
        return self.fits and self.ledger.is_done(self.ledger.key(unit))

    def kinds_of(self, unit: WorkUnit) -> tuple[Kind, ...]:
        """Return the kinds of keys that the table holds for a unit."""
        return KINDS if self.has(unit.key) else ()


@dataclass(frozen=True)
class KeyFile:
    """A data file of ``keys``: the table's URL, the file, its kind, least and greatest key, and rows."""

    table: str
    file: LogicalFile
    kind: Kind
    low: int  # least key
    high: int  # greatest key
    rows: int


def list_key_files(table: Table) -> list[KeyFile]:
    """Return the data files of a table ``keys``."""
    files = table.data_files()
    if not files.num_rows:
        return []
    names = ["path", "vector", "partition.kind", "min.key", "max.key", "rows"]
    return [
        KeyFile(table.url, LogicalFile(path, vector), kind, low, high, rows)
        for path, vector, kind, low, high, rows in zip(
            *(files[name].to_pylist() for name in names), strict=True
        )
    ]
