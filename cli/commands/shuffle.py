"""`etl shuffle`: write the tokens of a lake in a random order."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.cli.run_lines import run_lines
from etl.compute.print_listener import duration

if TYPE_CHECKING:
    from etl.job.shuffle import ShuffleReport

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl shuffle lake",
        "etl shuffle s3://lake/web --cluster k8s:cluster.yaml",
        "etl shuffle lake --seed 1 --rebuild",
        "etl shuffle lake/tokens_qwen",
    )
)
def shuffle(  # noqa: PLR0913 - one parameter per option
    lake: Annotated[
        str,
        typer.Argument(
            metavar="LAKE",
            envvar="TOKENLAKE_LAKE",
            help="The URL or path of a lake, or LAKE/tokens_NAME for a tokenizer with a name.",
        ),
    ],
    *,
    seed: Annotated[
        int | None,
        typer.Option(help="Selects the order; default: that of the table, or 0."),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Shuffle all rows again; old versions stay readable."),
    ] = False,
    bucket_mb: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="MiB of tokens that a worker sorts at a time; default: an eighth of its memory.",
        ),
    ] = None,
    cluster: options.Cluster = None,
    tls: options.Tls = None,
    workers: options.Workers = None,
    memory_limit: options.MemoryLimit = None,
    dashboard: options.Dashboard = None,
    log_format: options.LogFormat = "text",
    as_json: options.AsJson = False,
) -> None:
    """Write the tokens of a lake in a random order, for training.

    The rows of `tokens` are written to `tokens_shuffled`: reading that from front to back yields random
    documents. Run it again to continue a shuffle that was stopped, or to add the rows of new input files.
    The tokens of a tokenizer with a name, `tokens_NAME`, are written to `tokens_NAME_shuffled`.
    """
    from etl.job.shuffle import ShuffleSettings
    from etl.job.shuffle import shuffle as shuffle_tokens

    with run_lines(sys.stderr, log_format) as listener:
        report = shuffle_tokens(
            lake,
            settings=ShuffleSettings(
                seed=seed,
                rebuild=rebuild,
                bucket_bytes=None if bucket_mb is None else bucket_mb << 20,
            ),
            cluster=options.make_cluster(
                cluster, workers, tls=tls, memory_limit=memory_limit, dashboard=dashboard
            ),
            listener=listener,
        )
    output.print_result(report, lines, as_json=as_json)


def lines(report: "ShuffleReport") -> Iterator[str]:
    """Yield what the table holds, what was added, and how evenly it mixes the input files."""
    from etl.schemas import shuffled_from

    tokens = shuffled_from(report.table)
    yield f"lake             {report.lake}"
    yield f"{report.table:<16} version {report.version}, of {tokens} version {report.tokens_version}"
    yield f"rows             {report.rows:,} ({report.added_rows:,} added)"
    yield f"tokens           {report.tokens:,} ({report.added_tokens:,} added)"
    yield f"seed             {report.seed}"
    yield f"parts            {report.parts}"
    yield f"took             {duration(report.seconds)}"
    if report.tokens:
        yield _evenness(report)


def _evenness(report: "ShuffleReport") -> str:
    """Return how evenly batches of the table mix the input files, read from front to back."""
    from etl import storage
    from etl.loader.measure_evenness import measure_table

    even = measure_table(storage.join(report.lake, report.table), shuffle=False)
    return (
        f"evenness         {'too few tokens to measure' if even is None else output.evenness(even)}"
    )
