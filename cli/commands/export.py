"""`etl export`: write a version of `tokens` for another training library."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.exports.megatron import MegatronExport

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl export lake megatron/web",
        "etl export s3://lake/web/tokens_shuffled s3://corpora/web --version 12",
    )
)
def export(
    lake: options.LakeArgument,
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            help="Where to write PREFIX.bin, PREFIX.idx and PREFIX.addresses.parquet.",
        ),
    ],
    *,
    at_version: options.AtVersion = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the tokens of a lake in the format of Megatron.

    The result is an indexed dataset: each document is a sequence, in the order of the table. The addresses of
    the documents are in a Parquet file with the same order.
    """
    from etl.exports.megatron import export_megatron

    output.print_result(export_megatron(lake, prefix, version=at_version), lines, as_json=as_json)


def lines(export: "MegatronExport") -> Iterator[str]:
    """Yield what was exported."""
    yield f"table       {export.table} version {export.version}"
    yield f"prefix      {export.prefix}"
    yield f"documents   {export.documents:,} ({export.empty:,} more without tokens left out)"
    yield f"tokens      {export.tokens:,} as {export.dtype}"
