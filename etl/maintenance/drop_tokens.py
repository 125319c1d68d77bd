"""Remove the table of a tokenizer from a lake, with all its versions.

1. An epoch of the lake starts, in which the table has no rows: runs that were planned before can commit no
   more. See ``etl.lake.lake_epochs``.
2. The record of finished versions forgets the table, and its folder is deleted, the log first.

After a kill in between, the table is empty or its log is incomplete: dropping it again does the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import ConflictError, TableError, TokenlakeError
from etl.html.card import Shown
from etl.lake import leases, releases
from etl.lake.finished_versions import forget_table
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.lake_epochs import all_ledgers, drop_all, start_lake_epoch
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.lineage_record import Change
from etl.lake.missing_tables import no_lake_error, tables_of
from etl.lake.table_names import in_order, table_names, token_tables
from etl.lake.table_specs import spec_of


@dataclass(frozen=True, kw_only=True, repr=False)
class DroppedTable(Shown):
    """A table that was removed, or would be; its versions are gone with it."""

    lake: str
    table: str
    versions: int
    rows: int  # of the newest version
    files: int
    size: int  # bytes of these files
    done: bool


def drop_tokens(lake: str, table: str, *, delete: bool = False) -> list[DroppedTable]:
    """Find what removing the tokens of a tokenizer deletes, and delete it if ``delete`` is set.

    ``table`` is ``tokens`` or ``tokens_NAME``, whose shuffled rows go with it. The next run of a recipe with
    the tokenizer makes the table again, from the stored texts. Raises TableError if the lake has no such
    table, or if a release names it; ConflictError if another job writes to the lake, or reads the table.
    """
    url = storage.normalize(lake)
    existing = tables_of(url)
    if not existing:
        raise no_lake_error(url)
    if not schemas.is_tokens(table) or table not in existing:
        known = ", ".join(token_tables(existing)) or "none"
        what = f"{table!r} is not a table of tokens in this lake"
        raise TableError(
            what, where=url, hint=f"tables of tokens: {known}; `etl repair` drops damaged rows"
        )
    names = [name for name in existing if name == table or table in spec_of(name).made_from]
    _refuse_released(url, names)
    if not delete:
        return [_describe(url, name, done=False) for name in names]
    with hold_job(JobIdentity(lake=url, kind="drop")) as job:
        _refuse_others(url, names, job)
        dropped = [_describe(url, name, done=True) for name in names]
        _empty(url, names, job)
        # A run that took its lease since has opened the tables before, and fails at its first commit.
        _refuse_others(url, names, job)
        for name in reversed(in_order(names)):
            forget_table(url, name)
            storage.remove_folder(storage.join(url, name, "_delta_log"))
            storage.remove_folder(storage.join(url, name))
    return dropped


def _describe(lake: str, name: str, *, done: bool) -> DroppedTable:
    try:
        table = Table.open(storage.join(lake, name))
    except TokenlakeError:  # it may be what an interrupted drop has left
        return DroppedTable(lake=lake, table=name, versions=0, rows=0, files=0, size=0, done=done)
    files = [*table.files("size", "rows", by=())]
    return DroppedTable(
        lake=lake,
        table=name,
        versions=table.version + 1,
        rows=sum(file["rows"] for file in files),
        files=len(files),
        size=sum(file["size"] for file in files),
        done=done,
    )


def _empty(lake: str, names: Sequence[str], job: Job) -> None:
    """Start an epoch of the lake in which tables have no rows."""
    try:
        ledgers = all_ledgers(lake)
    except TokenlakeError:
        if any(name not in names for name in _damaged(lake)):
            raise
        return  # an interrupted drop has started the epoch
    drops = {name: drop_all(ledgers[name]) for name in names}

    def describe(
        table: Table, drop: Drop, _: Sequence[LedgerEntry], generation: int
    ) -> schemas.Lineage | None:
        action: schemas.Action = "drop" if drop.paths else "epoch"
        return job.record_on(table, Change(action=action, generation=generation))

    start_lake_epoch(ledgers, drops, describe)


def _damaged(lake: str) -> list[str]:
    """Return the tables that cannot be opened."""
    damaged = []
    for name in table_names(lake):
        try:
            Table.find(storage.join(lake, name))
        except TokenlakeError:
            damaged.append(name)
    return damaged


def _refuse_released(lake: str, names: Sequence[str]) -> None:
    for release in releases.list_releases(lake):
        if named := [name for name in names if name in release.versions]:
            raise TableError(
                f"release {release.name!r} names {named[0]}",
                where=lake,
                hint=f"remove it first: `{releases.removal_command(lake, release.name)}`",
            )


def _refuse_others(lake: str, names: Sequence[str], job: Job) -> None:
    """Raise ConflictError if another job may write to the lake, or reads one of some tables."""
    for other in leases.active_leases(lake, job.lease.now()):
        is_own = other.key == job.lease.key
        if not is_own and (not other.versions or not other.versions.keys().isdisjoint(names)):
            what = (
                f"a {other.kind} of this lake is running on {other.host} (process {other.process})"
            )
            raise ConflictError(what, where=lake, hint="retry when it has finished")
