"""Small contents of input files with many duplicates in and across files, and edits of them.

A text is a member of a family: two texts of one family differ by at most one word, texts of two families by
nearly all of them. So the groups of duplicates of any rows are known without comparing texts.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tests.helpers.corpus import prose

_FAMILIES = 5
_WORDS = 150  # one other word among them leaves a similarity of 0.93

Edit = Literal["rewrite", "grow", "touch", "revert", "add", "delete"]
EDITS: tuple[Edit, ...] = (
    "rewrite",
    "rewrite",
    "rewrite",
    "grow",
    "touch",
    "revert",
    "add",
    "delete",
)


@dataclass(frozen=True)
class Text:
    """A text by its family and variant; without a family, a text too short to keep."""

    family: int | None
    variant: int = 0

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True)
class Row:
    """A row of an input file: its id, which no other content of any file uses, and its text."""

    id: str
    text: Text

    @property
    def record(self) -> dict[str, str | None]:
        """The row as the columns of the input file."""
        return {"doc_id": self.id, "body": str(self.text), "link": None}


Rows = tuple[Row, ...]
SHORT = Text(None)


def rows(name: str, texts: Sequence[Text]) -> Rows:
    """Return rows with the given texts; ``name`` is that of the content."""
    return tuple(Row(f"{name}-{number}", text) for number, text in enumerate(texts))


def random_rows(rng: random.Random, name: str) -> Rows:
    """Return three to five rows; their texts often occur in other contents, too."""
    return rows(name, [_random_text(rng) for _ in range(rng.randrange(3, 6))])


def grown(content: Rows, rng: random.Random, name: str) -> Rows:
    """Return rows with two more at the end."""
    return (*content, *rows(name, [_random_text(rng) for _ in range(2)]))


def _random_text(rng: random.Random) -> Text:
    if rng.random() < 0.15:
        return SHORT
    return Text(rng.randrange(_FAMILIES), int(rng.random() < 0.3))


@cache
def _text(text: Text) -> str:
    if text.family is None:
        return "too short to keep"
    words = prose(text.family, _WORDS).split()
    if text.variant:
        words[_WORDS // 2] = f"variant{text.variant}"
    return " ".join(words)
