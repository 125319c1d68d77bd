"""`etl run`: run a recipe on this machine or a cluster, and print what the run did."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import cost_tables, options, output
from etl.cli.run_lines import run_lines, show_quarantined
from etl.compute.print_listener import duration
from etl.plural import many

if TYPE_CHECKING:
    from etl.job.run_report import RunReport

app = typer.Typer()


def _parse_share(text: str) -> float:
    """Return the number of a share such as `1%` or `0.01`; raise BadParameter if it is not in (0, 1].

    >>> _parse_share("1%"), _parse_share("0.5")
    (0.01, 0.5)
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise typer.BadParameter(f"{text!r} is not a share, such as 1%")
    return value


def _time_limit() -> float:
    from etl.compute.unit_time_limit import TIME_LIMIT

    return TIME_LIMIT


@app.command(
    epilog=options.examples(
        "etl run demo --lake lake",
        "etl run web.yaml --source 's3://crawl/*.parquet' --set gopher_quality.min_words=80",
        "etl run web.yaml --limit 10000",
        "etl run web.yaml --cluster tcp://scheduler:8786",
        "etl run web.yaml --cluster k8s:cluster.yaml --workers auto",
    )
)
def run(  # noqa: PLR0913 - one parameter per option
    recipe: options.RecipeArgument,
    *,
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    env: options.Env = None,
    cluster: options.Cluster = None,
    tls: options.Tls = None,
    workers: options.Workers = None,
    memory_limit: options.MemoryLimit = None,
    dashboard: options.Dashboard = None,
    time_limit: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Quarantine a split that takes longer.",
            default_factory=options.LibraryDefault(_time_limit),
        ),
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Try the recipe on about N records, in the lake LAKE-trial."
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            parser=_parse_share,
            metavar="PERCENT",
            help="Try it on a part of the text, e.g. 1%, in the lake LAKE-trial.",
        ),
    ] = None,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    drop_missing: options.DropMissing = False,
    apply_change: options.ApplyChange = False,
    no_python: options.NoPython = False,
    log_format: options.LogFormat = "text",
    as_json: options.AsJson = False,
) -> None:
    """Run a recipe: read, filter, deduplicate, tokenize, commit.

    Run it again to continue a run that was stopped, or to add new input files. With --limit or --share it
    reads only the start of files (and of parts of large ones) and writes to LAKE-trial, never to LAKE.
    """
    from etl.job.run import run as run_recipe

    options.check_part(limit, share)
    changes = options.settings_of(sources, lake, settings)
    with run_lines(sys.stderr, log_format) as listener:
        loaded = options.load_recipe(
            recipe, changes, env=env, no_python=no_python, warn=listener.warning
        )
        report = run_recipe(
            loaded,
            cluster=options.make_cluster(
                cluster, workers, tls=tls, memory_limit=memory_limit, dashboard=dashboard
            ),
            limit=limit,
            share=share,
            rebuild=rebuild,
            replace_changed=replace_changed,
            drop_missing=drop_missing,
            apply_change=apply_change,
            time_limit=time_limit,
            listener=listener,
        )
    output.print_result(report, lines, as_json=as_json)
    show_quarantined(listener, report.quarantined)
    if more := report.num_quarantined - len(report.quarantined):
        text = f"{many(more, 'more unit')} quarantined: `etl report {report.lake}` lists all"
        listener.warning(text)
    for table, error in report.checkpoint_errors.items():
        listener.warning(f"no checkpoint of {table} was written: {error}")
    if not report.ok:
        raise typer.Exit(output.QUARANTINED)


def lines(report: "RunReport") -> Iterator[str]:
    """Yield the counts, versions and costs of a run."""
    if report.estimate is None:
        yield "nothing to do: the lake has all rows of the input"
    yield f"recipe      {report.recipe}"
    yield f"lake        {report.lake}"
    yield f"rows        {report.rows:,}"
    yield f"kept        {report.kept:,}{output.percent(report.kept, report.rows)}"
    yield from output.rejected(report.rejected, of=report.rows)
    if report.little_kept is not None:
        yield f"hint        {report.little_kept}; try `{report.little_kept.command(report.lake)}`"
    yield from output.skipped_items(report.skipped_items)
    yield f"duplicates  {report.duplicates:,}"
    if report.cut:
        yield f"cut         {many(report.cut, 'document')}"
    yield f"tokens      {report.tokens_line()}"
    yield from output.special_texts(report.special_texts)
    yield from output.copies(report.num_copies, report.copies)
    yield from output.missing(report.missing)
    for name, version in report.versions.items():
        yield f"{name:<11} version {version}"
    yield f"took        {duration(report.seconds)}"
    if report.used is not None and report.estimate is not None:
        from etl.job.prices import Prices

        yield ""
        usages = {"estimated": report.estimate, "used": report.used}
        yield from cost_tables.usage(usages, Prices.load())
    yield from cost_tables.costs(report.costs)
