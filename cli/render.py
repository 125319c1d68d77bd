"""What the commands print: facts as text for a reader, or as JSON for a program."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from etl.cli.progress import duration
from etl.errors import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from etl.audit.diff import Difference
    from etl.audit.lake_report import LakeReport
    from etl.audit.lineage_graph import Trace, Version
    from etl.audit.trace_records import Cut, RowLocation, TracedDuplicate
    from etl.audit.verify.verify import Problem
    from etl.delta.table import Table
    from etl.job.progress import RunReport
    from etl.lake.quarantine import Quarantined
    from etl.lake.stage_costs import StageCost

_MAX_CELL_CHARS = 60
_MAX_ERROR_CHARS = 300
_MAX_TOKENS_SHOWN = 8
_MAX_SOURCES_SHOWN = 20


def output(facts: Any, lines: Callable[[Any], Iterable[str]], *, to_json: bool) -> None:
    """Print facts to stdout: as one JSON value, or as the lines that a reader gets, each a line."""
    if to_json:
        typer.echo(as_json(facts))
        return
    for line in lines(facts):
        typer.echo(one_line(line))


def as_json(facts: Any, *, indent: int | None = 2) -> str:
    """JSON of dataclasses, pydantic models, times (ISO 8601) and bytes (hex)."""
    from pydantic_core import to_json

    return to_json(facts, indent=indent, bytes_mode="hex", inf_nan_mode="null").decode()


def run_report(report: "RunReport") -> Iterator[str]:
    """What a run did."""
    yield f"recipe      {report.recipe}"
    yield f"lake        {report.lake}"
    yield f"rows        {report.rows:,}"
    yield f"kept        {report.kept:,}"
    yield from _rejected(report.rejected)
    yield f"duplicates  {report.duplicates:,}"
    if report.cut:
        yield f"cut         {report.cut:,} documents"
    yield f"tokens      {report.tokens:,}"
    for name, version in report.versions.items():
        yield f"{name:<11} version {version}"
    yield f"took        {duration(report.seconds)}"
    yield from _costs(report.costs)


def quarantined(note: "Quarantined") -> str:
    """One part of the input that could not be read."""
    part = f" [{note.part}]" if note.part else ""
    error = " ".join(note.error.split())
    shown = error if len(error) <= _MAX_ERROR_CHARS else f"{error[: _MAX_ERROR_CHARS - 3]}..."
    return one_line(f"quarantined {note.step} {note.source}{part}: {shown}")


def recipes(found: Sequence[dict[str, str]]) -> Iterator[str]:
    """The shipped recipes, one a line."""
    for recipe in found:
        yield f"{recipe['name']:<14} {recipe['about']}".rstrip()


def versions(found: Sequence["Version"]) -> Iterator[str]:
    """The versions of a table, one a line."""
    header = [
        "version",
        "time (UTC)",
        "step",
        "action",
        "rows",
        "kept",
        "rejected",
        "tokens",
        "run",
        "recipe",
    ]
    rows = []
    for version in found:
        record = version.lineage
        cells = [str(version.version), f"{version.time:%Y-%m-%d %H:%M:%S}"]
        if record is None:
            rows.append([*cells, version.operation.lower(), "", "", "", "", "", "", ""])
            continue
        counts = record.counts
        numbers = (counts.rows, counts.kept, sum(counts.rejected.values()), counts.tokens)
        made_by = [record.run_id, f"{record.recipe} {record.fingerprint[:12]}"]
        rows.append([*cells, record.step, record.action, *(f"{n:,}" for n in numbers), *made_by])
    yield from columns(header, rows, numbers=(0, 4, 5, 6, 7))


def table_facts(table: "Table", rows: "pa.Table") -> dict[str, Any]:
    """A table as data: where it is, its schema, its size, and the given rows."""
    files = table.data_files()
    return {
        "url": table.url,
        "version": table.version,
        "schema": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            for field in table.schema
        ],
        "files": files.num_rows,
        "rows": sum(files["rows"].to_pylist()) if files.num_rows else 0,
        "bytes": sum(files["size"].to_pylist()) if files.num_rows else 0,
        "sample": rows.to_pylist(),
    }


def table(facts: dict[str, Any]) -> Iterator[str]:
    """A table's schema, size and first rows."""
    yield f"{facts['url']} version {facts['version']}"
    yield f"{facts['rows']:,} rows, {facts['files']:,} files, {facts['bytes']:,} bytes"
    yield ""
    for field in facts["schema"]:
        yield f"  {field['name']:<24} {field['type']}{'' if field['nullable'] else ' not null'}"
    for number, row in enumerate(facts["sample"]):
        yield ""
        yield f"row {number}"
        for name, value in row.items():
            yield f"  {name:<24} {cell(value)}"


def difference(found: "Difference") -> Iterator[str]:
    """What changed between two versions."""
    yield f"{found.url}: version {found.old} -> {found.new}"
    rows = [
        [name, f"+{added:,}", f"-{removed:,}"]
        for name, added, removed in (
            ("rows", found.rows_added, found.rows_removed),
            ("files", found.files_added, found.files_removed),
            ("bytes", found.bytes_added, found.bytes_removed),
            ("tokens", found.tokens_added, found.tokens_removed),
        )
    ]
    yield from columns(["", "added", "removed"], rows, numbers=(1, 2))
    if found.counts is None:
        yield "counts by reason: not known, the old data files are gone"
    for reason, change in (found.counts or {}).items():
        yield f"  {reason:<32} {change:+,}"
    for title, entries in (
        ("recipe", found.recipe),
        ("library", found.libraries),
        ("input added", [file.uri for file in found.inputs_added]),
        ("input replaced", [file.uri for file in found.inputs_replaced]),
        ("input removed", [file.uri for file in found.inputs_removed]),
    ):
        for entry in entries:
            yield f"{title}: {entry}"


def traces(found: Sequence["Trace"]) -> Iterator[str]:
    """The documents that were found, one after the other."""
    for number, document in enumerate(found):
        if number:
            yield ""
        yield from _trace(document)


def problems(found: Sequence["Problem"]) -> Iterator[str]:
    """What is wrong, one problem a line."""
    if not found:
        yield "the lake is whole"
    for problem in found:
        yield str(problem)


def lake_report(report: "LakeReport") -> Iterator[str]:
    """The counts of a lake."""
    yield f"lake        {report.lake}"
    for table in report.tables:
        made = f"recipe {table.recipe} {(table.fingerprint or '')[:12]}" if table.recipe else ""
        size = f"{table.rows:,} rows, {table.files:,} files, {table.size / 1e6:,.1f} MB"
        yield f"{table.name:<11} version {table.version}, {size}  {made}".rstrip()
    yield f"rows        {report.rows:,}"
    yield f"kept        {report.kept:,}"
    yield from _rejected(report.rejected)
    yield f"duplicates  {sum(report.duplicates.values()):,}"
    for kind, count in report.duplicates.items():
        yield f"  {kind:<32} {count:,}"
    if report.cut:
        yield f"cut         {report.cut:,} documents"
    mean = report.tokens_per_document
    per_document = f" ({mean:,.0f} a document)" if mean is not None else ""
    yield f"tokens      {report.tokens:,} of {report.tokenized:,} documents{per_document}"
    if report.languages:
        yield "languages   (kept documents)"
        for name, count in report.languages.items():
            yield f"  {name:<32} {count:,}"
    yield ""
    header = ["source", "rows", "kept", "tokenized", "tokens"]
    rows = [
        [s.source, f"{s.rows:,}", f"{s.kept:,}", f"{s.tokenized:,}", f"{s.tokens:,}"]
        for s in report.sources[:_MAX_SOURCES_SHOWN]
    ]
    yield from columns(header, rows, numbers=(1, 2, 3, 4))
    if len(report.sources) > _MAX_SOURCES_SHOWN:
        yield f"... and {len(report.sources) - _MAX_SOURCES_SHOWN} more (--json lists all)"
    yield from _costs(report.costs)
    for note in report.quarantined:
        yield quarantined(note)


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Iterator[str]:
    """Rows in aligned columns; those in ``numbers`` are aligned at the right.

    >>> list(columns(["name", "n"], [["a", "1"], ["long", "20"]], numbers=[1]))
    ['name   n', 'a      1', 'long  20']
    """
    table = [list(map(one_line, row)) for row in (header, *rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(header))]
    for row in table:
        cells = [
            text.rjust(width) if place in numbers else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def cell(value: Any) -> str:
    """A value in one line: long text is cut, long lists and bytes are shortened.

    >>> cell([1, 2, 3]), cell(list(range(100)))[-15:], cell(b"ab")
    ('[1, 2, 3]', '... 100 in all]', '6162')
    """
    if isinstance(value, list) and len(value) > _MAX_TOKENS_SHOWN:
        shown = ", ".join(map(str, value[:_MAX_TOKENS_SHOWN]))
        return f"[{shown}, ... {len(value)} in all]"
    if isinstance(value, bytes):
        value = value.hex()
    text = " ".join(str(value).split()) if value is not None else "-"
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 3]}..."


def _rejected(counts: dict[str, int]) -> Iterator[str]:
    yield f"rejected    {sum(counts.values()):,}"
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {reason:<32} {count:,}"


def _costs(costs: Sequence["StageCost"]) -> Iterator[str]:
    """What each part of the work has cost, in seconds of one worker."""
    rows = []
    for cost in costs:
        speed = cost.megabytes_per_second
        rejected = f"{cost.rejected:,}" if cost.rejected else ""
        shown = "" if speed is None else f"{speed:,.1f}"
        rows.append([cost.name, f"{cost.documents:,}", rejected, f"{cost.seconds:,.1f}", shown])
    if rows:
        yield ""
        header = ["stage", "documents", "rejected", "seconds", "MB/s"]
        yield from columns(header, rows, numbers=(1, 2, 3, 4))


def _trace(found: "Trace") -> Iterator[str]:
    yield f"{found.source} row {found.row}"
    yield f"  outcome     {found.outcome}"
    if found.id is not None:
        yield f"  id          {found.id}"
    if found.url is not None:
        yield f"  url         {found.url}"
    if found.lang is not None:
        yield f"  lang        {found.lang}"
    if found.input is not None:
        size, records = f"{found.input.size:,} bytes", f"{found.input.rows:,} records"
        yield f"  input file  {size}, {records}, fingerprint {found.input.fingerprint}"
    yield f"  document    {_place(found.document)}"
    if found.duplicate is not None:
        yield from _duplicate(found.duplicate)
    if found.cut is not None:
        yield from _cut(found.cut)
    if found.tokens is not None:
        tokens = found.tokens
        last = tokens.first_token + tokens.num_tokens
        yield f"  tokens      {tokens.num_tokens:,}, the file's {tokens.first_token:,} to {last:,}"
        yield f"              {_place(tokens.place)}"
    for name, value in found.signals.items():
        yield f"  signal      {name} = {value:g}"
    if found.text is not None:
        yield f"  text        {cell(found.text)}"


def _duplicate(found: "TracedDuplicate") -> Iterator[str]:
    name = f" (id {found.keeper_id})" if found.keeper_id is not None else ""
    yield f"  {found.kind:<11} duplicate of {found.keeper_source} row {found.keeper_row}{name}"
    if found.keeper_lake is not None:
        yield f"              of the lake {found.keeper_lake}"
    yield f"              similarity {found.similarity:.2f}"


def _cut(cut: "Cut") -> Iterator[str]:
    yield f"  {cut.unit:<11} {cut.outcome}; the first stands in"
    yield f"              {cut.keeper_source} row {cut.keeper_row}"
    for text in cut.texts:
        yield f"    - {cell(text)}"


def _place(place: "RowLocation") -> str:
    where = f"row {place.row} of {place.file}"
    if place.commit is None:
        return where
    made = f"version {place.commit.version}, {place.commit.time:%Y-%m-%d %H:%M:%S} UTC"
    by = f", run {place.commit.run_id} of {place.commit.recipe}" if place.commit.run_id else ""
    return f"{where} ({made}{by})"
