"""Jobs that commit to a lake: their identity, their lease, and the lineage record of each commit."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from etl import schemas, storage
from etl.compute.library_versions import library_versions
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.leases import HeldLease, hold_lease
from etl.lake.lineage_record import Change, Origin
from etl.lake.run_state import RunState


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """A job as lineage records name it: an id, when it started, and the lake and the kind of the job."""

    lake: str
    kind: str  # run, shuffle, optimize ...
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    started: str = field(default_factory=_now)  # UTC, ISO 8601


@dataclass(frozen=True, kw_only=True)
class Job:
    """A running job: its identity, its lease, and what it checks besides the lease before each commit."""

    identity: JobIdentity
    lease: HeldLease
    checks: Sequence[Callable[[], None]] = ()

    def check(self) -> None:
        """Raise the error of a check that fails: then the job must not commit."""
        self.lease.check()
        for check in self.checks:
            check()

    def record(self, origin: Origin, change: Change) -> schemas.Lineage:
        """Return the lineage record of a commit, which is about to be made: check that the job may do so."""
        self.check()
        return schemas.Lineage(
            run_id=self.identity.id,
            recipe=origin.recipe,
            fingerprint=origin.fingerprint,
            fingerprints=origin.fingerprints,
            canonical=origin.canonical,
            step=origin.step,
            action=change.action,
            generation=change.generation,
            versions=dict(library_versions()),
            input_files=list(change.input_files),
            input_tables=list(change.input_tables),
            num_data_files=change.num_data_files,
            counts=change.counts,
            tokenizer=origin.tokenizer,
            seed=origin.seed,
            run=change.run,
            started=self.identity.started,
            committed=_now(),
        )

    def record_on(
        self, table: Table, change: Change, default: Origin | None = None
    ) -> schemas.Lineage | None:
        """Return the record of a commit that adds no new rows: their origin is the newest record's.

        Without input tables of the change, these are the newest record's, too.
        Of a table without a record, which has no rows yet, it is ``default``; without it, the result is None.
        """
        if (newest := find_record(table)) is not None:
            read = [*change.input_tables] or newest.input_tables
            change = replace(change, input_tables=read)
            return self.record(Origin.of(newest), change)
        if default is not None:
            return self.record(default, change)
        self.check()
        return None


@contextmanager
def hold_job(
    identity: JobIdentity, state: Callable[[], RunState | None] = lambda: None
) -> Iterator[Job]:
    """Hold the lease of a job that commits to a lake inside a ``with`` block, as ``hold_lease`` does.

    Raises StorageError if the store of the lake lets a second writer overwrite the commit of the first, and
    WriteError if the lake is not writable.
    """
    storage.check_conditional_writes(identity.lake)
    with hold_lease(identity.lake, identity.kind, state) as lease:
        yield Job(identity=identity, lease=lease)
