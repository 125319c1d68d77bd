"""The tables of a page as text, each with at most ``MAX_ROWS`` rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from etl.audit.page.facts import PageFacts

T = TypeVar("T")

MAX_ROWS: Final = 40


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: its caption, its header and its rows; columns after the first are numbers."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def percent(value: float, of: float) -> str:
    """Return a share in percent; a dash if the whole is 0.

    >>> percent(1, 8), percent(1, 0), percent(1, 100_000)
    ('12.5 %', '–', '<0.1 %')
    """
    if not of:
        return "–"
    share = 100 * value / of
    return "<0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def grids(facts: PageFacts) -> dict[str, Grid]:
    """Return the tables of a page by name; those without rows are not shown."""
    report = facts.report
    clusters = facts.duplicates.sizes if facts.duplicates is not None else {}
    return {
        "languages": _grid(
            "Kept documents by language",
            ("language", "documents", "share"),
            report.languages.items(),
            lambda each: (each[0], f"{each[1]:,}", percent(each[1], report.kept)),
        ),
        "sources": _grid(
            "Input files, largest first",
            ("source", "rows", "kept", "tokenized", "tokens"),
            sorted(report.sources, key=lambda each: (-each.rows, each.source)),
            lambda each: (
                each.source,
                f"{each.rows:,}",
                percent(each.kept, each.rows),
                f"{each.tokenized:,}",
                f"{each.tokens:,}",
            ),
        ),
        "clusters": _grid(
            "Clusters by their number of documents",
            ("documents", "clusters"),
            clusters.items(),
            lambda each: (each[0], f"{each[1]:,}"),
        ),
        "stages": _grid(
            "Worker time by stage",
            ("stage", "documents", "seconds", "MB/s"),
            report.costs,
            lambda each: (
                each.name,
                f"{each.documents:,}",
                f"{each.seconds:,.1f}",
                "–" if each.megabytes_per_second is None else f"{each.megabytes_per_second:,.1f}",
            ),
        ),
        "versions": _grid(
            "Versions behind the result", ("library", "version"), facts.versions.items(), tuple
        ),
    }


def _grid(
    caption: str, header: Sequence[str], items: Iterable[T], row: Callable[[T], Sequence[str]]
) -> Grid:
    listed = [*items]
    more = len(listed) - MAX_ROWS
    return Grid(
        caption=caption,
        header=header,
        rows=[row(item) for item in listed[:MAX_ROWS]],
        note=f"And {more:,} more." if more > 0 else "",
    )
