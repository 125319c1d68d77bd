"""The final report of a run."""

from dataclasses import dataclass, field
from typing import Final

from etl.html.card import Card, Shown
from etl.html.grid import percent, share_grid
from etl.lake.missing_inputs import MissingInputs
from etl.lake.quarantine import Quarantined
from etl.lake.stage_costs import StageCost
from etl.lake.table_names import tokens_line
from etl.recipe.little_kept import LittleKept
from etl.schemas import Usage

MAX_SHOWN: Final = 1000
"""Quarantined units that a report describes; chosen here: about 1 MB. The lake has a note of each."""


@dataclass(frozen=True, repr=False)
class RunReport(Shown):
    """The report of one run: its counts, the resulting table versions, and quarantined work."""

    recipe: str
    lake: str
    run_id: str
    rows: int = 0
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    cut: int = 0  # documents from which repeated paragraphs were cut
    tokens: int = 0  # of all tokenizers
    tokens_by_table: dict[str, int] = field(default_factory=dict)
    special_texts: int = 0  # documents with tokens whose text spells a special token
    text_bytes: int = 0
    seconds: float = 0.0
    costs: list[StageCost] = field(default_factory=list)
    estimate: Usage | None = None  # None: nothing was to be done
    used: Usage | None = None
    versions: dict[str, int] = field(default_factory=dict)
    skipped_items: dict[str, int] = field(default_factory=dict)  # of evaluation sets, by reason
    num_quarantined: int = 0
    quarantined: list[Quarantined] = field(default_factory=list)  # the first MAX_SHOWN
    checkpoint_errors: dict[str, str] = field(default_factory=dict)  # table -> last failure
    num_copies: int = 0  # files that were not read again: copies of others, or moved
    copies: dict[str, str] = field(default_factory=dict)  # the first MAX_SHOWN -> the address
    missing: MissingInputs = field(default_factory=MissingInputs)
    little_kept: LittleKept | None = None  # why hardly any documents are kept

    @property
    def ok(self) -> bool:
        """Whether every part of the input could be read."""
        return not self.num_quarantined

    def tokens_line(self) -> str:
        """Return the number of tokens, by table if a named tokenizer has made some."""
        return tokens_line(self.tokens_by_table)

    def _cards(self) -> list[Card]:
        """Return the counts as cards."""
        facts = {
            "lake": self.lake,
            "rows": f"{self.rows:,}",
            "kept": f"{self.kept:,} ({percent(self.kept, self.rows)})",
            "duplicates": f"{self.duplicates:,}",
            "tokens": self.tokens_line(),
            "versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "quarantined": f"{self.num_quarantined:,}",
            "seconds": f"{self.seconds:,.1f}",
        }
        if self.little_kept is not None:
            facts["hint"] = f"{self.little_kept}; try {self.little_kept.command(self.lake)}"
        by_count = sorted(self.rejected.items(), key=lambda each: (-each[1], each[0]))
        rejected = share_grid("Rejected", "rule", dict(by_count), of=self.rows)
        return [Card(title=f"Recipe {self.recipe}", facts=facts, grids=[rejected])]
