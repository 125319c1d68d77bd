"""Texts of documents, made fit to show: control and direction characters are visible, and texts are short."""

import re
from typing import Final

MAX_CHARS: Final = 700

# C0 and C1 controls except tab and line feed, surrogates, and marks that change the direction of other text.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def visible(text: object, max_chars: int = MAX_CHARS) -> str:
    """Return the first characters of a text, with those that cannot be seen as their code points.

    >>> visible("a" + chr(0) + chr(0x202E) + "b"), visible("abcdef", 3)
    ('a⟨U+0000⟩⟨U+202E⟩b', 'abc…')
    """
    shown = str(text)
    is_long = len(shown) > max_chars
    shown = _HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", shown[:max_chars])
    return f"{shown}…" if is_long else shown
