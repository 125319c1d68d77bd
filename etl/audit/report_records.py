"""What a report of a lake holds: its tables, counts, input files and costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from etl import schemas
from etl.html.card import Card, Shown
from etl.html.grid import Grid, make_grid, percent, share_grid
from etl.lake.quarantine import Quarantined
from etl.lake.stage_costs import StageCost
from etl.lake.table_names import tokens_line
from etl.plural import many


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """The version, data files, size and recipe of a table."""

    name: str
    version: int
    files: int
    rows: int
    size: int  # bytes on disk
    recipe: str | None
    fingerprint: str | None  # of the recipe
    committed: str  # UTC, ISO 8601
    tokens: int | None = None  # of a table with the tokens of a tokenizer


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """The outcome of the records of one input file."""

    source: str
    rows: int
    kept: int
    tokenized: int  # documents with tokens
    tokens: int


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """What a run was estimated to need, and what it has used until its last commit."""

    run_id: str
    committed: str  # the last time, UTC, ISO 8601
    estimate: schemas.Usage | None
    used: schemas.Usage
    skipped_items: Mapping[str, int]  # of evaluation sets: reason -> items


@dataclass(frozen=True, kw_only=True)
class MeanLoss:
    """The mean loss per token of a run, over all epochs, in one input file or language."""

    run: str
    group: str
    tokens: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class MeanLosses:
    """The mean losses in a table; ``infinite`` rows, whose loss is not finite, do not count."""

    by_source: list[MeanLoss]
    by_language: list[MeanLoss]  # empty if the recipe does not detect languages
    infinite: int


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeReport(Shown):
    """The counts of a lake; ``rows`` equals ``kept`` plus the sum of ``rejected``."""

    lake: str
    tables: list[TableReport]
    rows: int
    kept: int
    rejected: dict[str, int]  # by rule, most frequent first
    duplicates: dict[str, int]  # left out, by kind
    cut: int  # documents that lost units which occur in other documents
    tokenized: int  # documents with tokens, here and below of the first tokenizer
    tokens: int
    special_texts: (
        int  # documents whose text spells a special token, over the runs behind the table
    )
    languages: dict[str, int]  # kept documents by language, if the recipe detects it
    sources: list[SourceReport]
    costs: list[StageCost]  # of the runs behind the tables
    runs: list[RunCost]  # newest first
    quarantined: list[Quarantined] = field(default_factory=list)
    losses: MeanLosses | None = None  # that trainings have measured

    @property
    def tokens_per_document(self) -> float | None:
        """The mean over the documents with tokens; None if there are none."""
        return self.tokens / self.tokenized if self.tokenized else None

    @property
    def tokens_by_table(self) -> dict[str, int]:
        """The number of tokens in the table of each tokenizer."""
        return {table.name: table.tokens for table in self.tables if table.tokens is not None}

    def _cards(self) -> list[Card]:
        """Return the counts as cards."""
        duplicates = sum(self.duplicates.values())
        facts = {
            "rows": f"{self.rows:,}",
            "kept": f"{self.kept:,} ({percent(self.kept, self.rows)})",
            "duplicates": f"{duplicates:,} ({percent(duplicates, self.kept)} of the kept)",
            "tokens": f"{tokens_line(self.tokens_by_table)} of {many(self.tokenized, 'document')}",
            "quarantined inputs": f"{len(self.quarantined):,}",
        }
        return [Card(title=f"Lake {self.lake}", facts=facts, grids=self._grids())]

    def _grids(self) -> list[Grid]:
        return [
            make_grid(
                "Tables",
                ("table", "version", "rows", "files", "MB", "tokens"),
                self.tables,
                lambda each: (
                    each.name,
                    f"{each.version}",
                    f"{each.rows:,}",
                    f"{each.files:,}",
                    f"{each.size / 1e6:,.1f}",
                    "" if each.tokens is None else f"{each.tokens:,}",
                ),
            ),
            share_grid("Rejected", "rule", self.rejected, of=self.rows),
            share_grid("Duplicates", "kind", self.duplicates, of=self.kept),
            share_grid("Kept documents by language", "language", self.languages, of=self.kept),
            cost_grid(self.costs),
        ]


def cost_grid(costs: Iterable[StageCost]) -> Grid:
    """Return the worker time of each stage as a table."""
    return make_grid(
        "Worker time by stage",
        ("stage", "documents", "seconds", "MB/s"),
        costs,
        lambda each: (
            each.name,
            f"{each.documents:,}",
            f"{each.seconds:,.1f}",
            "–" if each.megabytes_per_second is None else f"{each.megabytes_per_second:,.1f}",
        ),
    )
