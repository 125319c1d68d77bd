"""What a notebook shows of an object: cards with facts, tables and a text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Protocol, TypeVar

from etl.html.grid import MAX_ROWS, Grid, signal_grid
from etl.visible_text import one_line

_LINE_CHARS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Card:
    """A title, facts by name, tables, and a text; facts that are None are left out.

    ``is_code`` shows the whole text with characters of the same width.
    """

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    grids: Sequence[Grid] = ()
    text: str | None = None
    is_code: bool = False


def cards_html(*cards: Card) -> str:
    """Return cards as HTML for ``_repr_html_``; a notebook has its own style for tables.

    >>> print(cards_html(Card(title="a<b", facts={"rows": "1", "note": None})).rstrip())
    <div>
    <p><strong>a&lt;b</strong></p>
    <table>
    <tr><th style="text-align: start" scope="row">rows</th><td style="text-align: start">1</td></tr>
    </table>
    </div>
    """
    from etl.html.environment import environment  # only a notebook needs Jinja

    return environment("etl.html").get_template("cards.html").render(cards=cards)


class Shown:
    """An object that a notebook shows as cards, and a prompt as the first card's title and facts.

    A dataclass of it has ``repr=False``; its facts are by default its fields, of lists and dicts the size.
    """

    def _cards(self) -> Sequence[Card]:
        """Return the cards, the most important one first."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        facts = {
            name: f"{len(value):,}"
            if isinstance(value, Collection) and not isinstance(value, str)
            else value
            for name, value in values.items()
        }
        return [Card(title=type(self).__name__, facts=facts)]

    def _repr_html_(self) -> str:
        """Return the cards as HTML, for notebooks."""
        return cards_html(*self._cards())

    def __repr__(self) -> str:
        card = self._cards()[0]
        name = type(self).__name__
        title = card.title.removeprefix(name).lstrip()
        facts = (f"{fact} {value}" for fact, value in card.facts.items() if value is not None)
        line = one_line(f"{name} {'; '.join([*([title] if title else []), *facts])}")
        return f"<{line if len(line) <= _LINE_CHARS else f'{line[:_LINE_CHARS]}...'}>"


class Described(Protocol):
    """A document with an address, its signals, and a text if it is known."""

    @property
    def source(self) -> str: ...  # noqa: D102 - as in ``documents``, like the others
    @property
    def row(self) -> int: ...  # noqa: D102
    @property
    def signals(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def text(self) -> str | None: ...  # noqa: D102


def document_card(document: Described, facts: Mapping[str, object]) -> Card:
    """Return the card of a document: its address, some facts, its signals and its text."""
    return Card(
        title=f"{document.source} row {document.row}",
        facts=facts,
        grids=[signal_grid(document.signals)],
        text=document.text,
    )


Item = TypeVar("Item", bound=Shown)


class CardList(list[Item]):
    """A list that a notebook shows as the cards of its items, and a prompt with a line for each."""

    def _repr_html_(self) -> str:
        """Return the cards as HTML."""
        cards = (card for item in self for card in item._cards())  # noqa: SLF001 - of Shown
        return cards_html(*cards)

    def __repr__(self) -> str:
        lines = [repr(item) for item in self[:MAX_ROWS]]
        more = [f"... {len(self) - MAX_ROWS:,} more"] if len(self) > MAX_ROWS else []
        return "[" + ",\n ".join(lines + more) + "]"
