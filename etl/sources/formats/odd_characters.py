"""Find characters that are unlikely where they are: they show that a text was decoded in the wrong encoding.

Odd are U+FFFD, and between letters: symbols, letters of Greek to Arabic scripts next to Latin ones, and
capitals after small letters. Only the first 4,096 characters outside ASCII are examined, together (0.2 ms).
"""

import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

_SAMPLE: Final = 4096  # characters outside ASCII that are examined
_BLOCK: Final = 1 << 16  # characters that are searched together
_IN_WORDS: Final = frozenset("’‘ʼʻ′·•‧‐‑–—…\xad\xb7\u0387\u200b\u200c\u200d")
# Greek to Arabic: letters that do not follow Latin ones in a word.
_OTHER_SCRIPTS: Final = (0x370, 0x6FF)
_EAST_ASIAN: Final = 0x2E80  # from here on, punctuation needs no spaces
_BAD: Final = 0xFFFD
_LETTER, _SYMBOL, _CAPITAL, _SMALL = 1, 2, 4, 8

_Points = npt.NDArray[np.uint32]


def odd_ratio(text: str) -> float:
    """Return the share of characters outside ASCII that are bad or odd; only the first are examined.

    >>> odd_ratio("Größe"), odd_ratio("GrÃ¶ÃŸe")
    (0.0, 0.5)
    """
    found: list[_Points] = []
    missing = _SAMPLE
    for start in range(0, max(len(text) - 2, 0), _BLOCK):
        block = text[start : start + _BLOCK + 2]
        if missing and not block.isascii():
            points = _points(block)
            at = np.flatnonzero(points[1:-1] > 0x7F)[:missing]
            found.append(np.stack((points[at], points[at + 1], points[at + 2])))
            missing -= len(at)
    return _mean_odd(np.concatenate([np.empty((3, 0), np.uint32), *found], axis=1))


def sample_bytes(content: bytes) -> bytes:
    """Return what ``odd_ratio`` examines of a text with one byte a character: each with its neighbours."""
    data = np.frombuffer(content, np.uint8)
    at = np.flatnonzero(data[1:-1] > 0x7F)[:_SAMPLE]
    return np.stack((data[at], data[at + 1], data[at + 2]), axis=1).tobytes()


def sampled_odd_ratio(text: str) -> float:
    """Return the ``odd_ratio`` of a text, given the decoded ``sample_bytes``."""
    return _mean_odd(_points(text).reshape(-1, 3).T)


def _points(text: str) -> _Points:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _mean_odd(triples: _Points) -> float:
    before, char, after = triples
    return float(np.mean(_are_odd(before, char, after))) if len(char) else 0.0


def _are_odd(before: _Points, char: _Points, after: _Points) -> npt.NDArray[np.bool_]:
    """Return whether characters outside ASCII are unlikely between two others."""
    flags = _flags()
    before_flags, kind, after_flags = (
        flags[np.minimum(points, _EAST_ASIAN)] for points in (before, char, after)
    )
    in_word = ((before_flags & _LETTER) | (before > 0x7F)).astype(bool)
    in_word &= ((after_flags & _LETTER) | (after > 0x7F)).astype(bool)
    first, last = _OTHER_SCRIPTS
    mixed = (char >= first) & (char <= last) & ((before <= 0x7F) | (after <= 0x7F))
    small = (before_flags & _SMALL).astype(bool)
    # Few capitals follow a character that the table does not have.
    beyond = np.flatnonzero((before >= _EAST_ASIAN) & (kind & _CAPITAL).astype(bool))
    small[beyond] = [chr(point).islower() for point in before[beyond].tolist()]
    odd = (kind & _SYMBOL).astype(bool)
    odd |= (kind & _LETTER).astype(bool) & (mixed | (small & (kind & _CAPITAL).astype(bool)))
    odd &= in_word
    odd |= char == _BAD
    return odd


@lru_cache(maxsize=1)
def _flags() -> npt.NDArray[np.uint8]:
    """Return the properties of each character before the East Asian ones, which have 0."""
    flags = [_flags_of(chr(point)) for point in range(_EAST_ASIAN)]
    return np.array([*flags, 0], np.uint8)


def _flags_of(char: str) -> int:
    if char in _IN_WORDS:
        return _SMALL * char.islower()
    if not char.isalpha():
        is_mark = unicodedata.category(char).startswith("M")
        return _SYMBOL * (not is_mark) + _SMALL * char.islower()
    return _LETTER + _CAPITAL * char.isupper() + _SMALL * char.islower()
