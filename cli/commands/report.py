"""`etl report`: print the counts of a lake, or write a page about it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import cost_tables, options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.report_records import (
        LakeReport,
        MeanLoss,
        MeanLosses,
        RunCost,
        SourceReport,
        TableReport,
    )
    from etl.job.prices import Prices
    from etl.schemas import Usage

app = typer.Typer()

_MAX_SOURCES_SHOWN = 20


@app.command(
    epilog=options.examples(
        "etl report lake",
        "etl report lake --html report.html",
        "etl report lake --version 3 --prices prices.yaml",
    )
)
def report(
    lake: options.LakeArgument,
    *,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page with charts and samples to this file."),
    ] = None,
    at_version: options.AtVersion = None,
    prices: options.Prices = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the rows, duplicates and tokens of a lake.

    Also prints the counts by reason, language and input file, the cost of each stage, what the last run has
    used, with its estimate, and the mean losses that trainings have measured. The version is a version of
    the lake's last table. The page needs no network; it shows distributions of signals with their limits,
    and texts of documents on both sides of each rule.
    """
    from etl.audit.lake_report import report as count
    from etl.job.prices import Prices

    known = Prices.load(prices)
    if html is None:
        counts = count(lake, version=at_version)
        output.print_result(counts, lambda each: lines(each, known), as_json=as_json)
        return
    written = _write_page(lake, html, at_version, known)
    output.print_result(
        {"page": written}, lambda each: [f"page        {each['page']}"], as_json=as_json
    )


def _write_page(lake: str, file: str, at_version: str | None, prices: "Prices") -> str:
    """Write the page of a lake, and return the URL of the file."""
    from etl import storage
    from etl.audit.page.facts import page_facts
    from etl.audit.page.render import render
    from etl.html.grid import Grid

    facts = page_facts(lake, version=at_version)
    costs = None
    if facts.report.runs:
        header, *rows = cost_tables.usage_rows(_usages(facts.report.runs), prices)
        note = cost_tables.prices_note(prices)
        costs = Grid(caption="Needs and cost of the runs", header=header, rows=rows, note=note)
    url = storage.normalize(file)
    storage.write_bytes(url, render(facts, costs=costs).encode())
    return url


def lines(report: "LakeReport", prices: "Prices | None" = None) -> Iterator[str]:
    """Yield the counts of a lake: in all, by language, by input file, by stage; and the cost of its runs."""
    from etl.job.prices import Prices

    yield f"lake        {report.lake}"
    for table in report.tables:
        yield _table(table)
    yield f"rows        {report.rows:,}"
    yield f"kept        {report.kept:,}{output.percent(report.kept, report.rows)}"
    yield from output.rejected(report.rejected, of=report.rows)
    duplicates = sum(report.duplicates.values())
    share = output.percent(duplicates, report.kept)
    yield f"duplicates  {duplicates:,} of {report.kept:,} kept{share}"
    yield from output.counts(report.duplicates, of=report.kept)
    if report.cut:
        yield f"cut         {many(report.cut, 'document')}"
    mean = report.tokens_per_document
    per_document = f" ({mean:,.0f} per document)" if mean is not None else ""
    documents = many(report.tokenized, "document")
    by_table = report.tokens_by_table or {"tokens": 0}
    name, *others = by_table
    where = f" in {name}" if others or name != "tokens" else ""
    yield f"tokens      {report.tokens:,}{where} of {documents}{per_document}"
    yield from (f"            {by_table[other]:,} in {other}" for other in others)
    yield from output.special_texts(report.special_texts)
    if report.languages:
        yield "languages   (kept documents)"
        yield from output.counts(report.languages, of=report.kept)
    yield ""
    yield from _sources(report.sources)
    if report.losses is not None:
        yield from _losses(report.losses)
    yield from _runs(report.runs, prices or Prices.load())
    yield from cost_tables.costs(report.costs)
    if report.runs:
        yield from output.skipped_items(report.runs[0].skipped_items)
    for note in report.quarantined:
        yield output.quarantined(note)


def _runs(runs: "list[RunCost]", prices: "Prices") -> Iterator[str]:
    """Yield what the last run has used, and all runs if there are more."""
    if runs:
        yield ""
        yield from cost_tables.usage(_usages(runs), prices)


def _usages(runs: "list[RunCost]") -> "dict[str, Usage]":
    """Return the estimate of the last run, what it has used, and what all runs have if there are more."""
    from etl.audit.lake_report import total_usage

    last = runs[0]
    usages = {f"run {last.run_id}": last.used}
    if last.estimate is not None:
        usages = {"estimated": last.estimate, **usages}
    if len(runs) > 1:
        usages[f"all {len(runs)} runs"] = total_usage(run.used for run in runs)
    return usages


def _table(table: "TableReport") -> str:
    recipe = f"recipe {table.recipe} {(table.fingerprint or '')[:12]}" if table.recipe else ""
    rows, files = many(table.rows, "row"), many(table.files, "file")
    size = f"{table.size / 1e6:,.1f} MB"
    return f"{table.name:<11} version {table.version}, {rows}, {files}, {size}  {recipe}".rstrip()


def _sources(sources: "list[SourceReport]") -> Iterator[str]:
    rows = [
        [s.source, f"{s.rows:,}", f"{s.kept:,}", f"{s.tokenized:,}", f"{s.tokens:,}"]
        for s in sources[:_MAX_SOURCES_SHOWN]
    ]
    header = ["source", "rows", "kept", "tokenized", "tokens"]
    yield from output.columns(header, rows, numbers=(1, 2, 3, 4))
    if len(sources) > _MAX_SOURCES_SHOWN:
        yield f"... and {len(sources) - _MAX_SOURCES_SHOWN} more (--json lists all)"


def _losses(losses: "MeanLosses") -> Iterator[str]:
    yield ""
    yield from _means("source", losses.by_source)
    if losses.by_language:
        yield ""
        yield from _means("language", losses.by_language)
    if losses.infinite:
        yield f"not counted: {many(losses.infinite, 'loss')} that are not finite"


def _means(name: str, means: "list[MeanLoss]") -> Iterator[str]:
    """Yield the mean losses of groups, with the greatest loss in a run first."""
    shown = [
        [each.run, each.group, f"{each.tokens:,}", f"{each.loss:.4f}"]
        for each in means[:_MAX_SOURCES_SHOWN]
    ]
    yield from output.columns(["run", name, "tokens", "mean loss"], shown, numbers=(2, 3))
    if len(means) > _MAX_SOURCES_SHOWN:
        yield f"... and {len(means) - _MAX_SOURCES_SHOWN} more (--json lists all)"
