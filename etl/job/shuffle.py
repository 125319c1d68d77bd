"""Shuffle the tokens of a lake: write ``tokens_shuffled``, the rows of ``tokens`` in a random order.

The table of a named tokenizer is shuffled in the same way: ``tokens_NAME`` to ``tokens_NAME_shuffled``.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from distributed import Client

from etl import schemas, storage
from etl.compute.cluster import Cluster
from etl.compute.compute_frames import with_restarts
from etl.compute.listener import Listener
from etl.compute.print_listener import listener_of
from etl.delta.table import Table
from etl.errors import ShuffleError, StorageError, TableError
from etl.job.bucket_files import write_list
from etl.job.cluster_job import ClusterJob, hold_cluster_job
from etl.job.shuffle_passes import run_pass, sort_pass, split_pass
from etl.job.shuffle_plan import PlannedPart, bucket_bytes_for, plan_part
from etl.job.shuffle_tables import ShuffleTables
from etl.job.shuffle_tasks import SortBucket, SplitFiles
from etl.lake import leases
from etl.lake.commit_info import read_record
from etl.lake.jobs import JobIdentity
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change, Origin, num_files
from etl.lake.scratch import list_scratch, remove_scratch, scratch_folder
from etl.lake.vacuums import refuse_during_vacuum
from etl.parquet.data_file import DataFile
from etl.parquet.row_digests import add_digests, from_hex
from etl.storage.store_time_limit import reporting_waits

_MEMORY = 2 << 30  # of a worker without a limit; chosen here


@dataclass(frozen=True, kw_only=True)
class ShuffleReport:
    """The table after a shuffle, and what the shuffle added to it."""

    lake: str
    table: str  # the shuffled table
    version: int  # of that table
    tokens_version: int  # of the table of tokens whose rows it has
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

    ``seed`` is by default the table's seed, or 0. ``rebuild`` shuffles all rows again. ``bucket_bytes`` are
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
    listener: Listener | None = None,
) -> ShuffleReport:
    """Write the rows of the newest version of ``tokens`` to ``tokens_shuffled``, and return a report.

    ``lake`` is the URL of a lake, or of one of its tables of tokens: ``LAKE/tokens_NAME`` is shuffled to
    ``LAKE/tokens_NAME_shuffled``.

    If the table exists, only rows that it does not have are added. It is written as a whole if rows of
    ``tokens`` that it has were dropped or struck since. No cluster is started if nothing is to be done.
    ``listener`` follows the shuffle, as in ``run``.

    Raises TableError if the lake has no tokens, MismatchError if the table has another seed or if the start
    of an epoch was interrupted, ClusterError if the scheduler is lost, and the error of a task that fails.
    """
    started, (url, tokens) = time.monotonic(), _lake_and_tokens(storage.normalize(lake))
    tables, added = _open(tokens, settings), list[PlannedPart]()
    num_bytes = tables.bytes_to_shuffle(rebuild=settings.rebuild)
    if num_bytes is not None:
        identity = JobIdentity(lake=url, kind="shuffle")
        listener = listener_of(listener)
        with (
            reporting_waits(listener.waiting),
            hold_cluster_job(identity, cluster, num_bytes=num_bytes, listener=listener) as job,
        ):
            if next(list_scratch(url), None) is not None:
                refuse_during_vacuum(url, job.lease, "the files of an earlier shuffle")
            work = _Shuffle(job, tokens, settings)
            work.run()
            _remove_abandoned_scratch(url, job.lease)
        tables, added = work.tables, work.added
    return _report(url, tables, added, seconds=time.monotonic() - started)


def _lake_and_tokens(url: str) -> tuple[str, str]:
    """Return the URLs of the lake and of its table of tokens that a URL names; ``tokens`` for a lake."""
    lake, _, name = url.rpartition("/")
    is_table = schemas.is_tokens(name) and Table.exists(storage.join(lake, "documents"))
    return (lake, url) if is_table else (url, storage.join(url, "tokens"))


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
    """Adds the rows of ``tokens`` to ``tokens_shuffled``, as a part of a job."""

    def __init__(self, job: ClusterJob, tokens: str, settings: ShuffleSettings) -> None:
        """Open the tables again: the lease of the job protects the files of these versions."""
        self._job = job
        self._settings = settings
        self.tables = _open(tokens, settings)
        self.added: list[PlannedPart] = []

    def run(self) -> None:
        """Add all rows of the version of ``tokens`` that is the newest now."""
        goal, shuffled = self.tables.tokens_table.version, self.tables.shuffled
        begins = self.tables.must_begin(rebuild=self._settings.rebuild)
        if not shuffled.fits or (begins and shuffled.num_parts):
            self._begin()  # a table without parts was begun by an interrupted shuffle
        bucket_bytes = self._settings.bucket_bytes or bucket_bytes_for(
            _worker_memory(self._job.client)
        )
        # A part that an interrupted run has planned ends at an older version of ``tokens``: then one
        # more part follows.
        add = partial(self._add_next, bucket_bytes)
        while self.tables.shuffled.tokens_version < goal:
            if self.tables.must_begin(rebuild=False):  # rows were struck after such a version
                self._begin()
            if not with_restarts(self._job.client, add, ShuffleError, label=shuffled.name):
                return

    def _add_next(self, bucket_bytes: int, restarts: int) -> bool:
        """Add the next part, from its beginning after a restart; return False if there is none."""
        planned = self._plan(bucket_bytes)
        if planned is not None and restarts:
            remove_scratch(planned.folder)  # and the notes of what is done
            planned = self._plan(bucket_bytes)
        if planned is None:
            return False
        try:
            self._add(planned)
        except StorageError:
            self.tables = self.tables.newest()
            if self.tables.shuffled.tokens_version < planned.part.last:
                raise
            # Another run has added the part, and has removed its intermediate files.
            remove_scratch(planned.folder)
        return True

    def _plan(self, bucket_bytes: int) -> PlannedPart | None:
        tables, run = self.tables, self._job.identity.id
        return plan_part(tables.tokens_table, tables.shuffled, bucket_bytes=bucket_bytes, run=run)

    def _begin(self) -> None:
        """Create the table, or drop its rows."""
        shuffled = self.tables.shuffled
        exists = shuffled.ledger.table is not None
        shuffled.create()
        if exists:
            shuffled.drop(
                lambda _, generation: self._record(Change(action="rebuild", generation=generation))
            )
        self.tables = self.tables.newest()

    def _add(self, planned: PlannedPart) -> None:
        """Do both passes over a part, and commit it."""
        part, shuffled, tokens = planned.part, self.tables.shuffled, self.tables.tokens
        split = SplitFiles(
            tokens=tokens.url,
            folder=planned.folder,
            buckets=part.buckets,
            seed=shuffled.seed,
            run_bytes=max(part.bucket_bytes // 2, 1),
        )
        splits = list(planned.splits())
        files = run_pass(self._job, split_pass(split), splits, table=shuffled.name)
        rows = sum(file.rows for file in files)
        if rows != planned.rows:
            raise TableError(
                f"it has {rows:,} rows, but the log says {planned.rows:,}",
                where=tokens.url,
                hint="run `etl verify LAKE`",
            )
        planned = replace(planned, tokens=sum(file.tokens for file in files))
        sort = SortBucket(
            url=shuffled.ledger.url,
            folder=planned.folder,
            files=write_list(planned.folder, files),
            buckets=part.buckets,
            part=shuffled.part_key(part.first),
            row_group_bytes=planned.row_group_bytes(self.tables.total("max.token_end")),
        )
        buckets = run_pass(self._job, sort_pass(sort), range(part.buckets), table=shuffled.name)
        # A shuffle that loses, repeats or changes rows must not be committed.
        written = sum(bucket.rows for bucket in buckets)
        new = [file for bucket in buckets for file in bucket.files]
        digest = add_digests(from_hex(str(file.digest)) for file in new)
        if written != rows or digest != add_digests(file.digest for file in files):
            raise ShuffleError(
                f"the shuffle of {rows:,} rows has written {written:,} rows, not the same ones",
                where=shuffled.ledger.url,
            )
        self._commit(planned, new)

    def _commit(self, planned: PlannedPart, files: Sequence[DataFile]) -> None:
        """Commit all files of a part, unless another run has committed the part."""
        self.tables.tokens.refresh()  # raises if rows were dropped since
        shuffled = self.tables.shuffled
        key = shuffled.part_key(planned.part.first)
        # The arrival of a part is the version of ``tokens`` that it ends at: the next part begins there.
        entry = LedgerEntry(key, files, arrival=planned.part.last)
        if shuffled.ledger.commit([entry], partial(self._describe, planned)):
            self.added.append(planned)
        remove_scratch(planned.folder)
        self.tables = self.tables.newest()

    def _describe(
        self, planned: PlannedPart, entries: Sequence[LedgerEntry], generation: int
    ) -> schemas.Lineage:
        url, version = self.tables.tokens.url, planned.part.last
        change = Change(
            action="append",
            generation=generation,
            input_tables=[
                schemas.InputTable(name=url.rpartition("/")[2], url=url, version=version)
            ],
            num_data_files=num_files(entries),
            counts=schemas.Counts(rows=planned.rows, kept=planned.rows, tokens=planned.tokens),
        )
        return self._record(change)

    def _record(self, change: Change) -> schemas.Lineage:
        """Return the lineage record of a commit, with the recipe and the tokenizer of ``tokens``."""
        shuffled = self.tables.shuffled
        origin = replace(
            Origin.of(read_record(self.tables.tokens_table)),
            step=shuffled.name,
            fingerprint=shuffled.ledger.fingerprint,
            seed=shuffled.seed,
        )
        return self._job.record(origin, change)


def _open(tokens: str, settings: ShuffleSettings) -> ShuffleTables:
    return ShuffleTables.open(tokens, seed=settings.seed, rebuild=settings.rebuild)


def _report(
    lake: str, tables: ShuffleTables, added: Sequence[PlannedPart], *, seconds: float
) -> ShuffleReport:
    """Return the report on the table as it is now."""
    shuffled = tables.shuffled
    table = shuffled.ledger.table
    return ShuffleReport(
        lake=lake,
        table=shuffled.name,
        version=-1 if table is None else table.version,
        tokens_version=shuffled.tokens_version,
        seed=shuffled.seed,
        rows=tables.total("rows"),
        tokens=tables.total("max.token_end"),
        parts=shuffled.num_parts,
        added_rows=sum(planned.rows for planned in added),
        added_tokens=sum(planned.tokens for planned in added),
        buckets=sum(planned.part.buckets for planned in added),
        seconds=seconds,
    )
