"""The tally of a run: what it has committed, quarantined and found so far."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from etl import schemas
from etl.compute.listener import RunTotals
from etl.job.planner import OpenPlan
from etl.job.run_identity import RunIdentity
from etl.job.run_report import MAX_SHOWN, RunReport
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import NO_COUNTS
from etl.lake.quarantine import Quarantined
from etl.lake.stage_costs import stage_costs, total_counts
from etl.lake.table_names import token_tables
from etl.recipe.little_kept import little_kept
from etl.recipe.recipe import Step
from etl.schemas import TableName


class Tally:
    """Adds up the counts of a run: rows and bytes by table, quarantined units, copies of files."""

    def __init__(self, skipped_items: Mapping[str, int]) -> None:
        """``skipped_items`` are what stages leave out of the files that they read, by reason."""
        self.skipped_items = dict(skipped_items)
        self.totals: defaultdict[Step, schemas.Counts] = defaultdict(lambda: NO_COUNTS)
        self._cut = 0  # documents from which repeated paragraphs were cut
        self.num_quarantined = 0
        self._quarantined: list[Quarantined] = []  # the first MAX_SHOWN
        self._num_copies = 0
        self._copies: dict[str, str] = {}  # the first MAX_SHOWN
        self.stored: Counter[TableName] = Counter()  # bytes of data files
        self.read: Counter[TableName] = Counter()  # bytes of files
        self._commits: Counter[TableName] = Counter()

    def add_read(self, step: Step, num_bytes: int) -> None:
        """Count bytes that a step has read."""
        self.read[step] += num_bytes

    def add_commit(
        self, step: Step, entries: Sequence[LedgerEntry], counts: schemas.Counts
    ) -> None:
        """Count a commit."""
        self.totals[step] = total_counts([self.totals[step], counts])
        self.stored[step] += num_bytes(entries)
        self._commits[step] += bool(entries)

    def add_cut(self, documents: int) -> None:
        """Count documents from which repeated paragraphs were cut."""
        self._cut += documents

    def add_name(self, uri: str, address: str) -> None:
        """Count a file that is a copy of another one, or was moved; describe the first ones."""
        self._num_copies += 1
        if len(self._copies) < MAX_SHOWN:
            self._copies[uri] = address

    def add_quarantined(self, note: Quarantined) -> None:
        """Count a quarantined unit, and describe it if it is one of the first."""
        self.num_quarantined += 1
        if len(self._quarantined) < MAX_SHOWN:
            self._quarantined.append(note)

    def tokens(self) -> dict[Step, schemas.Counts]:
        """Return the counts of each tokenizer's table."""
        return {name: self.totals[name] for name in token_tables(self.totals)}

    def run_totals(self) -> RunTotals:
        """Return the counts for a listener."""
        documents, tokens = self.totals["documents"], total_counts(self.tokens().values())
        return RunTotals(
            kept=documents.kept,
            rejected=documents.rejected,
            duplicates=self.totals["duplicates"].duplicates,
            tokens=tokens.tokens,
            text_bytes=documents.text_bytes,
            read_bytes=dict(self.read),
            stored_bytes=dict(self.stored),
            commits=dict(self._commits),
            quarantined=self.num_quarantined,
            seconds=total_counts([documents, tokens]).costs,
        )

    def report(
        self,
        run: RunIdentity,
        planned: OpenPlan,
        estimate: schemas.Usage | None = None,
        used: schemas.Usage | None = None,
        checkpoint_errors: Mapping[str, str] = MappingProxyType({}),
    ) -> RunReport:
        """Return the report of a run whose last plan is given; without work, it has used nothing."""
        documents, tokens = self.totals["documents"], total_counts(self.tokens().values())
        stages = [stage.model_dump(mode="json") for stage in run.recipe.stages]
        return RunReport(
            run.recipe.name,
            str(run.recipe.lake),
            run.job.id,
            rows=documents.rows,
            kept=documents.kept,
            rejected=documents.rejected,
            duplicates=self.totals["duplicates"].duplicates,
            cut=self._cut,
            tokens=tokens.tokens,
            tokens_by_table={name: counts.tokens for name, counts in self.tokens().items()},
            special_texts=tokens.special_texts,
            text_bytes=documents.text_bytes,
            costs=stage_costs(stages, [documents], [tokens]),
            estimate=estimate,
            used=used,
            versions={s: led.table.version for s, led in planned.ledgers.items() if led.table},
            skipped_items=self.skipped_items,
            num_quarantined=self.num_quarantined,
            quarantined=self._quarantined,
            checkpoint_errors=dict(checkpoint_errors),
            num_copies=self._num_copies,
            copies=self._copies,
            missing=planned.plan.missing,
            little_kept=little_kept(
                run.recipe.stages, documents.rejected, rows=documents.rows, kept=documents.kept
            ),
        )


def num_bytes(entries: Sequence[LedgerEntry]) -> int:
    """Return the bytes of the data files of entries."""
    return sum(file.size for entry in entries for file in entry.data_files)
