"""Find the prefixes, suffixes and infixes that spaCy's rules cut off a word.

A chunk is int64 (n + 1, [POINT, FLAG, BYTE]). The functions look at its characters from ``first`` up to
but not including ``last``, and return how many characters to cut off or cut out, or 0. The rules are facts
of spaCy 3.8 (MIT licence; ``spacy.lang.punctuation``, ``spacy.lang.char_classes``), in its order.

``rules`` is one of ``spacy_tables``. ANY_LANGUAGE differs from ENGLISH in one rule: a dash after a digit
is not cut out. GERMAN keeps words with hyphens and numbers with a full stop (``3.``). FRENCH cuts after an
elision (``l'homme``) and before a pronoun (``est-il``).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner
from etl.kernels.words.spacy_tables import (
    ALPHA,
    DIGIT,
    ENGLISH,
    FRENCH,
    GERMAN,
    ICON,
    LOWER,
    MONEY,
    PREFIX,
    PUNCT,
    QUOTE,
    SUFFIX,
    UPPER,
)

POINT, FLAG, BYTE = range(3)
"""Columns of the characters of a chunk: code point, flags of ``spacy_tables``, first byte."""

_DOT, _COMMA, _DASH, _PLUS, _DOLLAR = (ord(char) for char in ".,-+$")
_ELLIPSIS, _EM_DASH, _DEGREE = (ord(char) for char in "…—°")
_APOSTROPHES: Final = (ord("'"), ord("’"))
_S: Final = (ord("s"), ord("S"))
_US: Final = (ord("U"), ord("S"))
_AUSTRALIAN_OR_CANADIAN: Final = (ord("A"), ord("C"))
_OPERATORS: Final = tuple(ord(char) for char in "+-*^")  # between digits
_DASHES: Final = tuple(ord(char) for char in "-–—~")  # between words
_RELATIONS: Final = tuple(ord(char) for char in ":<>=/")  # before a word
_BEFORE_DOT: Final = tuple(ord(char) for char in "+-%²|")
_BEFORE_FRENCH_DOT: Final = tuple(ord(char) for char in "+-%²(?:)")
_ELIDED: Final = tuple(ord(char) for char in "dlnDLN")
_FRENCH_DASHES: Final = tuple(ord(char) for char in "-–—‐‑")
_GERMAN_INFIXES: Final = tuple(ord(char) for char in ",!?:<>=)]([")  # between letters
_SLASH, _PERCENT, _BACKTICK = (ord(char) for char in "/%`")
_SCALES: Final = tuple(ord(char) for char in "FCK")  # °F. °C. °K.


def _codes(words: str) -> tuple[int, ...]:
    """Return a number for each word of up to four characters: 16 bits each, the last character lowest."""
    return tuple(
        sum(ord(char) << 16 * k for k, char in enumerate(reversed(word))) for word in words.split()
    )


_UNITS: Final = _codes(
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
    "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² "
    "см³ мм мм² мм³ нм кг г мг м/с км/ч кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ كم كم² كم³ م "
    "م² م³ سم سم² سم³ مم مم² مم³ كم غرام جرام جم كغ ملغ كوب"
)
_FRENCH_PRONOUNS: Final = _codes(
    "ce clés elle en il ils je là moi nous on t vous CE CLÉS ELLE EN IL ILS JE LÀ MOI NOUS ON T VOUS"
)


@inner
def prefix(chunk: NDArray[np.int64], first: int, last: int, seen: int, rules: int) -> int:
    """Return the length of the prefix; ``seen`` has the flags of any character of the chunk."""
    point = chunk[first, POINT]
    if rules == GERMAN and point == _BACKTICK and last - first > 1:
        return 2 if chunk[first + 1, POINT] == _BACKTICK else 1
    if chunk[first, FLAG] & PREFIX:
        return 1
    if rules == FRENCH and last - first > 2 and point in _ELIDED:
        is_elision = chunk[first + 1, POINT] in _APOSTROPHES and chunk[first + 2, FLAG] & ALPHA
        return 2 if is_elision else 0
    if point == _DOT:
        # A run of full stops is cut off as one; a single one may begin ``.NET``.
        dots = _dots(chunk, first, last)
        return dots if dots > 1 else 0
    if point == _PLUS:
        # ``+49`` keeps its plus.
        return 0 if first + 1 < last and chunk[first + 1, FLAG] & DIGIT else 1
    if not seen & MONEY:
        return 0
    # ``A$5`` and ``US$5``: the currency ends at the second or third character.
    for k in range(first, min(first + 3, last)):
        if (
            chunk[k, POINT] == _DOLLAR
            and k > first
            and _dollars(chunk, first, k + 1) == k + 1 - first
        ):
            return k + 1 - first
    return 0


@inner
def suffix(chunk: NDArray[np.int64], first: int, last: int, seen: int, rules: int) -> int:
    """Return the length of the suffix; ``seen`` has the flags of any character of the chunk."""
    end = last - 1
    point, flag = chunk[end, POINT], chunk[end, FLAG]
    if point == _DOT:
        return _suffix_dots(chunk, first, last, rules)
    if point == _ELLIPSIS:
        return 2 if end > first and chunk[end - 1, POINT] == _ELLIPSIS else 1
    # German and French have other suffixes, but the same full stops.
    if rules >= GERMAN:
        return _own_suffix(chunk, first, last, rules)
    if flag & SUFFIX:
        return 1
    if end == first or flag & DIGIT:
        return 0
    if point in _S and chunk[end - 1, POINT] in _APOSTROPHES:
        return 2
    return _suffix_of_number(chunk, first, last) if seen & DIGIT else 0


@inner
def _own_suffix(chunk: NDArray[np.int64], first: int, last: int, rules: int) -> int:
    """Return the length of the suffix by the rules of German or French."""
    end = last - 1
    point, flag = chunk[end, POINT], chunk[end, FLAG]
    if rules == GERMAN:
        if point == _SLASH:
            return 1
        if point == _APOSTROPHES[0] and end > first and chunk[end - 1, POINT] == point:
            return 2
    if flag & (PUNCT | QUOTE) or (rules == GERMAN and flag & ICON):
        return 1
    if end == first or flag & DIGIT:
        return 0
    if rules == FRENCH and flag & ALPHA:
        pronoun = _pronoun(chunk, first, last)
        if pronoun:
            return pronoun
    return _suffix_of_number(chunk, first, last)


@inner
def _pronoun(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return the length of a dash and a French pronoun after a letter, or 0."""
    code = np.int64(0)
    # ``donne-t-il`` loses ``-il``, and then ``-t``. The code has the last character in its lowest 16
    # bits, as in _FRENCH_PRONOUNS, so it grows to the left with the length.
    for length in range(1, 5):
        dash = last - length - 1
        if dash <= first:
            return 0
        code |= np.int64(chunk[dash + 1, POINT]) << 16 * (length - 1)
        if chunk[dash, POINT] in _FRENCH_DASHES and chunk[dash - 1, FLAG] & ALPHA:
            for pronoun in _FRENCH_PRONOUNS:
                if pronoun == code:
                    return length + 1
            return 0
    return 0


@inner
def _suffix_of_number(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return the length of a plus, a currency or a unit after a digit, or 0."""
    end, code = last - 1, np.int64(0)
    dollars = _dollars(chunk, first, last)
    # Units have up to four characters, the last one in the lowest 16 bits of the code: ``km`` of ``5km``
    # is found at length 2, where a digit is before it.
    for length in range(1, 5):
        if end - length < first:
            return 0
        code |= np.int64(chunk[last - length, POINT]) << 16 * (length - 1)
        if not chunk[end - length, FLAG] & DIGIT:
            continue
        if length == dollars or (length == 1 and (code == _PLUS or chunk[end, FLAG] & MONEY)):
            return length
        for unit in _UNITS:
            if unit == code:
                return length
        return 0
    return 0


@inner
def _dollars(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return the length of ``A$``, ``C$`` or ``US$`` at the end, or 0."""
    k = last - 2
    if k < first or chunk[last - 1, POINT] != _DOLLAR:
        return 0
    if chunk[k, POINT] == _US[1] and k > first and chunk[k - 1, POINT] == _US[0]:
        return 3
    return 2 if chunk[k, POINT] in _AUSTRALIAN_OR_CANADIAN else 0


@inner
def _suffix_dots(chunk: NDArray[np.int64], first: int, last: int, rules: int) -> int:
    """Return how many full stops to cut off at the end: a run, or one after a sentence."""
    k = last - 1
    while k > first and chunk[k - 1, POINT] == _DOT:
        k -= 1
    if k < last - 1:
        return last - k
    if k == first:
        return 0
    point, flag = chunk[k - 1, POINT], chunk[k - 1, FLAG]
    # It ends a sentence after a small letter, a quote or a digit. A German ``3.`` may be an ordinal,
    # which keeps it.
    if flag & (LOWER | QUOTE) or (flag & DIGIT and rules != GERMAN):
        return 1
    if rules == FRENCH:
        if point in _BEFORE_FRENCH_DOT:
            return 1
    elif flag & PUNCT or point in _BEFORE_DOT:
        return 1
    # An initial (``J.``) keeps its full stop; ``USA.`` loses it.
    if k - 1 == first or not flag & UPPER:
        return 0
    is_scale = chunk[k - 2, POINT] == _DEGREE and point in _SCALES
    return 1 if is_scale or chunk[k - 2, FLAG] & UPPER else 0


@inner
def infix(chunk: NDArray[np.int64], first: int, k: int, last: int, rules: int) -> int:
    """Return the length of the infix that begins at ``k``."""
    point = chunk[k, POINT]
    if point == _DOT:
        dots = _dots(chunk, k, last)
        if dots > 1:
            return dots
    # Ellipses and icons need no neighbours; all other infixes are between two characters of the chunk.
    if point == _ELLIPSIS or chunk[k, FLAG] & ICON:
        return 1
    if k == first or k + 1 == last:
        return 0
    before, after = chunk[k - 1, FLAG], chunk[k + 1, FLAG]
    if rules == GERMAN:
        return _german_infix(chunk, k, last)
    if point == _DOT:
        # ``end.Next``, but not ``e.g``.
        return 1 if before & (LOWER | QUOTE) and after & (UPPER | QUOTE) else 0
    if point == _COMMA:
        return 1 if before & ALPHA and after & ALPHA else 0
    # ``3*4``, ``3*-4``.
    is_counted = before & DIGIT and (after & DIGIT or chunk[k + 1, POINT] == _DASH)
    if is_counted and point in _OPERATORS:
        return 1
    if not before & (ALPHA | DIGIT):
        return 0
    is_after_word = before & ALPHA or rules == ENGLISH
    if after & ALPHA:
        # ``and/or``, ``well-known``.
        return 1 if point in _RELATIONS or (point in _DASHES and is_after_word) else 0
    return _dashes(chunk, k, last) if is_after_word else 0


@inner
def _german_infix(chunk: NDArray[np.int64], k: int, last: int) -> int:
    """Return the length of the infix at ``k``, inside the chunk, by the rules of German."""
    point, before, after = chunk[k, POINT], chunk[k - 1, FLAG], chunk[k + 1, FLAG]
    if point == _DOT:
        return 1 if before & LOWER and after & UPPER else 0
    if point == _DASH:
        if before & DIGIT and after & DIGIT:
            return 1
        is_double = before & ALPHA and chunk[k + 1, POINT] == _DASH and k + 2 < last
        return 2 if is_double and chunk[k + 2, FLAG] & ALPHA else 0
    if point == _SLASH:
        return 1 if before & (ALPHA | DIGIT) and after & (ALPHA | DIGIT) else 0
    if not (before & ALPHA and after & ALPHA):
        return 0
    is_quote = chunk[k, FLAG] & QUOTE and point != _APOSTROPHES[0]
    return 1 if is_quote or point in _GERMAN_INFIXES else 0


@inner
def ends_elision(chunk: NDArray[np.int64], first: int, k: int) -> bool:
    """Return whether a French elision ends before the letter at ``k``: ``l'`` in ``l'homme``."""
    return bool(
        k - 2 >= first
        and chunk[k, FLAG] & ALPHA
        and chunk[k - 1, POINT] in _APOSTROPHES
        and chunk[k - 2, FLAG] & ALPHA
    )


@inner
def _dashes(chunk: NDArray[np.int64], k: int, last: int) -> int:
    """Return the length of ``--``, ``---`` or ``——`` between words, or 0."""
    point = chunk[k, POINT]
    most = 3 if point == _DASH else 2 if point == _EM_DASH else 0
    width = 1
    while width < most and k + width < last and chunk[k + width, POINT] == point:
        width += 1
    return width if width > 1 and k + width < last and chunk[k + width, FLAG] & ALPHA else 0


@inner
def _dots(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return how many full stops in a row begin at ``first``."""
    k = first
    while k < last and chunk[k, POINT] == _DOT:
        k += 1
    return k - first
