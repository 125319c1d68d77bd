"""`etl losses`: commit the losses of documents that trainings have logged."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.maintenance.commit_losses import CommittedLosses

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl losses lake",
        "etl losses s3://lake/web --from s3://runs/proxy/losses",
        "etl losses web=lake/web code=lake/code --from runs/losses",
    )
)
def losses(
    lakes: options.LakesArgument,
    *,
    folder: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="The folder of the LossLog; default: `loss_logs` in the lake.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Commit the losses of documents that trainings have logged.

    The rows of the files of a LossLog are added to the table `losses`, each sample of a run once, and the
    files are deleted. The training may continue in the meantime.
    """
    from etl.maintenance.commit_losses import commit_losses

    reports = commit_losses(*lakes, folder=folder)
    output.print_result(reports, lines, as_json=as_json)
    if reports[0].left:
        raise typer.Exit(output.FAILED)


def lines(reports: Sequence["CommittedLosses"]) -> Iterator[str]:
    """Yield what was committed to each lake, and the files that were not."""
    for report in reports:
        yield f"lake        {report.lake}"
        yield "losses      " + (
            "no table" if report.version is None else f"version {report.version}"
        )
        yield f"runs        {', '.join(sorted(report.runs)) or 'none'}"
        yield f"files       {report.files:,}"
        yield f"rows        {report.rows:,} ({report.repeated:,} more of repeated samples left out)"
    for left in reports[0].left:
        yield f"left        {left.file}: {left.why}"
