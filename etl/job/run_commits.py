"""Commit the results of one run with their lineage, count them, and quarantine failed work."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from etl import schemas
from etl.compute.usage import UsageMeter
from etl.dedup.reference_lakes import ReferenceLake
from etl.delta.table import Table
from etl.errors import LimitError, StorageError, TokenlakeError, error_line
from etl.job.progress import RunReport
from etl.lake.keys_table import KeysTable
from etl.lake.known_files import HeldFiles
from etl.lake.ledger import Describe, Drop, Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import (
    count_results,
    input_files,
    maintenance_record,
    name_record,
    run_record,
)
from etl.lake.quarantine import Quarantine, Quarantined
from etl.lake.stage_costs import StageCost, stage_costs, total_counts
from etl.lake.table_specs import SPECS
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import STEPS, Recipe, Step
from etl.sources import Split
from etl.stages.tokenize import Encoder, Tokenize
from etl.visible_text import one_line

UnitLocation = tuple[str, str]
"""A unit of work as shown to a user: the input file, and the part of it."""


_NO_COUNTS: Final = schemas.Counts()

_LISTING: Final = "listing"
"""The step of notes about files and folders that are left out."""


class RunCommits:
    """The commits of one run and the report about them."""

    def __init__(self, recipe: Recipe, ledgers: Mapping[Step, Ledger]) -> None:
        """``ledgers`` may be replaced when the run plans again."""
        self._recipe = recipe
        self._ledgers = ledgers
        self.report = RunReport(self._recipe.name, str(self._recipe.lake), uuid.uuid4().hex[:12])
        self._notes = Quarantine(str(self._recipe.lake))
        self._started = _now()
        self.check_run: Callable[[], None] = lambda: None  # before each commit
        self.canonical = self._recipe.canonical()
        # For a table whose own records are lost; the same for each commit of the run.
        self._fingerprints = {s: self._recipe.fingerprint(s) for s in self._recipe.steps}
        self._totals = dict.fromkeys(STEPS, _NO_COUNTS)
        self._stored: Counter[str] = Counter()  # bytes of data files, by table
        self._read: Counter[Step] = Counter()  # bytes of files, by step
        self.estimate: schemas.Usage | None = None
        self.meter: UsageMeter | None = None

    def commit(
        self,
        step: Step,
        entries: list[LedgerEntry],
        results: Sequence[WorkResult],
        *,
        num_bytes: int,
        splits: Mapping[str, Split] | None = None,
    ) -> None:
        """Commit entries, and count the results that another run has not committed before.

        ``num_bytes`` have been read for them.
        """
        self._read[step] += num_bytes

        def describe(entries: Sequence[LedgerEntry], generation: int) -> dict[str, Any]:
            committed = _results_of(entries, results)
            files = input_files(committed, splits) if splits is not None else []
            files += self._names_of(entries)
            counts = count_results(committed)
            return self._record(step, entries, generation, counts=counts, input_files=files)

        committed = self._ledgers[step].commit(entries, describe)
        self._report_names(committed)
        total = count_results(_results_of(committed, results))
        self._count(step, committed, total)
        report = self.report
        if step == "documents":
            report.rows += total.rows
            report.kept += total.kept
            report.text_bytes += total.text_bytes
            report.rejected = dict(Counter(report.rejected) + Counter(total.rejected))
        else:
            report.tokens += total.tokens
            report.special_texts += total.special_texts

    def commit_names(self, entries: list[LedgerEntry]) -> None:
        """Commit that input files which the lake holds have other names, or other times."""

        def describe(entries: Sequence[LedgerEntry], generation: int) -> dict[str, Any]:
            files = self._names_of(entries)
            return self._record("documents", [], generation, action="names", input_files=files)

        self._report_names(self._ledgers["documents"].commit(entries, describe))

    def _names_of(self, entries: Sequence[LedgerEntry]) -> list[schemas.InputFile]:
        """Return the files of entries that are names of files which the lake holds, with their addresses."""
        names = [entry.split for entry in entries if entry.is_name and entry.split is not None]
        if not names:
            return []
        documents = self._ledgers["documents"]
        addresses = HeldFiles(documents.table, documents.inputs).by_identity()
        new = (entry.split for entry in entries if not entry.is_name and entry.split is not None)
        addresses |= {split.identity: split.source for split in new}
        return [name_record(split, addresses.get(split.identity)) for split in names]

    def _report_names(self, committed: Sequence[LedgerEntry]) -> None:
        """Report the copies and moved files among committed entries."""
        for file in self._names_of(committed):
            if file.same_as is not None and file.same_as != file.uri:
                self.report.add_name(file.uri, file.same_as)

    def count_duplicates(self, entries: Sequence[LedgerEntry], counts: schemas.Counts) -> None:
        """Count a commit to ``duplicates``."""
        self._count("duplicates", entries, counts)
        self.report.duplicates += counts.duplicates

    def _count(self, step: Step, entries: Sequence[LedgerEntry], counts: schemas.Counts) -> None:
        self._totals[step] = total_counts([self._totals[step], counts])
        self._stored[step] += _num_bytes(entries)

    def clear_quarantine(self, step: Step, location: UnitLocation) -> None:
        """Remove the quarantine note of a unit, which an earlier run may have left."""
        self._notes.clear(step, *location)

    def clear_other_parts(self, step: Step, locations: Iterable[UnitLocation]) -> None:
        """Remove notes about parts of files that are read in other parts now, by another split size."""
        notes = [note for note in self._notes.notes() if note.step == step]
        noted = {note.source for note in notes}
        parts = {location for location in locations if location[0] in noted}
        sources = {source for source, _ in parts}
        for note in notes:
            if note.source in sources and (note.source, note.part) not in parts:
                self._notes.clear(step, note.source, note.part)

    def quarantine(self, step: Step, location: UnitLocation, error: BaseException) -> Quarantined:
        """Quarantine a unit, with the error that its task raised, and return its note."""
        if not isinstance(error, TokenlakeError) or isinstance(error, LimitError):
            self.check_run()  # perhaps a worker of another version could not read it
        text = _error_text(error, location[0])
        note = self._notes.put(step, *location, text)
        self.report.add_quarantined(note)
        return note

    def quarantine_unlisted(self, problems: Sequence[StorageError]) -> None:
        """Quarantine files and folders that are left out, of the source or of lists that stages read.

        Removes notes about others, which now can be read.
        """
        errors = {one_line(str(error.where)): error for error in problems}
        for note in self._notes.notes():
            if note.step == _LISTING and note.source not in errors:
                self._notes.clear(_LISTING, note.source, note.part)
        for source, error in errors.items():
            text = _error_text(error, str(error.where))
            self.report.add_quarantined(self._notes.put(_LISTING, source, "", text))

    def checkpoint_errors(self) -> dict[str, str]:
        """Write checkpoints that are due, since earlier attempts failed; return the errors by table."""
        ledgers: dict[str, Ledger] = dict(self._ledgers.items())
        if "duplicates" in ledgers:
            ledgers["keys"] = KeysTable(ledgers["duplicates"]).ledger
        tables = {name: ledger.table for name, ledger in ledgers.items() if ledger.table}
        errors = {name: t.checkpoint_if_due().checkpoint_error for name, t in tables.items()}
        return {name: error_line(error) for name, error in errors.items() if error is not None}

    def costs(self) -> list[StageCost]:
        """Return the costs of each part of the work."""
        stages = [stage.model_dump(mode="json") for stage in self._recipe.stages]
        return stage_costs(stages, [self._totals["documents"]], [self._totals["tokens"]])

    def used(self, *, committing: int = 0) -> schemas.Usage:
        """Return what the run has used until now; data files of so many bytes are being committed."""
        stored = self._stored.total() + committing
        known = schemas.Usage(
            read_bytes=self._read.total(), written_bytes=stored, stored_bytes=stored
        )
        if self.meter is None:
            return known
        self.meter.update()
        store = self.meter.store
        return schemas.Usage(
            core_seconds=round(self.meter.core_seconds, 1),
            cpu_seconds=round(self.meter.cpu_seconds, 1),
            read_bytes=store.read_bytes or known.read_bytes,
            written_bytes=store.written_bytes or known.written_bytes,
            read_requests=store.read_requests,
            write_requests=store.write_requests,
            stored_bytes=stored,
        )

    def _run_record(
        self, step: str, entries: Sequence[LedgerEntry], counts: schemas.Counts
    ) -> schemas.RunRecord:
        """Return the record of the run up to a commit of these entries."""
        totals: dict[str, schemas.Counts] = dict(self._totals.items())
        if step in totals:
            totals[step] = total_counts([totals[step], counts])
        return schemas.RunRecord(
            estimate=self.estimate,
            used=self.used(committing=_num_bytes(entries)),
            input_bytes=self._read["documents"],
            **totals,
            stored=dict(self._stored + Counter({step: _num_bytes(entries)})),
            quarantined=self.report.num_quarantined,
            skipped_items=self.report.skipped_items,
        )

    def describe_drop(self, table: Table, drop: Drop, generation: int) -> dict[str, Any]:
        """Return the lineage record of the commit with which a table starts an epoch."""
        self.check_run()
        name = table.url.rsplit("/", 1)[-1]
        if drop.rebuild is not None:
            (step,) = (step for step in STEPS if step == name)
            return self._record(step, [], generation, action="rebuild")
        forgotten = [
            schemas.InputFile(uri=uri, size=0, fingerprint="", rows=0) for uri in sorted(drop.files)
        ]
        return maintenance_record(
            table,
            "drop" if drop.paths else "epoch",
            run_id=self.report.run_id,
            generation=generation,
            input_files=forgotten,
        )

    def lineage(
        self,
        step: Step | Literal["keys"],
        counts: schemas.Counts = _NO_COUNTS,
        *,
        action: Literal["append", "rebuild", "arrival", "optimize"] = "append",
        fingerprint: str | None = None,
        others: Iterable[ReferenceLake] = (),
    ) -> Describe:
        """Return a function that describes a commit with these counts, called once its entries are known.

        ``fingerprint`` is that of the table, by default the recipe's. ``others`` are read as well.
        """
        fields: dict[str, Any] = {"counts": counts, "action": action}
        if fingerprint is not None:
            fields["fingerprint"] = fingerprint
        tables = [table for other in others for table in other.tables()]

        def describe(entries: Sequence[LedgerEntry], generation: int) -> dict[str, Any]:
            read = self._input_tables(step) + tables
            return self._record(step, entries, generation, input_tables=read, **fields)

        return describe

    def _record(
        self,
        step: Step | Literal["keys"],
        entries: Sequence[LedgerEntry],
        generation: int,
        **fields: Any,
    ) -> dict[str, Any]:
        """Return the lineage record of a commit; ``fields`` override the usual values.

        It is made right before each commit, so this is where a run stops whose lease has expired, or which
        has a worker with another version.
        """
        self.check_run()
        encoder = self._recipe.tokenize_stage if step == "tokens" else None
        usual = {
            "run_id": self.report.run_id,
            "canonical": self.canonical,
            "fingerprint": None if step == "keys" else self._fingerprints[step],
            "fingerprints": self._fingerprints,
            "action": "append",
            "generation": generation,
            "input_files": [],
            "input_tables": self._input_tables(step),
            "num_data_files": sum(len(entry.data_files) for entry in entries),
            "tokenizer": None if encoder is None else load_reference_tokenizer(encoder).record(),
            "run": self._run_record(step, entries, fields.get("counts", _NO_COUNTS)),
            "started": self._started,
            "committed": _now(),
        }
        return run_record(self._recipe, step, **{**usual, **fields})

    def _input_tables(self, step: Step | Literal["keys"]) -> list[schemas.InputTable]:
        """Return the tables that a step reads, in their current versions."""
        ledgers = ((name, self._ledgers[name]) for name in self._recipe.steps)
        tables = (ledger.table for name, ledger in ledgers if name in SPECS[step].made_from)
        return [
            schemas.InputTable(name=t.url.rsplit("/", 1)[-1], url=t.url, version=t.version)
            for t in tables
            if t is not None
        ]


def _num_bytes(entries: Sequence[LedgerEntry]) -> int:
    """Return the bytes of the data files of entries."""
    return sum(file.size for entry in entries for file in entry.data_files)


def _results_of(entries: Sequence[LedgerEntry], results: Sequence[WorkResult]) -> list[WorkResult]:
    """Return the results whose rows entries commit."""
    keys = {entry.key for entry in entries if not entry.is_name}
    return [result for result in results if result.key in keys]


def load_reference_tokenizer(stage: Tokenize) -> Encoder:
    """Return the tokenizer for the driver, which does not encode: without the fast path, in 0.4 s."""
    return Encoder.of(stage.model_copy(update={"fast": False}))


def _error_text(error: BaseException, source: str) -> str:
    """Return an error in one line, to be shown next to the name of the input file."""
    if not isinstance(error, TokenlakeError):
        return repr(error)
    elsewhere = f"{error.where}: " if error.where not in (None, source) else ""
    return f"{elsewhere}{error.what}" + (f" ({error.hint})" if error.hint else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
