"""The columns that text takes on a terminal, and text in lines of at most so many columns."""

import textwrap
import unicodedata
from typing import Final

_WIDE: Final = frozenset("WF")  # of East Asian Width (UAX #11): two columns
_FILLER: Final = "\ufdd0"  # a noncharacter: the second column of a wide character


def text_width(text: str) -> int:
    """Return the number of columns of a text without control characters.

    >>> text_width("word"), text_width("語言"), text_width("e\u0301")
    (4, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut_text(text: str, width: int) -> str:
    """Return a text that is at most so wide, with dots for what is cut off.

    >>> cut_text("a long text", 8), cut_text("語言語言語言", 8), cut_text("text", 8)
    ('a lon...', '語言...', 'text')
    """
    if text_width(text) <= width:
        return text
    taken, end = 3, 0  # the dots
    for character in text:
        taken += _columns(character)
        if taken > width:
            break
        end += 1
    return f"{text[:end]}..."


def wrap_text(text: str, width: int, *, indent: str = "", breaks_words: bool = False) -> list[str]:
    """Return a text as lines between words, with ``indent`` before those after the first.

    Longer words stay as they are, to be copied, unless ``breaks_words`` is set.

    >>> wrap_text("two words", 6, indent="  "), wrap_text("語言語言", 4, breaks_words=True)
    (['two', '  words'], ['語言', '語言'])
    """
    filled = text if text.isascii() else "".join(c + _FILLER * (_columns(c) == 2) for c in text)
    lines = textwrap.wrap(
        filled,
        width,
        subsequent_indent=indent,
        break_long_words=breaks_words,
        break_on_hyphens=False,
    )
    return [line.replace(_FILLER, "") for line in lines] or [""]


def pad_text(text: str, width: int, *, is_number: bool = False) -> str:
    """Return a text with blanks after it, or before a number, up to a width.

    >>> pad_text("語言", 6), pad_text("12", 6, is_number=True)
    ('語言  ', '    12')
    """
    blanks = " " * (width - text_width(text))
    return blanks + text if is_number else text + blanks


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
