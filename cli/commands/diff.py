"""`etl diff`: print what changed between two lakes, or two versions of a lake or a table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.audit.lake_difference import LakeDifference, MovedDocuments
    from etl.audit.table_diff import Difference

app = typer.Typer()

_MAX_SOURCES_SHOWN = 20


@app.command(
    epilog=options.examples(
        "etl diff lake v1 v2 --samples 3",
        "etl diff lake other-lake --html changes.html",
        "etl diff lake/documents 3 7",
    )
)
def diff(
    lake: Annotated[
        str, typer.Argument(metavar="LAKE", help="The URL or path of a lake, or of a table of it.")
    ],
    old: Annotated[
        str, typer.Argument(help="The older version: a number or a release. Or another lake.")
    ],
    new: Annotated[
        str | None,
        typer.Argument(help="The newer version: a number or a release. None: OLD is a lake."),
    ] = None,
    *,
    samples: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Print N documents of those that left or came, by reason."
        ),
    ] = 0,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page with the result to this file.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what changed between two lakes, or two versions of one.

    Of lakes: settings, documents by stage, which left and came and why, tokens by input file and language,
    and worker time. A version of a lake is one of its last table. Of a table: rows, files, tokens, counts by
    reason, settings, library versions and input files.
    """
    from etl import schemas

    name = lake.rstrip("/").rpartition("/")[2]
    if new is not None and schemas.kind_of(name) in schemas.TABLES:
        from etl.audit.table_diff import diff as diff_versions
        from etl.lake.releases import version_of

        if html is not None or samples:
            raise typer.BadParameter("--html and --samples are for lakes, not for a table")
        table = diff_versions(lake, version_of(lake, old), version_of(lake, new))
        output.print_result(table, table_lines, as_json=as_json)
        return
    from etl.audit.lake_diff import diff_lakes

    if new is None:
        difference = diff_lakes(lake, old, samples=samples)
    else:
        difference = diff_lakes(lake, version=old, other_version=new, samples=samples)
    if html is not None:
        from etl import storage
        from etl.audit.page.render import render_difference

        storage.write_bytes(storage.normalize(html), render_difference(difference).encode())
    output.print_result(difference, lake_lines, as_json=as_json)


def lake_lines(difference: "LakeDifference") -> Iterator[str]:
    """Yield the settings that differ, the funnel, who left and came, tokens, and worker time."""
    from etl.audit.lake_difference import title_of

    yield f"before      {title_of(difference.old)}"
    yield f"after       {title_of(difference.new)}"
    yield from (f"recipe      {setting}" for setting in difference.recipe)
    yield from (f"library     {library}" for library in difference.libraries)
    yield ""
    steps = [
        [name, f"{old:,}", f"{new:,}", f"{new - old:+,}" if new != old else ""]
        for name, old, new in difference.steps()
        if old or new
    ]
    yield from output.columns(["", "before", "after", "change"], steps, numbers=(1, 2, 3))
    for word, moved in (("left", difference.left), ("came", difference.came)):
        yield ""
        yield from _moved(word, moved)
    if difference.other_reasons:
        yield f"rejected for another reason: {difference.other_reasons:,}"
    if difference.sources:
        yield ""
        shown = difference.sources[:_MAX_SOURCES_SHOWN]
        rows = [[s.source, f"{s.left:,}", f"{s.came:,}", f"{s.tokens:+,}"] for s in shown]
        yield from output.columns(["input file", "left", "came", "tokens"], rows, numbers=(1, 2, 3))
        if more := len(difference.sources) - len(shown):
            yield f"... and {more:,} more input files"
    if difference.language_tokens:
        yield ""
        rows = [[language, f"{n:+,}"] for language, n in difference.language_tokens.items()]
        yield from output.columns(["language", "tokens"], rows, numbers=(1,))
    seconds = [[name, f"{old:,.1f}", f"{new:,.1f}"] for name, old, new in difference.seconds()]
    if seconds:
        yield ""
        yield from output.columns(["worker seconds", "before", "after"], seconds, numbers=(1, 2))


def _moved(word: str, moved: "Sequence[MovedDocuments]") -> Iterator[str]:
    yield f"{word:<11} {sum(each.documents for each in moved):,}"
    for each in moved:
        yield f"  {each.reason:<30} {each.documents:>6,}"
    for each in moved:
        for document in each.examples:
            name = "" if document.id is None else f" ({document.id})"
            yield f"{word} by {each.reason}: {document.source} row {document.row}{name}"
            yield from output.text_start(document.text or "")


def table_lines(difference: "Difference") -> Iterator[str]:
    """Yield the changed counts, then the changed settings, libraries and input files."""
    yield f"{difference.url}: version {difference.old} -> {difference.new}"
    rows = [
        [name, f"+{added:,}", f"-{removed:,}"]
        for name, added, removed in (
            ("rows", difference.rows_added, difference.rows_removed),
            ("files", difference.files_added, difference.files_removed),
            ("bytes", difference.bytes_added, difference.bytes_removed),
            ("tokens", difference.tokens_added, difference.tokens_removed),
        )
    ]
    yield from output.columns(["", "added", "removed"], rows, numbers=(1, 2))
    if difference.counts is None:
        yield "counts by reason: unknown, the data files of the old version are deleted"
    counts = [[f"  {reason}", f"{n:+,}"] for reason, n in (difference.counts or {}).items()]
    if counts:
        yield from output.columns(["reason", "change"], counts, numbers=(1,))
    for title, entries in (
        ("recipe", difference.recipe),
        ("library", difference.libraries),
        ("input added", [file.uri for file in difference.inputs_added]),
        ("input replaced", [file.uri for file in difference.inputs_replaced]),
        ("input removed", [file.uri for file in difference.inputs_removed]),
    ):
        for entry in entries:
            yield f"{title}: {entry}"
