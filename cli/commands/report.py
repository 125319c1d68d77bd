"""`etl report`: print the counts of a lake."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.audit.lake_report import LakeReport, RunCost, SourceReport, TableReport
    from etl.audit.mean_losses import MeanLoss, MeanLosses
    from etl.job.prices import Prices

app = typer.Typer()

_MAX_SOURCES_SHOWN = 20


@app.command(
    epilog=options.examples(
        "etl report lake",
        "etl report lake --prices prices.yaml",
    )
)
def report(
    lake: options.LakeArgument,
    *,
    prices: options.Prices = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the rows, duplicates and tokens of a lake.

    Also prints the counts by reason, language and input file, the cost of each stage, what the last run has
    used, with its estimate, and the mean losses that trainings have measured.
    """
    from etl.audit.lake_report import report as count
    from etl.job.prices import Prices

    known = Prices.load(prices)
    output.print_result(count(lake), lambda each: lines(each, known), as_json=as_json)


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
        yield f"cut         {output.many(report.cut, 'document')}"
    mean = report.tokens_per_document
    per_document = f" ({mean:,.0f} per document)" if mean is not None else ""
    documents = output.many(report.tokenized, "document")
    yield f"tokens      {report.tokens:,} of {documents}{per_document}"
    yield from output.special_texts(report.special_texts)
    if report.languages:
        yield "languages   (kept documents)"
        yield from output.counts(report.languages, of=report.kept)
    yield ""
    yield from _sources(report.sources)
    if report.losses is not None:
        yield from _losses(report.losses)
    yield from _runs(report.runs, prices or Prices.load())
    yield from output.costs(report.costs)
    for note in report.quarantined:
        yield output.quarantined(note)


def _runs(runs: "list[RunCost]", prices: "Prices") -> Iterator[str]:
    """Yield what the last run has used, and all runs if there are more."""
    from etl.audit.lake_report import total_usage

    if not runs:
        return
    last = runs[0]
    usages = {f"run {last.run_id}": last.used}
    if last.estimate is not None:
        usages = {"estimated": last.estimate, **usages}
    if len(runs) > 1:
        usages[f"all {len(runs)} runs"] = total_usage(run.used for run in runs)
    yield ""
    yield from output.usage(usages, prices)


def _table(table: "TableReport") -> str:
    recipe = f"recipe {table.recipe} {(table.fingerprint or '')[:12]}" if table.recipe else ""
    rows, files = output.many(table.rows, "row"), output.many(table.files, "file")
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
        yield f"not counted: {output.many(losses.infinite, 'loss')} that are not finite"


def _means(name: str, means: "list[MeanLoss]") -> Iterator[str]:
    """Yield the mean losses of groups, those of the greatest loss in a run first."""
    shown = [
        [each.run, each.group, f"{each.tokens:,}", f"{each.loss:.4f}"]
        for each in means[:_MAX_SOURCES_SHOWN]
    ]
    yield from output.columns(["run", name, "tokens", "mean loss"], shown, numbers=(2, 3))
    if len(means) > _MAX_SOURCES_SHOWN:
        yield f"... and {len(means) - _MAX_SOURCES_SHOWN} more (--json lists all)"
