"""Undo the changes of a lake's data by other programs, such as RESTORE, DELETE or OPTIMIZE.

Afterwards the log of each table names the data files that Tokenlake's commits made, and no others. A file
that no longer exists, since a vacuum has deleted it, is then missing like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from etl.delta.added_files import read_added_files
from etl.delta.data_file import DataFile
from etl.delta.table import Table
from etl.lake.epochs import drop_all, open_lake, start_epoch
from etl.lake.foreign_changes import ForeignChanges
from etl.lake.leases import HeldLease
from etl.lake.ledger import Drop, Ledger, key_of
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import maintenance_record
from etl.lake.table_specs import SPECS
from etl.schemas import InputFile


@dataclass(frozen=True, kw_only=True)
class ForeignUndo:
    """The data files that are added again and those that are removed, by table."""

    restored: dict[str, list[str]] = field(default_factory=dict)
    dropped: dict[str, list[str]] = field(default_factory=dict)


def undo_foreign_changes(lake: str, lease: HeldLease | None) -> ForeignUndo:
    """Find the changes by other programs, and undo them if a lease is held.

    Raises ConflictError if another process commits concurrently.
    """
    ledgers = open_lake(lake)
    undo = ForeignUndo()
    drops: dict[str, Drop] = {}
    for name, ledger in ledgers.items():
        changes = ledger.foreign_changes()
        if changes is None:
            continue
        drops[name] = drop_all(ledger) if SPECS[name].is_index else _drop(ledger, changes)
        undo.restored[name] = [file.path for entry in drops[name].add for file in entry.data_files]
        undo.dropped[name] = list(drops[name].paths)
    if lease is not None and drops:
        start_epoch(ledgers, drops, partial(describe_repair, lease))
    return undo


def _drop(ledger: Ledger, changes: ForeignChanges) -> Drop:
    """Return what undoes the changes of one table."""
    files: dict[str, list[DataFile]] = {}
    for file in read_added_files(ledger.url, changes.removed):
        files.setdefault(key_of(file.path), []).append(file)
    add = [LedgerEntry(key, own) for key, own in files.items()]
    return Drop(paths=changes.added, add=add, is_undo=True)


def describe_repair(
    lease: HeldLease,
    table: Table,
    drop: Drop,
    generation: int,
    *,
    input_files: Sequence[InputFile] = (),
) -> dict[str, Any]:
    """Return the lineage record of the commit with which a repair starts an epoch; check the lease first."""
    lease.check()
    return maintenance_record(
        table,
        "repair" if drop.paths or drop.add else "epoch",
        generation=generation,
        num_data_files=sum(len(entry.data_files) for entry in drop.add),
        input_files=list(input_files),
    )
