"""What several commands print (text or JSON, columns, counts, costs), and their exit codes."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from etl.errors import QuarantineError, TokenlakeError, one_line

if TYPE_CHECKING:
    from etl.job.prices import Prices
    from etl.lake.quarantine import Quarantined
    from etl.lake.stage_costs import StageCost
    from etl.loader.order.evenness import Evenness
    from etl.schemas import Usage

FAILED: Final = 1
QUARANTINED: Final = 3

_MAX_CELL_CHARS = 60
_MAX_ERROR_CHARS = 300
_MAX_ITEMS_SHOWN = 8
_MIN_FOLDED_CHARS = 20
_LABEL_WIDTH: Final = 12
_LABEL: Final = re.compile(r"(?=.{10}  \S)[a-z]+(?: [a-z]+)*(?=  )")
_MIN_WIDTH = 40  # of folded text


def exit_code(error: TokenlakeError) -> int:
    """Return the exit code of a command that an error ends.

    >>> exit_code(TokenlakeError("no such lake"))
    1
    """
    return QUARANTINED if isinstance(error, QuarantineError) else FAILED


def print_result(
    result: Any, lines: Callable[[Any], Iterable[str]], *, as_json: bool = False
) -> None:
    """Print a result to stdout, as one JSON value or as the lines that ``lines`` makes of it."""
    if as_json:
        typer.echo(json_text(result))
        return
    width = terminal_width()
    for line in map(one_line, lines(result)):
        parts = [line] if width is None or len(line) <= width else _fit(line, width)
        if width is not None and not os.environ.get("NO_COLOR"):
            parts[0] = _with_bold_label(parts[0])
        typer.echo("\n".join(parts))


def _fit(line: str, width: int) -> list[str]:
    """Break a line between words; those after the first are indented. Long words stay, to be copied.

    >>> _fit("rows        12 of the input", 20)
    ['rows        12 of', '            the', '            input']
    """
    indent = " " * (_LABEL_WIDTH if _LABEL.match(line) else 2 + len(line) - len(line.lstrip()))
    parts = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return parts or [""]


def _with_bold_label(line: str) -> str:
    r"""Return a line with the label in its first 12 columns, if it has one, in bold.

    >>> _with_bold_label("kept        12"), _with_bold_label("a text")
    ('\x1b[1mkept\x1b[0m        12', 'a text')
    """
    label = _LABEL.match(line)
    return line if label is None else f"{typer.style(label[0], bold=True)}{line[label.end() :]}"


def print_error(what: object) -> None:
    """Print an error to stderr; its label is red on a terminal, unless the environment has NO_COLOR."""
    label = "error:"
    if not os.environ.get("NO_COLOR"):
        label = typer.style(label, fg="red", bold=True)  # echo removes it elsewhere
    typer.echo(f"{label} {what}", err=True)


def terminal_width() -> int | None:
    """Return the number of columns of the terminal; None if stdout is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def folded(text: str, *, first: str, indent: str) -> Iterator[str]:
    """Yield a text in lines that fit the terminal, with ``first`` before the first, ``indent`` before others.

    >>> list(folded("a long text", first="  | ", indent="  | "))
    ['  | a long text']
    """
    width = terminal_width()
    if width is None:
        yield first + text
        return
    parts = textwrap.wrap(text, max(width - len(indent), _MIN_FOLDED_CHARS)) or [""]
    for number, part in enumerate(parts):
        yield (indent if number else first) + part


def json_text(result: Any, *, indent: int | None = 2) -> str:
    """Return the JSON of dataclasses, pydantic models, times (ISO 8601) and bytes (hex)."""
    from pydantic_core import to_json

    return to_json(result, indent=indent, bytes_mode="hex", inf_nan_mode="null").decode()


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Iterator[str]:
    """Yield rows in aligned columns; the columns whose index is in ``numbers`` are right-aligned.

    On a terminal that is too narrow, the first column is on a separate line.

    >>> list(columns(["name", "n"], [["a", "1"], ["long", "20"]], numbers=[1]))
    ['name   n', 'a      1', 'long  20']
    """
    width = terminal_width()
    table = [list(map(one_line, row)) for row in (header, *rows)]
    lines = [*_aligned(table, numbers)]
    if width is None or max(map(len, lines)) <= width or len(header) < 2:
        yield from lines
        return
    rest = _aligned([row[1:] for row in table], [index - 1 for index in numbers])
    for row, line in zip(table, rest, strict=True):
        yield row[0]
        yield f"  {line}"


def _aligned(table: Sequence[Sequence[str]], numbers: Sequence[int]) -> Iterator[str]:
    widths = [max(len(row[index]) for row in table) for index in range(len(table[0]))]
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
    width = terminal_width()
    if width is None:
        return [text]
    return textwrap.wrap(
        text,
        max(width, _MIN_WIDTH),
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


def percent(count: int, of: int) -> str:
    """Return a count as a percentage of another, in parentheses; empty if that is 0.

    >>> percent(1, 8), percent(1, 0)
    (' (12.5%)', '')
    """
    return f" ({count / of:.1%})" if of else ""


def counts(values: Mapping[str, int], *, of: int) -> Iterator[str]:
    """Yield counts by name in the given order, each as a percentage, too."""
    for name, count in values.items():
        yield f"  {name:<32} {count:>9,}{percent(count, of)}"


def rejected(reasons: Mapping[str, int], *, of: int) -> Iterator[str]:
    """Yield the number of rejected documents and the counts by reason, largest first."""
    total = sum(reasons.values())
    yield f"rejected    {total:,}{percent(total, of)}"
    yield from counts(dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))), of=of)


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
    header, *rows = usage_rows(columns_, prices, memory_per_worker=memory_per_worker)
    yield from columns(header, rows, numbers=range(1, len(header)))
    yield f"prices      {prices_note(prices)}"


def prices_note(prices: "Prices") -> str:
    """Return what the costs are based on."""
    return f"{prices.name}, {prices.date}; a month: of the added storage"


def usage_rows(
    columns_: Mapping[str, "Usage"], prices: "Prices", *, memory_per_worker: int | None = None
) -> list[list[str]]:
    """Return the header and the rows of the table of ``usage``."""
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
    return [["cost", *columns_], *rows]


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
