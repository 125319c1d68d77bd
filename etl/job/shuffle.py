"""Shuffle the tokens of a lake: write ``tokens_shuffled``, the rows of ``tokens`` in a random order.

This is the external shuffle of Rao (1961) and Sandelius (1962): each row gets a random key, the rows are
distributed over buckets by their keys, and each bucket, which fits into memory, is sorted by them.

1. Each task of the first pass reads some files of ``tokens`` and writes their rows to one file of the lake's
   scratch space, grouped by bucket.
2. Each task of the second pass reads one bucket of all these files and writes it as a data file.

A worker holds about a bucket of rows twice, so that the size of a bucket is an eighth of its memory limit, at
most 512 MB. With B buckets, the passes exchange about 2 * B * B fragments: 10,000 buckets of 512 MB are 5 TB
of tokens, with fragments of 25 kB.

Each finished task leaves a note in the scratch space, so that a killed shuffle continues. The driver commits
all data files at once: readers see all rows of a version of ``tokens``, or none of them.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from distributed import Client

from etl import schemas, storage
from etl.compute.cluster import Cluster, connect
from etl.compute.connect import raise_if_scheduler_lost
from etl.compute.time_limit import TIME_LIMIT
from etl.compute.versions import library_versions
from etl.compute.worker_versions import WorkerVersions
from etl.delta.data_file import DataFile
from etl.delta.table import Table
from etl.errors import MismatchError, StorageError, TableError
from etl.job.bucket_files import write_list
from etl.job.progress import Progress
from etl.job.shuffle_passes import run_pass, sort_pass, split_pass
from etl.job.shuffle_plan import PlannedPart, bucket_bytes_for, new_files, plan_part
from etl.job.shuffle_tasks import SortBucket, SplitFiles
from etl.lake import leases
from etl.lake.commit_info import read_record
from etl.lake.epochs import epoch_of, open_lake
from etl.lake.ledger import Ledger, find_ledger, open_ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.open_table import find_table
from etl.lake.scratch import list_scratch, remove_scratch, scratch_folder
from etl.lake.shuffled_table import ShuffledTable, seed_of
from etl.lake.table_specs import SHUFFLED
from etl.lake.vacuums import refuse_during_vacuum

_MEMORY = 2 << 30  # of a worker without a limit; chosen here


@dataclass(frozen=True, kw_only=True)
class ShuffleReport:
    """The table after a shuffle, and what the shuffle added to it."""

    lake: str
    version: int  # of tokens_shuffled
    tokens_version: int  # of tokens, whose rows it has
    seed: int
    rows: int
    tokens: int
    parts: int  # commits that added rows
    added_rows: int  # by this shuffle
    added_tokens: int
    buckets: int  # that it wrote
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ShuffleSettings:
    """What to shuffle, and how.

    ``seed`` is by default that of the table, or 0. ``rebuild`` shuffles all rows again. ``bucket_bytes`` are
    the bytes of tokens in a bucket, by default an eighth of the memory limit of a worker, at most 512 MB.
    """

    seed: int | None = None
    rebuild: bool = False
    bucket_bytes: int | None = None


DEFAULTS = ShuffleSettings()


def shuffle(
    lake: str,
    *,
    settings: ShuffleSettings = DEFAULTS,
    cluster: Cluster | Client | str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_client: Callable[[Client], None] | None = None,
) -> ShuffleReport:
    """Write the rows of the newest version of ``tokens`` to ``tokens_shuffled``, and return a report.

    If the table exists, only rows that it does not have are added. It is written as a whole if rows of
    ``tokens`` were dropped since. No cluster is started if nothing is to be done.

    Raises TableError if the lake has no tokens, MismatchError if the table has another seed or if the start
    of an epoch was interrupted, ClusterError if the scheduler is lost, and the error of a task that fails.
    """
    job = _Shuffle(storage.normalize(lake), settings)
    num_bytes = job.planned_bytes()
    if num_bytes is None:
        return job.report()
    with connect(cluster, num_bytes) as client:
        if on_client is not None:
            on_client(client)
        job.client = client
        job.on_progress = on_progress or job.on_progress
        storage.check_conditional_writes(job.lake)
        with leases.hold_lease(job.lake, "shuffle") as lease, raise_if_scheduler_lost(client):
            versions = WorkerVersions(client)
            versions.check()
            job.checks = (lease.check, versions.check)
            if next(list_scratch(job.lake), None) is not None:
                refuse_during_vacuum(job.lake, lease, "the files of an earlier shuffle")
            job.run()
            _remove_abandoned_scratch(job.lake, lease)
    return job.report()


def _remove_abandoned_scratch(lake: str, lease: leases.HeldLease) -> None:
    """Remove what earlier shuffles have left that were not continued, unless another one is running."""
    others = leases.active_leases(lake, lease.now())
    if not any(other.kind == lease.kind and other.key != lease.key for other in others):
        remove_scratch(scratch_folder(lake, "shuffle"))


def _worker_memory(client: Client) -> int:
    """Return the least memory limit of the workers in bytes."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return min((worker["memory_limit"] or _MEMORY for worker in workers), default=_MEMORY)


class _Shuffle:
    """One call of ``shuffle``: the tables, and what was added to them."""

    client: Client
    time_limit = TIME_LIMIT

    def __init__(self, lake: str, settings: ShuffleSettings) -> None:
        self.lake = lake
        self.on_progress: Callable[[Progress], None] = lambda _: None
        self.checks: Sequence[Callable[[], None]] = ()  # before each commit
        self._settings = settings
        self._run_id = uuid.uuid4().hex[:12]
        self._started, self._start_time = time.monotonic(), _now()
        self._added: list[PlannedPart] = []
        self._open()

    def _open(self) -> None:
        """Open the newest versions of the tables."""
        table = find_table(storage.join(self.lake, "tokens"))
        if table is None:
            raise TableError(
                "the lake has no table tokens",
                where=self.lake,
                hint="check the URL, and run a recipe that ends with `tokenize`",
            )
        if epoch_of(open_lake(self.lake)) is None:
            raise MismatchError(
                "another process is dropping rows of this lake, or was interrupted",
                where=self.lake,
                hint="run the recipe with `etl run`, which finishes that, and then shuffle",
            )
        is_empty = next(table.files("path", by=()), None) is None
        no_rows = Ledger(table.url, fingerprint="", table=table) if is_empty else None
        self._tokens = find_ledger(table) or no_rows or open_ledger(table)
        if (changes := self._tokens.foreign_changes()) is not None:
            raise changes.error(table.url)
        existing = find_table(storage.join(self.lake, SHUFFLED.name))
        self.seed = self._find_seed(seed_of(existing))
        self._shuffled = ShuffledTable(self._tokens, seed=self.seed, table=existing)

    def _find_seed(self, recorded: int | None) -> int:
        seed = self._settings.seed
        if seed is None:
            return recorded or 0
        if recorded not in (None, seed) and not self._settings.rebuild:
            raise MismatchError(
                f"the table was shuffled with seed {recorded}, not {seed}",
                where=storage.join(self.lake, SHUFFLED.name),
                hint=f"pass --rebuild to shuffle it again, or --seed {recorded} to add new rows",
            )
        return seed

    def planned_bytes(self) -> int | None:
        """Return the bytes of the tokens to shuffle; None if nothing is to be done."""
        begins = self._settings.rebuild or not self._shuffled.fits
        first = 0 if begins else self._shuffled.tokens_version
        files = list(new_files(_table(self._tokens), first))
        return 4 * sum(file.tokens for file in files) if files or begins else None

    def run(self) -> None:
        """Add all rows of the version of ``tokens`` that is the newest now."""
        self._open()  # the lease protects the files of these versions
        goal = _table(self._tokens).version
        if not self._shuffled.fits or (self._settings.rebuild and self._shuffled.num_parts):
            self._begin()  # a table without parts is one that an interrupted shuffle has begun
        bucket_bytes = self._settings.bucket_bytes or bucket_bytes_for(_worker_memory(self.client))
        while self._shuffled.tokens_version < goal:
            planned = plan_part(
                _table(self._tokens), self._shuffled, bucket_bytes=bucket_bytes, run=self._run_id
            )
            if planned is None:
                return
            try:
                self._add(planned)
            except StorageError:
                self._reopen()
                if self._shuffled.tokens_version < planned.part.last:
                    raise
                # Another run has added the part, and has removed its intermediate files.
                remove_scratch(planned.folder)

    def _begin(self) -> None:
        """Create the table, or drop its rows."""
        exists = self._shuffled.ledger.table is not None
        self._shuffled.create()
        if exists:
            self._shuffled.drop(lambda generation: self._record("rebuild", generation))
        self._reopen()

    def _reopen(self) -> None:
        """Read the newest versions; raise MismatchError if rows were dropped since."""
        self._tokens.refresh()
        self._shuffled = ShuffledTable(self._tokens, seed=self.seed)
        if not self._shuffled.fits or self._shuffled.ledger.epoch != self._tokens.epoch:
            raise self._tokens.other_epoch()

    def _add(self, planned: PlannedPart) -> None:
        """Do both passes over a part, and commit it."""
        part, url = planned.part, self._shuffled.ledger.url
        split = SplitFiles(
            tokens=self._tokens.url,
            folder=planned.folder,
            buckets=part.buckets,
            seed=self.seed,
            run_bytes=max(part.bucket_bytes // 2, 1),
        )
        files = run_pass(self, split_pass(split), list(planned.splits()))
        _check_rows(self._tokens.url, sum(file.rows for file in files), planned.rows)
        sort = SortBucket(
            url=url,
            folder=planned.folder,
            files=write_list(planned.folder, files),
            buckets=part.buckets,
            part=self._shuffled.part_key(part.first),
            row_group_bytes=planned.row_group_bytes(self._total("max.token_end")),
        )
        buckets = run_pass(self, sort_pass(sort), range(part.buckets))
        _check_rows(url, sum(bucket.rows for bucket in buckets), planned.rows)
        self._commit(planned, [file for bucket in buckets for file in bucket.files])

    def _commit(self, planned: PlannedPart, files: Sequence[DataFile]) -> None:
        """Commit all files of a part, unless another run has committed the part."""
        self._tokens.refresh()  # raises if rows were dropped since
        key = self._shuffled.part_key(planned.part.first)
        entry = LedgerEntry(key, files, arrival=planned.part.last)
        describe = partial(self._describe, planned)
        if self._shuffled.ledger.commit([entry], describe):
            self._added.append(planned)
        remove_scratch(planned.folder)
        self._reopen()

    def _describe(
        self, planned: PlannedPart, entries: Sequence[LedgerEntry], generation: int
    ) -> Mapping[str, Any]:
        inputs = schemas.InputTable(name="tokens", url=self._tokens.url, version=planned.part.last)
        return self._record(
            "append",
            generation,
            input_tables=[inputs],
            num_data_files=sum(len(entry.data_files) for entry in entries),
            counts=schemas.Counts(rows=planned.rows, kept=planned.rows, tokens=planned.tokens),
        )

    def _record(self, action: str, generation: int, **fields: Any) -> Mapping[str, Any]:
        """Return the lineage record of a commit, with the recipe and the tokenizer of ``tokens``."""
        for check in self.checks:
            check()
        usual = {
            "run_id": self._run_id,
            "fingerprint": self._shuffled.ledger.fingerprint,
            "step": SHUFFLED.name,
            "action": action,
            "generation": generation,
            "versions": dict(library_versions()),
            "input_files": [],
            "input_tables": [],
            "num_data_files": 0,
            "counts": schemas.Counts(),
            "seed": self.seed,
            "run": None,
            "started": self._start_time,
            "committed": _now(),
        }
        record = read_record(_table(self._tokens)).model_copy(update={**usual, **fields})
        return record.model_dump(mode="json")

    def report(self) -> ShuffleReport:
        """Return the report on the table as it is now."""
        table = self._shuffled.ledger.table
        return ShuffleReport(
            lake=self.lake,
            version=-1 if table is None else table.version,
            tokens_version=self._shuffled.tokens_version,
            seed=self.seed,
            rows=self._total("rows"),
            tokens=self._total("max.token_end"),
            parts=self._shuffled.num_parts,
            added_rows=sum(planned.rows for planned in self._added),
            added_tokens=sum(planned.tokens for planned in self._added),
            buckets=sum(planned.part.buckets for planned in self._added),
            seconds=time.monotonic() - self._started,
        )

    def _total(self, column: str) -> int:
        """Return the sum of a column of the table's data files."""
        files = _table(self._shuffled.ledger).data_files()
        return sum(files[column].to_pylist()) if files.num_rows else 0


def _table(ledger: Ledger) -> Table:
    assert ledger.table is not None
    return ledger.table


def _check_rows(url: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise TableError(
            f"{rows} rows were shuffled, but the log says {expected}",
            where=url,
            hint="run `etl verify LAKE`",
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
