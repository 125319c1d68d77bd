"""What several commands print (text or JSON, columns, counts, costs), and their exit codes."""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from etl.errors import one_line

if TYPE_CHECKING:
    from etl.job.prices import Prices
    from etl.lake.quarantine import Quarantined
    from etl.lake.stage_costs import StageCost
    from etl.loader.order.evenness import Evenness
    from etl.schemas import Usage

FAILED: Final = 1
QUARANTINED: Final = 3
INTERRUPTED: Final = 130

_MAX_CELL_CHARS = 60
_MAX_ERROR_CHARS = 300
_MAX_ITEMS_SHOWN = 8
_MIN_WIDTH = 40  # of folded text


def print_result(
    result: Any, lines: Callable[[Any], Iterable[str]], *, as_json: bool = False
) -> None:
    """Print a result to stdout, as one JSON value or as the lines that ``lines`` makes of it."""
    if as_json:
        typer.echo(json_text(result))
        return
    for line in lines(result):
        typer.echo(one_line(line))


def json_text(result: Any, *, indent: int | None = 2) -> str:
    """Return the JSON of dataclasses, pydantic models, times (ISO 8601) and bytes (hex)."""
    from pydantic_core import to_json

    return to_json(result, indent=indent, bytes_mode="hex", inf_nan_mode="null").decode()


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Iterator[str]:
    """Yield rows in aligned columns; the columns whose index is in ``numbers`` are right-aligned.

    >>> list(columns(["name", "n"], [["a", "1"], ["long", "20"]], numbers=[1]))
    ['name   n', 'a      1', 'long  20']
    """
    table = [list(map(one_line, row)) for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    for row in table:
        cells = [
            text.rjust(width) if index in numbers else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def cell(value: Any) -> str:
    """Return a value as one short line; long texts, lists and bytes are shortened.

    >>> cell([1, 2, 3]), cell(list(range(100)))[-18:], cell(b"ab")
    ('[1, 2, 3]', '7, ... 100 in all]', '6162')
    """
    if isinstance(value, list) and len(value) > _MAX_ITEMS_SHOWN:
        shown = ", ".join(map(str, value[:_MAX_ITEMS_SHOWN]))
        return f"[{shown}, ... {len(value)} in all]"
    if isinstance(value, bytes):
        value = value.hex()
    text = " ".join(str(value).split()) if value is not None else "-"
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 3]}..."


def fold(text: str, *, indent: int = 0) -> list[str]:
    """Return a text as lines of the terminal's width, the second and later ones indented.

    >>> fold("one two")
    ['one two']
    """
    width = max(shutil.get_terminal_size().columns, _MIN_WIDTH)
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def cut(line: str) -> str:
    """Return a line that is no longer than the terminal is wide.

    >>> len(cut("word " * 100)) <= max(shutil.get_terminal_size().columns, 40)
    True
    """
    width = max(shutil.get_terminal_size().columns, _MIN_WIDTH)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def reflow(text: str) -> Iterator[str]:
    """Yield the lines of a docstring, with paragraphs and list items folded to the terminal's width."""
    for index, paragraph in enumerate(text.split("\n\n")):
        if index:
            yield ""
        for item in paragraph.replace("\n- ", "\0- ").split("\0"):
            yield from fold(" ".join(item.split()), indent=2 if item.startswith("- ") else 0)


def evenness(even: "Evenness") -> str:
    """Return how evenly batches mix the input files, compared with random documents."""
    return (
        f"{even.document_ratio:.2f} times the variance of independent documents "
        f"({even.batches} batches of {even.batch_tokens:,} tokens)"
    )


def many(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> many(1, "file"), many(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(value: float, *, is_estimate: bool) -> str:
    """Return a share with two digits, marked if it is an estimate.

    >>> share(0.831, is_estimate=False), share(0.831, is_estimate=True)
    ('0.83', '~0.83')
    """
    return f"{'~' if is_estimate else ''}{value:.2f}"


def rejected(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the number of rejected documents and the counts by reason, largest first."""
    yield f"rejected    {sum(counts.values()):,}"
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {reason:<32} {count:,}"


def special_texts(count: int) -> Iterator[str]:
    """Yield the number of tokenized documents whose text spells a special token, unless it is 0."""
    if count:
        yield f"special     {many(count, 'document')} whose text spells a special token"


def costs(stages: Sequence["StageCost"]) -> Iterator[str]:
    """Yield a table of the worker seconds and the throughput of each stage, after a blank line."""
    rows = []
    for cost in stages:
        speed = cost.megabytes_per_second
        rejections = f"{cost.rejected:,}" if cost.rejected else ""
        shown = "" if speed is None else f"{speed:,.1f}"
        rows.append([cost.name, f"{cost.documents:,}", rejections, f"{cost.seconds:,.1f}", shown])
    if rows:
        yield ""
        header = ["stage", "documents", "rejected", "seconds", "MB/s"]
        yield from columns(header, rows, numbers=(1, 2, 3, 4))


def usage(
    columns_: Mapping[str, "Usage"], prices: "Prices", *, memory_per_worker: int | None = None
) -> Iterator[str]:
    """Yield a table of what a run needs, with a column for each of its usages: estimated, used."""
    from etl.job.prices import cost_of

    usages = list(columns_.values())
    costs = [cost_of(each, prices) for each in usages]

    def row(name: str, values: Iterable[str]) -> list[str]:
        return [name, *values]

    rows = [row("core-hours", (f"{each.core_seconds / 3600:,.4f}" for each in usages))]
    if any(each.cpu_seconds for each in usages):
        shown = (f"{each.cpu_seconds / 3600:,.4f}" if each.cpu_seconds else "" for each in usages)
        rows.append(row("CPU-hours", shown))
    if memory_per_worker is not None:
        rows.append(row("memory per worker", [_size(memory_per_worker)]))
    rows += [
        row("read", (_size(each.read_bytes) for each in usages)),
        row("written", (_size(each.written_bytes) for each in usages)),
        row("storage added", (_size(each.stored_bytes) for each in usages)),
        row("S3 GET requests", (f"{each.read_requests:,}" for each in usages)),
        row("S3 PUT requests", (f"{each.write_requests:,}" for each in usages)),
        row(f"{prices.currency} on demand", (f"{cost.on_demand:,.4f}" for cost in costs)),
        row(f"{prices.currency} on spot", (f"{cost.spot:,.4f}" for cost in costs)),
        row(f"{prices.currency} a month", (f"{cost.storage_per_month:,.4f}" for cost in costs)),
    ]
    numbers = range(1, len(usages) + 1)
    yield from columns(["cost", *columns_], rows, numbers=numbers)
    yield f"prices      {prices.name}, {prices.date}; a month: of the added storage"


def _size(num_bytes: float) -> str:
    """Return a size with a unit of 1000 bytes and more.

    >>> _size(2_500_000), _size(512), _size(7_100_000_000_000)
    ('2.5 MB', '0.0 MB', '7.1 TB')
    """
    unit, name = next(
        (each for each in ((1e12, "TB"), (1e9, "GB")) if num_bytes >= each[0]), (1e6, "MB")
    )
    return f"{num_bytes / unit:,.1f} {name}"


def quarantined(note: "Quarantined") -> str:
    """Return a line about a part of the input that could not be read."""
    part = f" [{note.part}]" if note.part else ""
    error = " ".join(note.error.split())
    shown = error if len(error) <= _MAX_ERROR_CHARS else f"{error[: _MAX_ERROR_CHARS - 3]}..."
    return one_line(f"quarantined {note.step} {note.source}{part}: {shown}")
