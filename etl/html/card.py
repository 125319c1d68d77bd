"""What a notebook shows of an object: cards with facts, tables and a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from etl.html.grid import Grid, signal_grid


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


class HasCard(Protocol):
    """An object that a notebook shows as a card."""

    def card(self) -> Card:
        """Return the card."""


Item = TypeVar("Item", bound=HasCard)


class CardList(list[Item]):
    """A list that a notebook shows as the cards of its items."""

    def _repr_html_(self) -> str:
        """Return the cards as HTML."""
        return cards_html(*(item.card() for item in self))
