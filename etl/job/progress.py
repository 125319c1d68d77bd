"""The progress of a run, and its final report."""

from dataclasses import dataclass, field, replace
from typing import Final

from etl.html.card import Card, cards_html
from etl.html.grid import percent, share_grid
from etl.lake.quarantine import Quarantined
from etl.lake.stage_costs import StageCost
from etl.lake.work_units import WorkResult
from etl.recipe.little_kept import LittleKept
from etl.schemas import TableName, Usage

_ENOUGH: Final = 0.05  # of the bytes, on which an estimate of the rest is based; chosen here


@dataclass(frozen=True)
class Progress:
    """The progress of a step: units of work done, and documents and bytes of text.

    ``done_bytes`` and ``total_bytes`` count the files that the step reads. Bytes and documents include an
    estimate for the units that workers are processing. ``failed`` units are quarantined. Of the
    ``seconds``, kernels were compiled for ``compile_seconds``, on average of the workers, which worked for
    ``busy_seconds`` together on the ``done_bytes``.
    """

    step: TableName
    done: int
    total: int
    done_bytes: int = 0
    total_bytes: int = 0
    rows: int = 0
    kept: int = 0
    text_bytes: int = 0
    seconds: float = 0.0
    failed: int = 0
    compile_seconds: float = 0.0
    busy_seconds: float | None = None  # None: as long as the step has taken
    workers: int = 1

    @property
    def working_seconds(self) -> float:
        """The seconds without those in which kernels were compiled."""
        return max(self.seconds - self.compile_seconds, 0.0)

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest of the step takes; None at its end, and while too little is done to tell.

        The rest needs as much of the workers' time per byte as the bytes until now. The time in which they
        start does not count. Enough is done if it is half of an average unit, or a twentieth of all bytes.

        >>> Progress("documents", 1, 4, seconds=62.0, compile_seconds=60.0).seconds_left
        6.0
        >>> Progress("documents", 0, 1, done_bytes=2, total_bytes=8, seconds=2.0).seconds_left
        6.0
        >>> Progress("documents", 1, 9, 8, 80, seconds=62.0, busy_seconds=2.0, workers=6).seconds_left
        3.0
        """
        done, total = self.done, self.total
        if self.done_bytes and self.total_bytes >= self.done_bytes:
            done, total = self.done_bytes, self.total_bytes
        is_enough = done >= total * min(0.5 / max(self.total, 1), _ENOUGH)
        if self.done == self.total or not done or not is_enough:
            return None
        at_once = min(self.workers, self.total - self.done)
        busy = self.busy_seconds
        return (self.working_seconds if busy is None else busy / at_once) / done * (total - done)

    def after(self, result: WorkResult | None, *, num_bytes: int, workers: int) -> "Progress":
        """Return the progress after one more unit of work of so many bytes; None if the unit failed."""
        progress = replace(
            self, done=self.done + 1, done_bytes=self.done_bytes + num_bytes, workers=workers
        )
        if result is None:
            return replace(progress, failed=self.failed + 1)
        return replace(
            progress,
            rows=self.rows + result.rows,
            kept=self.kept + result.kept,
            text_bytes=self.text_bytes + result.text_bytes,
            compile_seconds=self.compile_seconds + result.compile_seconds / workers,
            busy_seconds=(self.busy_seconds or 0.0) + sum(result.costs.values()),
        )


MAX_SHOWN: Final = 1000
"""Quarantined units that a report describes; chosen here: about 1 MB. The lake has a note of each."""


@dataclass(frozen=True)
class RunReport:
    """The report of one run: its counts, the resulting table versions, and quarantined work."""

    recipe: str
    lake: str
    run_id: str
    rows: int = 0
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    cut: int = 0  # documents from which repeated paragraphs were cut
    tokens: int = 0
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
    num_missing: int = 0  # files whose rows the lake holds, and that are not listed any more
    missing: list[str] = field(default_factory=list)  # the first MAX_SHOWN
    little_kept: LittleKept | None = None  # why hardly any documents are kept

    @property
    def ok(self) -> bool:
        """Whether every part of the input could be read."""
        return not self.num_quarantined

    def _repr_html_(self) -> str:
        """Return the counts as HTML, for notebooks."""
        facts = {
            "lake": self.lake,
            "rows": f"{self.rows:,}",
            "kept": f"{self.kept:,} ({percent(self.kept, self.rows)})",
            "duplicates": f"{self.duplicates:,}",
            "tokens": f"{self.tokens:,}",
            "versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "quarantined": f"{self.num_quarantined:,}",
            "seconds": f"{self.seconds:,.1f}",
        }
        if self.little_kept is not None:
            facts["hint"] = f"{self.little_kept}; try {self.little_kept.command(self.lake)}"
        by_count = sorted(self.rejected.items(), key=lambda each: (-each[1], each[0]))
        rejected = share_grid("Rejected", "rule", dict(by_count), of=self.rows)
        return cards_html(Card(title=f"Recipe {self.recipe}", facts=facts, grids=[rejected]))
