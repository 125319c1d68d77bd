"""What several commands print (text or JSON, columns, counts, costs), and their exit codes."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from etl.cli.json_text import json_text
from etl.errors import QuarantineError, TokenlakeError
from etl.plural import many
from etl.text_width import cut_text, pad_text, text_width, wrap_text
from etl.visible_text import VisibleStream, one_line

if TYPE_CHECKING:
    from etl.lake.missing_inputs import MissingInputs
    from etl.lake.quarantine import Quarantined
    from etl.loader.order.evenness import Evenness

FAILED: Final = 1
QUARANTINED: Final = 3

TEXT_CHARS: Final = 600
"""Of a document that is printed."""

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m\x1b[1m", "\x1b[0m"  # of ECMA-48, as terminals know them
_MAX_CELL_CHARS = 60
_MAX_ERROR_CHARS = 300
_MAX_ITEMS_SHOWN = 8
_MAX_FILES_SHOWN = 10
_MIN_FOLDED_CHARS = 20
_LABEL_WIDTH: Final = 12
_LABEL: Final = re.compile(r"(?=.{10}  \S)[a-z]+(?: [a-z]+)*(?=  )")
_MIN_WIDTH = 40  # of folded text
_NAME_WIDTH = 32  # of counts: longer names take the room of the numbers
_NUMBER_WIDTH = 9


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
        echo(json_text(result))
        return
    width = terminal_width()
    for line in map(one_line, lines(result)):
        text = "\n".join([line] if width is None else _fit(line, width))
        label = _LABEL.match(text)
        end = 0 if label is None else label.end()
        echo(text[end:], label=text[:end], style=_BOLD)


def _fit(line: str, width: int) -> list[str]:
    """Break a line between words; those after the first are indented. Long words stay, to be copied.

    >>> _fit("rows        12 of the input", 20)
    ['rows        12 of', '            the', '            input']
    """
    if text_width(line) <= width:
        return [line]
    indent = " " * (_LABEL_WIDTH if _LABEL.match(line) else 2 + len(line) - len(line.lstrip()))
    return wrap_text(line, width, indent=indent)


def echo(text: str = "", *, label: str = "", style: str = "", err: bool = False) -> None:
    """Print a line to stdout, or lines to stderr, which fit a terminal; hidden characters are escaped.

    The label before the text has a style on a terminal, unless the environment has NO_COLOR.
    """
    stream = VisibleStream.of(sys.stderr if err else sys.stdout)
    if err and stream.isatty():
        width = shutil.get_terminal_size().columns
        lines = (part for line in f"{label}{text}".split("\n") for part in _fit(line, width))
        text = "\n".join(lines)[len(label) :]
    is_styled = bool(label) and stream.isatty() and not os.environ.get("NO_COLOR")
    stream.write_code(style if is_styled else "")
    stream.write(label)
    stream.write_code(_PLAIN if is_styled else "")
    stream.write(f"{text}\n")
    stream.flush()


def print_error(what: object) -> None:
    """Print an error to stderr; its label is red on a terminal."""
    echo(f" {what}", label="error:", style=_RED, err=True)


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
    parts = wrap_text(text, max(width - len(indent), _MIN_FOLDED_CHARS), breaks_words=True)
    for number, part in enumerate(parts):
        yield (indent if number else first) + part


def text_start(text: str, chars: int = TEXT_CHARS) -> Iterator[str]:
    """Yield the first characters of a document's text, each line with a bar before it.

    >>> [*text_start("one line", 3)]
    ['  | one', '  ... 8 characters in all']
    """
    shown = text[:chars]
    for line in shown.splitlines():
        yield from folded(line, first="  | ", indent="  | ")
    if len(shown) < len(text):
        yield f"  ... {len(text):,} characters in all"


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Iterator[str]:
    """Yield rows in aligned columns; the columns whose index is in ``numbers`` are right-aligned.

    On a terminal that is too narrow, the first column is on a separate line, or even each cell.

    >>> list(columns(["name", "n"], [["a", "1"], ["long", "20"]], numbers=[1]))
    ['name   n', 'a      1', 'long  20']
    """
    width = terminal_width()
    table = [list(map(one_line, row)) for row in (header, *rows)]
    lines = [*_aligned(table, numbers)]
    if width is None or max(map(text_width, lines)) <= width or len(header) < 2:
        yield from lines
        return
    rest = [*_aligned([row[1:] for row in table], [index - 1 for index in numbers])]
    if max(map(text_width, rest)) + 2 > width:
        yield from _cells_below(table)
        return
    for row, line in zip(table, rest, strict=True):
        yield row[0]
        yield f"  {line}"


def _aligned(table: Sequence[Sequence[str]], numbers: Sequence[int]) -> Iterator[str]:
    widths = [max(text_width(row[index]) for row in table) for index in range(len(table[0]))]
    for row in table:
        cells = [
            pad_text(text, width, is_number=index in numbers)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _cells_below(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the cells of each row below each other, after the names of their columns.

    >>> [*_cells_below([["version", "step"], ["1", "tokens"]])]
    ['version  1', '  step  tokens']
    """
    (first, *names), *rows = table
    for cell, *cells in rows:
        yield f"{first}  {cell}"
        width = max(map(text_width, names))
        yield from (
            f"  {pad_text(n, width)}  {each}" for n, each in zip(names, cells, strict=True) if each
        )


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
    return wrap_text(text, max(width, _MIN_WIDTH), indent=" " * indent)


def cut(line: str) -> str:
    """Return a line that is no longer than the terminal is wide.

    >>> len(cut("word " * 100)) <= max(shutil.get_terminal_size().columns, 40)
    True
    """
    return cut_text(line, max(shutil.get_terminal_size().columns, _MIN_WIDTH))


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
        f"({many(even.batches, 'batch')} of {many(even.batch_tokens, 'token')})"
    )


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
    """Yield counts by name in the given order, each as a percentage, too.

    >>> print(*counts({"short": 12}, of=100))
      short                                   12 (12.0%)
    """
    names = max([_NAME_WIDTH, *map(len, values)])
    numbers = _NAME_WIDTH + _NUMBER_WIDTH - names
    for name, count in values.items():
        yield f"  {name:<{names}} {count:>{max(numbers, 6)},}{percent(count, of)}"


def rejected(reasons: Mapping[str, int], *, of: int) -> Iterator[str]:
    """Yield the number of rejected documents and the counts by reason, largest first."""
    total = sum(reasons.values())
    yield f"rejected    {total:,}{percent(total, of)}"
    yield from counts(dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))), of=of)


def skipped_items(items: Mapping[str, int]) -> Iterator[str]:
    """Yield the number of items that stages have left out of their files, and why, unless there are none."""
    if items:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(items.items()))
        yield f"skipped     {many(sum(items.values()), 'item')} of evaluation sets ({reasons})"


def special_texts(count: int) -> Iterator[str]:
    """Yield the number of tokenized documents whose text spells a special token, unless it is 0."""
    if count:
        yield f"special     {many(count, 'document')} whose text spells a special token"


def copies(count: int, first: Mapping[str, str]) -> Iterator[str]:
    """Yield the number of files that were not read again, and the first ones with whose rows are held."""
    if count:
        yield f"same        {many(count, 'file')} with the content of others, read once"
        for uri, address in islice(first.items(), _MAX_FILES_SHOWN):
            yield one_line(f"  {uri} is {address}")


def missing(found: "MissingInputs") -> Iterator[str]:
    """Yield the number of files that are not listed any more, the first ones, and what they lack."""
    if found.count:
        yield f"missing     {many(found.count, 'input file')} not listed any more; --drop-missing drops rows"
        yield from (one_line(f"  {uri}") for uri in found.files[:_MAX_FILES_SHOWN])
    if found.without_texts:
        what = f"{many(found.without_texts, 'document')} of {many(found.num_incomplete, 'missing file')}"
        yield f"no texts    {what} (first: {found.incomplete[0]}): put it back and run, or --drop-missing"


def quarantined(note: "Quarantined") -> str:
    """Return a line about a part of the input that could not be read."""
    part = f" [{note.part}]" if note.part else ""
    error = " ".join(note.error.split())
    shown = error if len(error) <= _MAX_ERROR_CHARS else f"{error[: _MAX_ERROR_CHARS - 3]}..."
    return one_line(f"quarantined {note.step} {note.source}{part}: {shown}")
