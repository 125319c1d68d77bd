"""Commit the results of one run with their lineage, and count them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etl import schemas
from etl.compute.worker_usage import UsageMeter
from etl.dedup.reference_lakes import ReferenceLake
from etl.delta.table import Table
from etl.errors import error_line
from etl.job.cluster_job import ClusterJob
from etl.job.run_identity import RunIdentity
from etl.job.tally import Tally, num_bytes
from etl.lake.keys_table import KeysTable
from etl.lake.known_files import HeldFiles
from etl.lake.ledger import Describe, Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.lineage_record import NO_COUNTS, Change, input_files, name_record, num_files
from etl.lake.stage_costs import total_counts
from etl.lake.table_names import token_tables
from etl.lake.table_specs import KEYS, spec_of
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Step
from etl.schemas import TableName
from etl.sources import Split


@dataclass(frozen=True, kw_only=True)
class RunCommits:
    """Commits to the tables that one plan of a run has opened; the tally of the run counts them."""

    run: RunIdentity
    job: ClusterJob
    tally: Tally
    ledgers: Mapping[Step, Ledger]
    meter: UsageMeter
    estimate: schemas.Usage | None = None  # None: the work of the plan has not begun

    def commit(
        self,
        step: Step,
        entries: list[LedgerEntry],
        results: Sequence[WorkResult],
        *,
        read_bytes: int,
        splits: Mapping[str, Split] | None = None,
    ) -> None:
        """Commit entries, and count the results that another run has not committed before.

        ``read_bytes`` have been read for them.
        """
        self.tally.add_read(step, read_bytes)

        def describe(entries: Sequence[LedgerEntry], generation: int) -> schemas.Lineage:
            committed = _results_of(entries, results)
            files = input_files(committed, splits) if splits is not None else []
            files += self._names_of(entries)
            change = Change(
                action="append",
                generation=generation,
                input_files=files,
                counts=total_counts(committed),
            )
            return self._record(step, entries, change)

        committed = self.ledgers[step].commit(entries, describe)
        self._report_names(committed)
        self.count(step, committed, total_counts(_results_of(committed, results)))

    def count(self, step: Step, entries: Sequence[LedgerEntry], counts: schemas.Counts) -> None:
        """Count a commit, and report it to the listener."""
        self.tally.add_commit(step, entries, counts)
        self.job.committed(self.tally.run_totals())

    def commit_names(self, entries: list[LedgerEntry]) -> None:
        """Commit that input files which the lake holds have other names, or other times."""

        def describe(entries: Sequence[LedgerEntry], generation: int) -> schemas.Lineage:
            files = self._names_of(entries)
            change = Change(action="names", generation=generation, input_files=files)
            return self._record("documents", [], change)

        self._report_names(self.ledgers["documents"].commit(entries, describe))

    def _names_of(self, entries: Sequence[LedgerEntry]) -> list[schemas.InputFile]:
        """Return the files of entries that are names of files which the lake holds, with their addresses."""
        names = [entry.split for entry in entries if entry.is_name and entry.split is not None]
        if not names:
            return []
        documents = self.ledgers["documents"]
        addresses = HeldFiles(documents.table, documents.inputs).by_identity()
        new = (entry.split for entry in entries if not entry.is_name and entry.split is not None)
        addresses |= {split.identity: split.source for split in new}
        return [name_record(split, addresses.get(split.identity)) for split in names]

    def _report_names(self, committed: Sequence[LedgerEntry]) -> None:
        """Report the copies and moved files among committed entries."""
        for file in self._names_of(committed):
            if file.same_as is not None and file.same_as != file.uri:
                self.tally.add_name(file.uri, file.same_as)

    def checkpoint_errors(self) -> dict[str, str]:
        """Write checkpoints that are due, since earlier attempts failed; return the errors by table."""
        ledgers: dict[str, Ledger] = dict(self.ledgers.items())
        if "duplicates" in ledgers:
            ledgers["keys"] = KeysTable(ledgers["duplicates"]).ledger
        tables = {name: ledger.table for name, ledger in ledgers.items() if ledger.table}
        errors = {name: t.checkpoint_if_due().checkpoint_error for name, t in tables.items()}
        return {name: error_line(error) for name, error in errors.items() if error is not None}

    def describe_drop(
        self, table: Table, drop: Drop, entries: Sequence[LedgerEntry], generation: int
    ) -> schemas.Lineage | None:
        """Return the lineage record of the commit with which a table starts an epoch."""
        step = spec_of(table.url.rpartition("/")[2]).name
        if drop.rebuild is not None:
            return self._record(step, entries, Change(action="rebuild", generation=generation))
        forgotten = (
            schemas.InputFile(uri=uri, size=0, fingerprint="", rows=0) for uri in sorted(drop.files)
        )
        change = Change(
            action="drop" if drop.paths else "epoch",
            generation=generation,
            input_files=forgotten,
            run=self._run_record(step, entries, NO_COUNTS),
        )
        return self.job.record_on(table, change)

    def describe(
        self,
        step: TableName,
        counts: schemas.Counts = NO_COUNTS,
        *,
        action: schemas.Action = "append",
        others: Iterable[ReferenceLake] = (),
    ) -> Describe:
        """Return a function that describes a commit with these counts, called once its entries are known.

        ``others`` are read as well.
        """
        tables = [table for other in others for table in other.tables()]

        def describe(entries: Sequence[LedgerEntry], generation: int) -> schemas.Lineage:
            change = Change(
                action=action, generation=generation, input_tables=tables, counts=counts
            )
            return self._record(step, entries, change)

        return describe

    def describe_keys(self, counts: schemas.Counts, action: schemas.Action) -> Describe:
        """Return a function that describes a commit to ``keys``."""
        return self.describe(KEYS.name, counts, action=action)

    def _record(
        self, step: TableName, entries: Sequence[LedgerEntry], change: Change
    ) -> schemas.Lineage:
        """Return the lineage record of a commit of entries to the table of a step."""
        complete = replace(
            change,
            input_tables=[*self._input_tables(step), *change.input_tables],
            num_data_files=num_files(entries),
            run=self._run_record(step, entries, change.counts),
        )
        # That of ``keys`` includes the generation of ``duplicates``.
        fingerprint = self.ledgers["duplicates"].key(step) if step == KEYS.name else None
        return self.job.record(self.run.origin(step, fingerprint), complete)

    def _run_record(
        self, step: TableName, entries: Sequence[LedgerEntry], counts: schemas.Counts
    ) -> schemas.RunRecord:
        """Return the record of the run up to a commit of entries with these counts to a table."""
        tally, committing = self.tally, num_bytes(entries)
        totals = defaultdict(schemas.Counts, tally.totals)
        totals[step] = total_counts([totals[step], counts])
        return schemas.RunRecord(
            estimate=self.estimate,
            used=self.used(committing=committing),
            input_bytes=tally.read["documents"],
            documents=totals["documents"],
            duplicates=totals["duplicates"],
            tokens={name: totals[name] for name in token_tables(totals)},
            stored=dict(tally.stored + Counter({step: committing})),
            quarantined=tally.num_quarantined,
            skipped_items=tally.skipped_items,
        )

    def used(self, *, committing: int = 0) -> schemas.Usage:
        """Return what the run has used until now; data files of so many bytes are being committed."""
        self.meter.update()
        stored, store = self.tally.stored.total() + committing, self.meter.store
        return schemas.Usage(
            core_seconds=round(self.meter.core_seconds, 1),
            cpu_seconds=round(self.meter.cpu_seconds, 1),
            read_bytes=store.read_bytes or self.tally.read.total(),
            written_bytes=store.written_bytes or stored,
            read_requests=store.read_requests,
            write_requests=store.write_requests,
            stored_bytes=stored,
        )

    def _input_tables(self, step: TableName) -> list[schemas.InputTable]:
        """Return the tables that a step reads, in their current versions."""
        ledgers = ((name, self.ledgers[name]) for name in self.run.recipe.steps)
        tables = (ledger.table for name, ledger in ledgers if name in spec_of(step).made_from)
        return [
            schemas.InputTable(name=t.url.rsplit("/", 1)[-1], url=t.url, version=t.version)
            for t in tables
            if t is not None
        ]


def _results_of(entries: Sequence[LedgerEntry], results: Sequence[WorkResult]) -> list[WorkResult]:
    """Return the results whose rows entries commit."""
    keys = {entry.key for entry in entries if not entry.is_name}
    return [result for result in results if result.key in keys]
