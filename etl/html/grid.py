"""Tables as text, each with at most ``MAX_ROWS`` rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

MAX_ROWS: Final = 40


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: its caption, its header and its rows; columns after the first are numbers or all texts."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    is_text: bool = False


def make_grid(
    caption: str, header: Sequence[str], items: Iterable[T], row: Callable[[T], Sequence[str]]
) -> Grid:
    """Return a table of the first items, and the number of the others in a note."""
    listed = [*items]
    more = len(listed) - MAX_ROWS
    return Grid(
        caption=caption,
        header=header,
        rows=[row(item) for item in listed[:MAX_ROWS]],
        note=f"And {more:,} more." if more > 0 else "",
    )


def percent(value: float, of: float) -> str:
    """Return a share in percent; a dash if the whole is 0.

    >>> percent(1, 8), percent(1, 0), percent(1, 100_000)
    ('12.5 %', '–', '<0.1 %')
    """
    if not of:
        return "–"
    share = 100 * value / of
    return "<0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def share_grid(caption: str, name: str, counts: Mapping[str, int], *, of: int) -> Grid:
    """Return a table of numbers of documents by name, each with its share of a whole."""
    return make_grid(
        caption,
        (name, "documents", "share"),
        counts.items(),
        lambda each: (each[0], f"{each[1]:,}", percent(each[1], of)),
    )


def signal_grid(signals: Mapping[str, float]) -> Grid:
    """Return the signals of a document as a table."""
    return make_grid(
        "Signals", ("signal", "value"), signals.items(), lambda each: (each[0], f"{each[1]:g}")
    )
