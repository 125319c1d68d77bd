"""The status of a lake: its running jobs with progress, its tables, quarantined inputs, and its last run.

Everything comes from the leases and the logs, so that it can be read from any machine. Cost: one listing and
read of the leases and of the quarantine, and opening the tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import pyarrow.compute as pc

from etl import schemas, storage
from etl.delta.table import Table
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.lake.leases import Lease, all_leases
from etl.lake.missing_inputs import MissingInputs, read_missing
from etl.lake.missing_tables import no_lake_error
from etl.lake.open_table import find_table
from etl.lake.quarantine import Quarantine, Quarantined
from etl.lake.run_state import RunState
from etl.lake.table_names import table_names, tokens_line
from etl.lake.table_versions import stream_versions

_MAX_ENTRIES: Final = 200  # of a log that are read to find the last run


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job that holds a lease: live, or dead if it was not renewed for 15 minutes."""

    kind: str
    key: str
    host: str
    process: int
    started: datetime  # UTC, by the store's clock
    renewed: datetime
    is_alive: bool
    run: RunState | None  # None: another kind of job
    bytes_per_second: float | None  # of the present step
    step_ends: datetime | None  # at the rate of the step until now


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """The newest version of a table."""

    name: str
    version: int
    rows: int
    committed: datetime | None  # None: the log does not say


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run that has ended: its last commit, and the record of the run up to it."""

    run_id: str
    recipe: str
    started: str  # UTC, ISO 8601
    committed: str
    versions: dict[str, int]  # of the tables that it wrote, by name
    run: schemas.RunRecord

    def tokens_line(self) -> str:
        """Return the number of tokens, by table if a named tokenizer has made some."""
        return tokens_line({name: counts.tokens for name, counts in self.run.tokens.items()})


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeStatus(Shown):
    """The jobs, tables, quarantined inputs and last run of a lake."""

    lake: str
    jobs: list[JobStatus]
    tables: list[TableStatus]
    quarantined: list[Quarantined]
    last_run: RunSummary | None = field(default=None)
    missing: MissingInputs = field(default_factory=MissingInputs)  # of the last run

    def _cards(self) -> list[Card]:
        """Return the status as cards."""
        facts: dict[str, object] = {
            f"job {number}": f"{job.kind} {job.key}, {'running' if job.is_alive else 'dead'}"
            for number, job in enumerate(self.jobs, 1)
        }
        facts["quarantined"] = f"{len(self.quarantined):,}"
        facts["input files not listed any more"] = f"{self.missing.count:,}"
        facts["of these, documents without texts"] = f"{self.missing.without_texts:,}"
        if self.last_run is not None:
            facts["last run"] = f"{self.last_run.run_id} of {self.last_run.recipe}"
            facts["ended"] = self.last_run.committed
            facts["tokens"] = self.last_run.tokens_line()
        header = ("table", "version", "rows", "last commit (UTC)")
        tables = make_grid("Tables", header, self.tables, _table_cells)
        return [Card(title=f"Status of {self.lake}", facts=facts, grids=[tables])]


def _table_cells(table: TableStatus) -> list[str]:
    committed = "" if table.committed is None else f"{table.committed:%Y-%m-%d %H:%M:%S}"
    return [table.name, f"{table.version}", f"{table.rows:,}", committed]


def lake_status(lake: str, *, now: datetime | None = None) -> LakeStatus:
    """Return the status of a lake; ``now`` is the time by the store's clock, by default this machine's.

    Raises TableError if the URL has neither tables nor jobs.
    """
    url = storage.normalize(lake)
    now = datetime.now(UTC) if now is None else now
    jobs = [_job(lease, now) for lease in all_leases(url)]
    found = {name: find_table(storage.join(url, name)) for name in table_names(url)}
    tables = {name: table for name, table in found.items() if table is not None}
    if not tables and not jobs:
        raise no_lake_error(url)
    live = {job.run.run_id for job in jobs if job.is_alive and job.run is not None}
    return LakeStatus(
        lake=url,
        jobs=jobs,
        tables=[_table(name, table) for name, table in tables.items()],
        quarantined=Quarantine(url).notes(),
        last_run=_last_run(tables, live),
        missing=read_missing(url),
    )


def _job(lease: Lease, now: datetime) -> JobStatus:
    left = None if lease.state is None else lease.state.seconds_left
    return JobStatus(
        kind=lease.kind,
        key=lease.key,
        host=lease.host,
        process=lease.process,
        started=lease.started,
        renewed=lease.renewed,
        is_alive=lease.is_alive(now),
        run=lease.state,
        bytes_per_second=None if lease.state is None else lease.state.bytes_per_second,
        step_ends=None if left is None else lease.renewed + timedelta(seconds=left),
    )


def _table(name: str, table: Table) -> TableStatus:
    rows = sum(int(pc.sum(files["rows"]).as_py() or 0) for files in table.file_batches(["rows"]))
    newest = next(stream_versions(table), None)
    committed = None if newest is None else newest.time
    return TableStatus(name=name, version=table.version, rows=rows, committed=committed)


def _last_run(tables: Mapping[str, Table], live: set[str]) -> RunSummary | None:
    """Return the run with the newest commit among those that are not live."""
    newest: dict[str, tuple[int, schemas.Lineage]] = {}
    for name, table in tables.items():
        for version in islice(stream_versions(table), _MAX_ENTRIES):
            record = version.lineage
            if record is not None and record.run is not None and record.run_id not in live:
                newest[name] = version.version, record
                break
    if not newest:
        return None
    last = max((record for _, record in newest.values()), key=lambda record: record.committed)
    assert last.run is not None
    return RunSummary(
        run_id=last.run_id,
        recipe=last.recipe,
        started=last.started,
        committed=last.committed,
        versions={n: v for n, (v, record) in newest.items() if record.run_id == last.run_id},
        run=last.run,
    )
