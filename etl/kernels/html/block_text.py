"""Count the characters of a block of text by kind, for texts in any language."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner, rare

# The counts of a byte are the digits of one number, in a base that no sum of 255 bytes exceeds.
_BITS: Final = 9
_CHUNK: Final = 255
_LENGTH, _SPACES, _STOPS, _COMMAS, _CAPITALS, _DIGITS, _SIGNS = range(0, 7 * _BITS, _BITS)


def _counts_of_bytes() -> NDArray[np.int64]:
    counts = np.zeros(256, np.int64)
    for byte in range(128):
        char = chr(byte)
        kinds = {
            _LENGTH: True,
            _SPACES: char.isspace(),
            _STOPS: char in ".!?",
            _COMMAS: char in ",;",
            _CAPITALS: char.isupper(),
            _DIGITS: char.isdigit(),
            _SIGNS: char in "|/>",
        }
        counts[byte] = sum(1 << shift for shift, has in kinds.items() if has)
    counts[0xC0:] = 1
    counts[0xE3:0xEE] = 2  # Chinese, Japanese, Korean: as long as two letters
    return counts


_COUNTS: Final = _counts_of_bytes()
# Bytes that begin punctuation of other scripts, or letters of scripts without spaces.
_BEGINS_OTHER: Final = np.zeros(256, np.bool_)
_BEGINS_OTHER[[0xC2, 0xD8, 0xE0, 0xE3, 0xEF]] = True
_BEGINS_WIDE: Final = np.array([0xE3 <= byte <= 0xED for byte in range(256)])
_CLOSES: Final = np.array([chr(byte) in '.!?:"' for byte in range(256)])


class CharacterCounts(NamedTuple):
    """What a block has: numbers of characters; East Asian letters count twice."""

    length: int  # at least 1
    words: int  # at least 1
    stops: int  # that end sentences
    commas: int
    capitals: int
    digits: int
    signs: int  # such as those between the links of a menu


@inner
def count_characters(text: NDArray[np.uint8], start: int, stop: int) -> CharacterCounts:
    """Count the characters of a block; where words are not separated, their number is estimated."""
    length = spaces = stops = commas = capitals = digits = signs = 0
    wide = thai = 0
    for first in range(start, stop, _CHUNK):
        packed = np.int64(0)
        for k in range(first, min(first + _CHUNK, stop)):
            byte = text[k]
            packed += _COUNTS[byte]
            if byte >= 0xC2:
                wide += _BEGINS_WIDE[byte]
                if _BEGINS_OTHER[byte]:
                    kind = _kind_of_other(text, k, stop)
                    stops, commas, signs = (
                        stops + (kind == 1),
                        commas + (kind == 2),
                        signs + (kind == 3),
                    )
                    thai += kind == 4
        length += packed & 511
        spaces += packed >> _SPACES & 511
        stops += packed >> _STOPS & 511
        commas += packed >> _COMMAS & 511
        capitals += packed >> _CAPITALS & 511
        digits += packed >> _DIGITS & 511
        signs += packed >> _SIGNS & 511
    words = 1 + spaces + wide // 2 + thai // 4
    if 2 * thai > length:
        commas += spaces  # in Thai, a space separates clauses
    return CharacterCounts(max(length, 1), words, stops, commas, capitals, digits, signs)


@rare
def _kind_of_other(text: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the kind of a character: 1 ends a sentence, 2 is a comma, 3 a sign, 4 a letter of Thai."""
    lead = np.int64(text[at])
    second = np.int64(text[at + 1]) if at + 1 < stop else 0
    third = np.int64(text[at + 2]) if at + 2 < stop else 0
    kind = 0
    if lead == 0xC2:  # a copyright sign, or a closing guillemet
        kind = 3 * (second == 0xA9 or second == 0xBB)
    elif lead == 0xD8:  # Arabic
        kind = 2 * (second == 0x8C or second == 0x9B) + (second == 0x9F)
    elif lead == 0xE0:  # Thai; a danda
        kind = 4 * (second == 0xB8 or second == 0xB9) + (second == 0xA5 and 0xA4 <= third <= 0xA5)
    elif lead == 0xE3 and second == 0x80:  # an ideographic full stop or comma
        kind = 2 * (third == 0x81) + (third == 0x82)
    elif lead == 0xEF and second == 0xBC:  # fullwidth ! ? , ;
        kind = 2 * (third == 0x8C or third == 0x9B) + (third == 0x81 or third == 0x9F)
    return kind


@inner
def ends_sentence(text: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Return whether a block ends as a sentence does: with a stop, a colon or a closing quotation mark."""
    last = text[stop - 1]
    if last < 128:
        return bool(_CLOSES[last])
    return _ends_other(text, start, stop)


@rare
def _ends_other(text: NDArray[np.uint8], start: int, stop: int) -> bool:
    last, before = np.int64(text[stop - 1]), np.int64(text[stop - 2]) if stop - start > 1 else 0
    first = np.int64(text[stop - 3]) if stop - start > 2 else 0
    ends = (before == 0xC2 and last == 0xBB) or (before == 0xD8 and last == 0x9F)
    if first == 0xE2 and before == 0x80:  # closing quotation marks, an ellipsis
        ends = last == 0x9D or last == 0x9C or last == 0xA6
    elif first == 0xE3 and before == 0x80:  # a full stop, closing brackets
        ends = last == 0x82 or last == 0x8D or last == 0x8F
    elif first == 0xE0 and before == 0xA5:
        ends = last == 0xA4
    elif first == 0xEF and before == 0xBC:
        ends = last == 0x81 or last == 0x9F
    return bool(ends)
