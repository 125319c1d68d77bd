"""Open the ledger of a table for the recipe that made it, and refuse the changes of other programs."""

from etl.delta.table import Table
from etl.lake.commit_info import find_record, read_record
from etl.lake.ledger import Ledger


def find_ledger(table: Table) -> Ledger | None:
    """Return the ledger of a table for the recipe that made it; None if no recipe did."""
    record = find_record(table)
    if record is None:
        return None
    return Ledger(table.url, fingerprint=record.fingerprint, table=table)


def open_ledger(table: Table) -> Ledger:
    """Return the ledger of a table for the recipe that made it; raise TableError if no recipe did."""
    return Ledger(table.url, fingerprint=read_record(table).fingerprint, table=table)


def refuse_foreign_changes(*ledgers: Ledger) -> None:
    """Raise MismatchError for the first table whose data another program has changed."""
    for ledger in ledgers:
        if (changes := ledger.foreign_changes()) is not None:
            raise changes.error(ledger.url)
