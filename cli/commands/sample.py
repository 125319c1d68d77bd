"""`etl sample`: print random documents of a lake with their texts and signals."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from etl.cli import options, output
from etl.cli.commands.trace import cut_lines

if TYPE_CHECKING:
    from etl.audit.shown_documents import ShownDocument

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl sample lake --reason gopher_quality.short --lang de -n 20",
        "etl sample lake --verdict kept --chars 2000",
    )
)
def sample(  # noqa: PLR0913 - one parameter per option
    lake: options.LakeArgument,
    *,
    reason: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Rejected by this stage or rule, e.g. gopher_quality."),
    ] = None,
    lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="In this language, e.g. de.")
    ] = None,
    verdict: Annotated[
        Literal["kept", "rejected"] | None, typer.Option(help="With this verdict; default: both.")
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="How many documents to print.")
    ] = 20,
    chars: Annotated[
        int, typer.Option(min=0, help="How many characters of each text to print.")
    ] = output.TEXT_CHARS,
    seed: Annotated[int, typer.Option(help="Another seed gives other documents.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Print random documents with their texts and signals.

    For a rejected document, prints the limit that it fails, too. Its text is read again from the input file
    if the lake does not store it.
    """
    from etl.audit.sample_documents import sample as choose

    documents = choose(
        lake,
        n=number,
        verdict=verdict,
        reason=reason,
        lang=lang,
        seed=seed,
    )
    output.print_result(documents, lambda each: lines(each, chars=chars), as_json=as_json)


def lines(documents: "Sequence[ShownDocument]", *, chars: int = output.TEXT_CHARS) -> Iterator[str]:
    """Yield the documents, separated by blank lines, with the first characters of their texts."""
    for number, document in enumerate(documents):
        if number:
            yield ""
        yield from _document(document, chars)


def _document(document: "ShownDocument", chars: int) -> Iterator[str]:
    yield f"{document.source} row {document.row}"
    outcome = document.verdict if document.reason is None else f"rejected by {document.reason}"
    yield f"  outcome     {outcome}"
    for limit in document.limits:
        yield f"  failed      {limit}"
    if document.cut is not None:
        yield from cut_lines(document.cut)
    for name in ("id", "url", "lang"):
        if (value := getattr(document, name)) is not None:
            yield f"  {name:<11} {value}"
    signals = ", ".join(f"{name} {value:g}" for name, value in document.signals.items())
    if signals:
        yield from output.folded(signals, first="  signals     ", indent=" " * 14)
    if document.text is None:
        yield f"  no text     {document.missing_text or 'it was not stored'}"
        return
    yield from output.text_start(document.text, chars)
