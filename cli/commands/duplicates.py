"""`etl duplicates`: print which documents are duplicates, and of what."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.duplicates.duplicate_report import DuplicateCluster, DuplicateReport, Saved
    from etl.audit.duplicates.removed_passages import CutDocument, CutTotals

app = typer.Typer()


def _top() -> Any:
    from etl.audit.duplicates.duplicate_report import duplicates as count

    return options.keyword_default(count, "top")


@app.command(
    epilog=options.examples(
        "etl duplicates lake",
        "etl duplicates lake --top 3 --json",
    )
)
def duplicates(
    lake: options.LakeArgument,
    *,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many clusters, pairs of sources and cut documents to print.",
            default_factory=options.LibraryDefault(_top),
        ),
    ],
    as_json: options.AsJson = False,
) -> None:
    """Count duplicates by cluster, language and source.

    Also prints how many tokens their removal saves. A ~ marks an estimate.
    """
    from etl.audit.duplicates.duplicate_report import duplicates as count

    output.print_result(count(lake, top=top), lines, as_json=as_json)


def lines(report: "DuplicateReport") -> Iterator[str]:
    """Yield the counts of duplicates, the pairs of sources, the largest clusters and cuts."""
    yield f"lake        {report.lake}"
    for kind, count in report.kinds.items():
        yield f"  {kind:<32} {count:,}"
    yield f"clusters    {report.clusters:,}, by number of documents"
    for size, count in report.sizes.items():
        yield f"  {size:<32} {count:,}"
    yield f"saved       {_saved(report.saved)}"
    for name, saved in report.languages.items():
        yield f"  {name:<32} {_saved(saved)}"
    if report.cuts is not None:
        yield from _cuts(report.cuts)
    if report.pairs:
        yield ""
        rows = [[pair.source, pair.keeper_source, f"{pair.documents:,}"] for pair in report.pairs]
        if report.other_pairs:
            rows.append(["others", "", f"{report.other_pairs:,}"])
        header = [f"removed ({report.by})", "kept", "documents"]
        yield from output.columns(header, rows, numbers=[2])
    for cluster in report.largest:
        yield from _cluster(cluster)
    for document in report.cuts.largest if report.cuts is not None else ():
        yield from _cut(document)


def _saved(saved: "Saved") -> str:
    unknown = f", unknown for {saved.unknown:,}" if saved.unknown else ""
    return f"{many(saved.documents, 'document')}, ~{saved.tokens:,} tokens{unknown}"


def _cuts(cuts: "CutTotals") -> Iterator[str]:
    units, chars = many(cuts.units, cuts.unit), many(cuts.chars, "character")
    yield f"cut         {units}, {chars}, from {many(cuts.documents, 'document')}"
    if cuts.left_out:
        documents = many(cuts.left_out, "document")
        yield f"            {documents} removed, as too little text would remain"
    if cuts.tokens is not None:
        yield f"            ~{many(cuts.tokens, 'token')} in all"


def _cluster(cluster: "DuplicateCluster") -> Iterator[str]:
    name = f" (id {cluster.id})" if cluster.id is not None else ""
    yield ""
    yield f"{many(cluster.size, 'document')}: {cluster.source} row {cluster.row}{name}"
    yield f"  {output.cell(cluster.text)}"
    for member in cluster.members:
        similarity = output.share(member.similarity, is_estimate=member.is_estimate)
        yield f"  {member.kind} {similarity}  {member.source} row {member.row}"
    more = cluster.size - 1 - len(cluster.members)
    if more:
        yield f"  ... and {more:,} more"


def _cut(document: "CutDocument") -> Iterator[str]:
    name = f" (id {document.id})" if document.id is not None else ""
    yield ""
    yield f"{document.cut.outcome}: {document.source} row {document.row}{name}"
    for text in document.cut.texts:
        yield f"  {output.cell(text)}"
    yield f"  the first of them is in {document.cut.keeper_source} row {document.cut.keeper_row}"
