"""Texts of documents, made fit to show on a page: hidden characters are visible, and texts are short."""

import re
from typing import Final

from etl.visible_text import HIDDEN

MAX_CHARS: Final = 700

_HIDDEN: Final = re.compile(f"[{HIDDEN}]")


def visible(text: object, max_chars: int = MAX_CHARS) -> str:
    """Return the first characters of a text, with those that cannot be seen as their code points.

    >>> visible("a" + chr(0) + chr(0x202E) + "b"), visible("abcdef", 3)
    ('a⟨U+0000⟩⟨U+202E⟩b', 'abc…')
    """
    shown = str(text)
    is_long = len(shown) > max_chars
    shown = _HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", shown[:max_chars])
    return f"{shown}…" if is_long else shown
