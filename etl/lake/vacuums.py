"""Find the vacuums that delete files of a version: a job that needs them looks for the records of vacuums.

A vacuum announces the versions that lose files, reads again what is needed, decides, and only then deletes.
A job that makes a version needed writes that first, and then looks for records of it. So one of the two sees
the other: see "Deleting files" in docs/explanation/exactly-once.md.
"""

from datetime import datetime

from etl.delta.table import Table
from etl.delta.vacuum_records import VacuumRecord, is_vacuumed, read_records
from etl.errors import ConflictError, TableError
from etl.lake.leases import HeldLease, active_leases


def find_vacuum(table: Table, now: datetime) -> VacuumRecord | None:
    """Return the record of a vacuum that has deleted files of a table's version, or may still do so.

    What a vacuum has announced is void when its lease has expired at ``now``, the time of the store: it can
    delete nothing any more.
    """
    records = [record for record in read_records(table.url) if record.includes(table.version)]
    decided = next((record for record in records if record.is_decided), None)
    if decided is not None or not records:
        return decided
    live = {lease.key for lease in active_leases(table.url.rpartition("/")[0], now)}
    return next((record for record in records if record.key in live), None)


def check_not_vacuumed(table: Table) -> None:
    """Raise TableError if a vacuum has deleted data files of the table's version, or will do so."""
    if is_vacuumed(table.url, table.version):
        raise TableError(
            f"data files of version {table.version} were deleted by a vacuum",
            where=table.url,
            hint="use a newer version; `etl release` protects a version from vacuums",
        )


def check_kept(table: Table, now: datetime) -> None:
    """Raise the error for a version that was just made needed, if a vacuum may not have seen that.

    TableError if the vacuum has decided to delete data files, ConflictError if it may still decide so.
    """
    record = find_vacuum(table, now)
    if record is not None and record.is_decided:
        check_not_vacuumed(table)
    elif record is not None:
        raise ConflictError(
            f"a vacuum on {record.host} (process {record.process}) is about to delete data files of "
            f"version {table.version}",
            where=table.url,
            hint="retry when it has finished",
        )


def refuse_during_vacuum(lake: str, lease: HeldLease, what: str) -> None:
    """Raise ConflictError if a vacuum runs on a lake on which a job has just taken its lease."""
    if any(other.kind == "vacuum" for other in active_leases(lake, lease.now())):
        raise ConflictError(
            f"a vacuum of this lake is running, and may delete {what}",
            where=lake,
            hint="retry when it has finished",
        )
