"""Recognize host names, and web and mail addresses, which spaCy does not cut.

spaCy 3.8 does not cut addresses (MIT licence; ``spacy.lang.tokenizer_exceptions``, after Diego Perini's
pattern for URLs): an optional scheme and user, a host name whose last label has no capitals, an optional
port and path. Numeric addresses are not recognized here.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner
from etl.kernels.words.spacy_affixes import FLAG, POINT
from etl.kernels.words.spacy_tables import ALPHA, DIGIT, HOST, LETTER, LOWER, NUMBER

_DOT, _COLON, _SLASH, _AT = (ord(char) for char in ".:/@")
_IN_SCHEME: Final = tuple(ord(char) for char in "_+-.")
_IN_LABEL: Final = tuple(ord(char) for char in "-_")
_PATH: Final = tuple(ord(char) for char in "/?#")
_MIN_SCHEME: Final = 2
_LABEL_CHARS, _MIN_TLD, _MAX_TLD = 64, 2, 63
_MIN_PORT, _MAX_PORT = 2, 5  # digits


@inner
def is_host(chunk: NDArray[np.int64], first: int, last: int) -> bool:
    """Return whether the characters of a chunk (see ``spacy_affixes``) are one address."""
    if _is_name(chunk, _after_scheme(chunk, first, last), last):
        return True
    for k in range(first + 1, last):
        if chunk[k, POINT] == _AT and _is_name(chunk, k + 1, last):
            return True
    return False


@inner
def _after_scheme(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return the index after ``https://``, or ``first``."""
    k = first
    while k < last and (chunk[k, FLAG] & (LETTER | NUMBER) or chunk[k, POINT] in _IN_SCHEME):
        k += 1
    is_scheme = (
        k - first >= _MIN_SCHEME
        and k + 2 < last
        and chunk[k, POINT] == _COLON
        and chunk[k + 1, POINT] == _SLASH
        and chunk[k + 2, POINT] == _SLASH
    )
    return k + 3 if is_scheme else first


@inner
def _is_name(chunk: NDArray[np.int64], first: int, last: int) -> bool:
    """Return whether characters are labels separated by dots, with an optional port and path."""
    labels, start, k = 0, first, first
    is_last = False  # the label has a letter above U+FFFF, as only the last may
    while k < last:
        point = chunk[k, POINT]
        if point == _DOT:
            # A label has 1 to 64 characters, and begins and ends with a letter or digit.
            if k == start or k - start > _LABEL_CHARS or is_last:
                return False
            if not (chunk[start, FLAG] & HOST and chunk[k - 1, FLAG] & HOST):
                return False
            labels, start = labels + 1, k + 1
        elif not (chunk[k, FLAG] & HOST or point in _IN_LABEL):
            if not (chunk[k, FLAG] & LOWER and chunk[k, FLAG] & ALPHA):
                break
            is_last = True
        k += 1
    # The last label is the top-level domain: small letters only, so that ``end.Next`` is not an address.
    if labels == 0 or not _MIN_TLD <= k - start <= _MAX_TLD:
        return False
    for j in range(start, k):
        if not chunk[j, FLAG] & LOWER or not chunk[j, FLAG] & ALPHA:
            return False
    k = _after_port(chunk, k, last)
    return k == last or chunk[k, POINT] in _PATH


@inner
def _after_port(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """Return the index after ``:8080``, or ``first``."""
    if first == last or chunk[first, POINT] != _COLON:
        return first
    k = first + 1
    while k < last and chunk[k, FLAG] & DIGIT:
        k += 1
    return k if _MIN_PORT <= k - first - 1 <= _MAX_PORT else first
