"""The tables of a page as text."""

from etl.audit.page.facts import PageFacts
from etl.audit.report_records import cost_grid
from etl.html.grid import Grid, make_grid, percent, share_grid


def grids(facts: PageFacts) -> dict[str, Grid]:
    """Return the tables of a page by name; those without rows are not shown."""
    report = facts.report
    clusters = facts.duplicates.sizes if facts.duplicates is not None else {}
    return {
        "languages": share_grid(
            "Kept documents by language", "language", report.languages, of=report.kept
        ),
        "sources": make_grid(
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
        "clusters": make_grid(
            "Clusters by their number of documents",
            ("documents", "clusters"),
            clusters.items(),
            lambda each: (each[0], f"{each[1]:,}"),
        ),
        "stages": cost_grid(report.costs),
        "versions": make_grid(
            "Versions behind the result", ("library", "version"), facts.versions.items(), tuple
        ),
    }
