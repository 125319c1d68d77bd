"""`etl export`: write documents as Parquet or JSON Lines, or tokens for another training library."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.exports.documents import DocumentsExport
    from etl.exports.megatron import MegatronExport

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl export lake --to documents --where \"lang = 'de'\"",
        "etl export s3://lake/web --to s3://corpora/web --format jsonl --version v1",
        "etl export lake --to megatron/web --format megatron",
    )
)
def export(
    lake: options.LakeArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="The folder to write to; with megatron, the prefix of the .bin and .idx files.",
        ),
    ],
    file_format: Annotated[
        Literal["parquet", "jsonl", "megatron"],
        typer.Option("--format", help="jsonl is compressed with zstd; megatron has tokens."),
    ] = "parquet",
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Export only documents for which this is true."),
    ] = None,
    at_version: options.AtVersion = None,
    as_json: options.AsJson = False,
) -> None:
    """Write documents, or tokens in the format of Megatron.

    Documents are those that were kept and are not duplicates, with their texts, languages and signals. The
    version is a version of the lake's last table.

    With megatron, the result is an indexed dataset of the table tokens: each document is a sequence, in the
    order of the table. The addresses of the documents are in a Parquet file with the same order.
    """
    if file_format == "megatron":
        from etl.exports.megatron import export_megatron

        if where is not None:
            raise typer.BadParameter("--where is for documents; tokens are exported completely")
        tokens = export_megatron(lake, to, version=at_version)
        output.print_result(tokens, token_lines, as_json=as_json)
        return
    from etl.exports.documents import export_documents

    documents = export_documents(lake, to, file_format=file_format, where=where, version=at_version)
    output.print_result(documents, document_lines, as_json=as_json)


def document_lines(export: "DocumentsExport") -> Iterator[str]:
    """Yield what was exported as documents."""
    versions = ", ".join(f"{name} version {number}" for name, number in export.versions.items())
    yield f"lake        {export.lake}"
    yield f"tables      {versions}"
    yield f"to          {export.to}"
    yield f"documents   {export.documents:,} in {many(export.files, 'file')}"


def token_lines(export: "MegatronExport") -> Iterator[str]:
    """Yield what was exported as tokens."""
    yield f"table       {export.table} version {export.version}"
    yield f"prefix      {export.prefix}"
    yield f"documents   {export.documents:,} ({export.empty:,} more without tokens left out)"
    yield f"tokens      {export.tokens:,} as {export.dtype}"
