"""What a repair undoes in one table, as seen without the changes of other programs."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from etl.delta.added_files import is_stored, read_added_files
from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.open_ledger import find_ledger
from etl.lake.table_specs import spec_of
from etl.parquet.data_file import DataFile

_THREADS = 16  # they wait for storage


@dataclass
class TableUndo:
    """What is undone in one table: the keys of units in ``documents``, and the data files to remove.

    ``table`` is what Tokenlake's commits have made, with the files that another program has removed
    (``removed``) and without those that it has added (``added``).
    """

    ledger: Ledger
    table: Table
    units: set[str] = field(default_factory=set)
    remove: set[str] = field(default_factory=set)
    added: frozenset[str] = frozenset()
    removed: Mapping[str, DataFile] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table) -> "TableUndo":
        """Open the ledger of a table, and find the changes of other programs."""
        ledger = find_ledger(table) or Ledger(table.url, fingerprint="", table=table)
        changes = ledger.foreign_changes()
        if changes is None:
            return cls(ledger, table)
        if spec_of(table.url.rpartition("/")[2]).is_index:  # the next run rebuilds it
            return cls(ledger, table, remove={file["path"] for file in table.files("path")})
        # The view is the table without foreign changes. Units to undo and files to remove are chosen in
        # it, since a file that another program has removed may be damaged, too.
        removed = {file.path: file for file in read_added_files(table.url, changes.removed)}
        added = frozenset(file.path for file in changes.added)
        view = table.preview(list(removed.values()), remove=added)
        return cls(ledger, view, added=added, removed=removed)

    @property
    def has_any(self) -> bool:
        """Whether anything is undone."""
        return bool(self.units or self.remove or self.added or self.removed)

    @property
    def restored(self) -> list[str]:
        """The paths of the data files that are added again."""
        return [path for path in self.removed if path not in self.remove]

    @property
    def dropped(self) -> set[str]:
        """The paths of the data files that are removed."""
        return {*self.added, *(self.remove - self.removed.keys())}

    def files(self) -> list[dict[str, Any]]:
        """Return the data files that Tokenlake's commits have made."""
        return list(self.table.data_files().to_pylist())

    def missing(self) -> Iterator[str]:
        """Yield the data files that another program has removed and that cannot be added again.

        A vacuum has deleted them, or the files with their deletion vectors.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            stored = pool.map(partial(is_stored, self.table.url), self.removed.values())
            yield from (
                path for path, is_there in zip(self.removed, stored, strict=True) if not is_there
            )
