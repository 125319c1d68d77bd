"""Epochs of a lake: rows are dropped only when one starts; within an epoch, tables only grow.

All tables of a lake have the same epoch number, and whatever a run has planned or decided is valid for that
epoch: no row that it has seen can vanish. A process that drops rows starts a new epoch, and every later
commit of a run that was planned before fails. The commits that start an epoch are made downstream first, so
that no row outlives its origin. If the process dies between them, the numbers differ, and the next run starts
another epoch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import ConflictError, MismatchError
from etl.lake.finished_versions import check_finished
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.open_table import find_table
from etl.lake.table_names import in_order, table_names

DescribeDrop = Callable[[Table, Drop, Sequence[LedgerEntry], int], schemas.Lineage | None]
"""A function that describes a commit as ``Describe`` does, given also its table and what it drops."""


def all_ledgers(lake: str, opened: Iterable[Ledger] = ()) -> dict[str, Ledger]:
    """Return the ledgers that are open already and of the other tables, in the order of their inputs.

    Raises DamagedLogError if a table has an older version than when a job last ended.
    """
    ledgers = {ledger.url.rpartition("/")[2]: ledger for ledger in opened}
    for name in table_names(lake):
        if name not in ledgers and (table := find_table(storage.join(lake, name))) is not None:
            ledgers[name] = Ledger(table.url, fingerprint="", table=table)
    versions = {name: led.table.version for name, led in ledgers.items() if led.table is not None}
    check_finished(lake, versions)
    return {name: ledgers[name] for name in in_order(ledgers)}


def lake_epoch_of(ledgers: Mapping[str, Ledger]) -> int | None:
    """Return the epoch of a lake, 0 for one without tables; None if the start of an epoch was interrupted."""
    epochs = {ledger.lake_epoch for ledger in ledgers.values() if ledger.table is not None}
    return epochs.pop() if len(epochs) == 1 else None if epochs else 0


def current_lake_epoch(lake: str) -> int:
    """Return the epoch of a lake; raise MismatchError if the start of one was interrupted."""
    lake_epoch = lake_epoch_of(all_ledgers(lake))
    if lake_epoch is None:
        raise MismatchError(
            "another process is dropping rows of this lake, or was interrupted",
            where=lake,
            hint="run the recipe with `etl run`, which finishes that, and then try again",
        )
    return lake_epoch


def drop_all(index: Ledger) -> Drop:
    """Return what a table drops that the next run rebuilds from the others."""
    assert index.table is not None
    return Drop(paths=[file["path"] for file in index.table.files("path")], is_void=True)


def start_lake_epoch(
    ledgers: Mapping[str, Ledger], drops: Mapping[str, Drop], describe: DescribeDrop
) -> None:
    """Start an epoch in all tables of a lake, and drop rows in the same commits.

    ``ledgers`` are the result of ``all_ledgers``; what to drop must have been determined from the versions
    they have open. Raises ConflictError if a table has a newer version, or was created since: then that must
    be done again.
    """
    for ledger in ledgers.values():
        if ledger.table is None and Table.exists(ledger.url):  # with rows that may have to go first
            raise ConflictError("another process has created the table", where=ledger.url)
    tables = {name: ledger for name, ledger in ledgers.items() if ledger.table is not None}
    lake_epoch = 1 + max(ledger.lake_epoch for ledger in tables.values())
    for name in reversed(in_order(tables)):
        ledger, drop = tables[name], drops.get(name, Drop())
        assert ledger.table is not None
        ledger.drop(drop, partial(describe, ledger.table, drop), lake_epoch=lake_epoch)
