"""`etl trace`: print what happened to one document."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.lineage_graph import Trace
    from etl.audit.trace_records import (
        Cut,
        RowLocation,
        TracedDuplicate,
        TracedTable,
        TracedTokens,
    )
    from etl.schemas import InputFile

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl trace lake --id doc-17",
        "etl trace lake --source data/a.parquet --row 12",
    )
)
def trace(
    lake: options.LakeArgument,
    *,
    document: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the document.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The URL or path of the document's input file."),
    ] = None,
    row: Annotated[
        int | None, typer.Option(min=0, help="The row in that file, counted from 0.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Trace a document from its input file to its tokens.

    For a document without tokens, prints why it was removed: the limit that it fails, its signals and its
    text, which is read again from the input file if the lake does not store it.
    """
    from etl.audit.lineage_graph import trace as trace_document

    if (document is None) == (source is None) or (source is None) != (row is None):
        raise typer.BadParameter("give --id ID, or --source URI and --row N")
    traces = trace_document(lake, id=document, source=source, row=row)
    output.print_result(traces, lines, as_json=as_json)


def lines(traces: Sequence["Trace"]) -> Iterator[str]:
    """Yield the traces of documents, separated by blank lines."""
    for number, document in enumerate(traces):
        if number:
            yield ""
        yield from _document(document)


def _document(trace: "Trace") -> Iterator[str]:
    yield f"{trace.source} row {trace.row}"
    yield f"  outcome     {trace.outcome}"
    for name in ("id", "url", "lang"):
        if (value := getattr(trace, name)) is not None:
            yield f"  {name:<11} {value}"
    if trace.input is not None:
        yield from _input(trace.input, trace.table, trace.names)
    yield f"  document    {_location(trace.document)}"
    if trace.duplicate is not None:
        yield from _duplicate(trace.duplicate)
    if trace.cut is not None:
        yield from _cut(trace.cut)
    if trace.tokens is not None:
        yield from _tokens(trace.tokens, trace.shuffled)
    yield from _signals_and_text(trace)


def _signals_and_text(trace: "Trace") -> Iterator[str]:
    for limit in trace.limits:
        yield f"  failed      {limit}"
    for name, value in trace.signals.items():
        yield f"  signal      {name} = {value:g}"
    if trace.text is not None:
        yield from output.text_start(trace.text)
    elif trace.missing_text is not None:
        yield f"  no text     {trace.missing_text}"


def _input(file: "InputFile", table: "TracedTable | None", names: Sequence[str]) -> Iterator[str]:
    origin = f"fingerprint {file.fingerprint}"
    if table is not None:
        origin = f"from version {table.version} of {table.url}"
    yield f"  input file  {many(file.size, 'byte')}, {many(file.rows, 'record')}, {origin}"
    for name in names:
        yield f"  also at     {name}"
    if table is not None and table.is_stored is False:
        yield "              no longer stored: the table was vacuumed since"


def _duplicate(duplicate: "TracedDuplicate") -> Iterator[str]:
    name = f" (id {duplicate.keeper_id})" if duplicate.keeper_id is not None else ""
    keeper = f"{duplicate.keeper_source} row {duplicate.keeper_row}{name}"
    yield f"  {duplicate.kind:<11} duplicate of {keeper}"
    if duplicate.keeper_lake is not None:
        yield f"              in the lake {duplicate.keeper_lake}"
    similarity = output.share(duplicate.similarity, is_estimate=duplicate.is_estimate)
    yield f"              similarity {similarity}"


def _cut(cut: "Cut") -> Iterator[str]:
    yield f"  {cut.unit:<11} {cut.outcome}; the first one also occurs in"
    yield f"              {cut.keeper_source} row {cut.keeper_row}"
    for text in cut.texts:
        yield f"    - {output.cell(text)}"


def _tokens(tokens: "TracedTokens", shuffled: "RowLocation | None") -> Iterator[str]:
    first, stop = tokens.first_token, tokens.first_token + tokens.num_tokens
    yield f"  tokens      {tokens.num_tokens:,}, positions {first:,} to {stop:,} in the file"
    yield f"              {_location(tokens.location)}"
    if shuffled is not None:
        yield f"  shuffled    {_location(shuffled)}"


def _location(location: "RowLocation") -> str:
    row, commit = f"row {location.row} of {location.file}", location.commit
    if commit is None:
        return row
    version = f"version {commit.version}, {commit.time:%Y-%m-%d %H:%M:%S} UTC"
    run = f", run {commit.run_id} of {commit.recipe}" if commit.run_id else ""
    return f"{row} ({version}{run})"
