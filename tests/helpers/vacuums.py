"""Records of vacuums, as a vacuum writes them before it deletes files."""

import os

from etl.delta.vacuum_records import VacuumRecord, write_record
from etl.lake.leases import HeldLease


def announce(url: str, lease: HeldLease, *, last: int) -> VacuumRecord:
    """Announce that files of the versions of a table up to ``last`` are deleted; return the record."""
    record = VacuumRecord(
        key=lease.key,
        host="here",
        process=os.getpid(),
        since=lease.started.isoformat(),
        files=1,
        versions=((0, last),),
    )
    write_record(url, record)
    return record
