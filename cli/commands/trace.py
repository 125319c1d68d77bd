"""`etl trace`: print what happened to one document."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.cli.own_transforms import Transforms, load_transforms
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
    from etl.loader.exposures import SeenDocument
    from etl.schemas import InputFile

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl trace lake --id doc-17",
        "etl trace lake --source data/a.parquet --row 12",
        "etl trace lake --id doc-17 --id doc-18 --state checkpoint.pt",
    )
)
def trace(  # noqa: PLR0913 - one parameter per option
    lakes: options.LakesArgument,
    *,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="The id of the document; repeatable."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The URL or path of the document's input file."),
    ] = None,
    row: Annotated[
        int | None, typer.Option(min=0, help="The row in that file, counted from 0.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The saved state of a loader, JSON or a torch checkpoint: print when its training has seen "
            "the documents.",
        ),
    ] = None,
    transforms: Transforms = None,
    as_json: options.AsJson = False,
) -> None:
    """Trace a document to its tokens, or to its batches.

    For a document without tokens, prints why it was removed: the limit that it fails, its signals and its
    text, which is read again from the input file if the lake does not store it.

    With --state, prints at which epochs, steps, ranks and rows the training that saved the state has seen
    the documents, without reading tokens. Steps, ranks and rows are those that the state records.
    """
    from etl.audit.lineage_graph import trace as trace_document

    if bool(ids) == (source is not None) or (source is None) != (row is None):
        raise typer.BadParameter("give --id ID, or --source URI and --row N")
    if state is not None:
        if not ids:
            raise typer.BadParameter("with --state, give --id ID")
        _print_exposures(lakes, ids, state, transforms or (), as_json=as_json)
        return
    if transforms:
        raise typer.BadParameter("--transform needs --state FILE")
    if len(lakes) > 1:
        raise typer.BadParameter("several lakes need --state FILE")
    named: Sequence[str | None] = ids or (None,)
    traces = [
        each for id_ in named for each in trace_document(lakes[0], id=id_, source=source, row=row)
    ]
    output.print_result(traces, lines, as_json=as_json)


def _print_exposures(
    lakes: Sequence[str],
    ids: Sequence[str],
    state: str,
    transforms: Sequence[str],
    *,
    as_json: bool,
) -> None:
    from etl.loader import Shard
    from etl.loader.exposures import find_exposures
    from etl.loader.replay import open_saved, read_state

    one, own = Shard(rank=0, world_size=1), load_transforms(transforms)
    dataset = open_saved(lakes, read_state(state), shard=one, transforms=own)
    seen = find_exposures(dataset, list(dict.fromkeys(ids)))
    output.print_result(seen, exposure_lines, as_json=as_json)


def exposure_lines(documents: Sequence["SeenDocument"]) -> Iterator[str]:
    """Yield when documents were seen, separated by blank lines."""
    for number, document in enumerate(documents):
        if number:
            yield ""
        origin = "" if document.source is None else f" of {document.source}"
        yield f"{document.id}{origin}"
        yield f"  table       {document.table} version {document.version}"
        yield f"  seen        {many(len(document.exposures), 'time') if document.exposures else 'never'}"
        for each in document.exposures:
            place = f"sample {each.sample:,}, step unknown"
            if each.rank is not None:
                step = "unknown" if each.step is None else f"{each.step:,}"
                place = f"step {step}, rank {each.rank}, row {each.row} (sample {each.sample:,})"
            first, stop = each.span.document_start, each.span.document_start + each.span.count
            yield f"    epoch {each.epoch}, {place}: tokens {first:,} to {stop:,}"


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
        yield from cut_lines(trace.cut)
    for name, tokens in trace.tokens.items():
        yield from _tokens(name, tokens)
    for name, location in trace.shuffled.items():
        yield f"  {name:<11} {_location(location)}"
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


def cut_lines(cut: "Cut") -> Iterator[str]:
    """Yield what is cut out of a document, and where the first of it is, too."""
    yield f"  {cut.unit + 's':<11} {cut.outcome}; the first one also occurs in"
    yield f"              {cut.keeper_source} row {cut.keeper_row}"
    for text in cut.texts:
        yield f"    - {output.cell(text)}"


def _tokens(name: str, tokens: "TracedTokens") -> Iterator[str]:
    first, stop = tokens.first_token, tokens.first_token + tokens.num_tokens
    yield f"  {name:<11} {tokens.num_tokens:,}, positions {first:,} to {stop:,} in the file"
    yield f"              {_location(tokens.location)}"


def _location(location: "RowLocation") -> str:
    row, commit = f"row {location.row} of {location.file}", location.commit
    if commit is None:
        return row
    version = f"version {commit.version}, {commit.time:%Y-%m-%d %H:%M:%S} UTC"
    run = f", run {commit.run_id} of {commit.recipe}" if commit.run_id else ""
    return f"{row} ({version}{run})"
