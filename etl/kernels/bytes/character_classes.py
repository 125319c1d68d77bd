"""Classes of code points for word segmentation, and simple case folding, as lookup tables.

The classes are the ``Word_Break`` values of Unicode's UAX #29, derived from the general categories of
``unicodedata`` and a few ranges, with these tailorings:

* white space (``str.isspace``, including the narrow no-break space) is never part of a word;
* each letter of a script without spaces (Han, Hiragana, Thai, Lao, Khmer, Myanmar ...) is a word;
* a zero-width joiner binds any symbol after it, not only ``Extended_Pictographic``;
* symbols composed of letters (circled, squared) and modifier symbols are symbols.

Classes follow the Unicode version of the running Python (``unicodedata.unidata_version``). Two versions
differ only in newly assigned characters.
"""

import sys
import unicodedata
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Invisible characters and separators: never part of a segment.
SPACE: Final = 0  # str.isspace, within a line
LINE: Final = 1  # where str.splitlines splits
BLANK: Final = 2  # control characters, zero-width space
# Segments of one character each.
OTHER: Final = 3  # punctuation, symbols, unassigned
SYMBOL: Final = 4  # category So: may follow a zero-width joiner
UNIT: Final = 5  # letter of a script without spaces: a word
NUMBER: Final = 6  # superscripts, fractions, circled numbers
REGIONAL: Final = 7  # two regional indicators make a flag
# Runs.
LETTER: Final = 8
HEBREW: Final = 9
DIGIT: Final = 10
KATAKANA: Final = 11
JOINER: Final = 12  # connector punctuation: the underscore
# Part of a word or number between letters or digits, else OTHER.
MID_LETTER: Final = 13  # colon, middle dot
MID_NUMBER: Final = 14  # comma, semicolon
MID_BOTH: Final = 15  # full stop, right single quotation mark
SINGLE_QUOTE: Final = 16
DOUBLE_QUOTE: Final = 17
# Attached to the preceding character.
MARK: Final = 18  # combining marks, emoji modifiers
FORMAT: Final = 19  # soft hyphen, directional marks
ZWJ: Final = 20

NUM_CLASSES: Final = 21
NUM_CODE_POINTS: Final = sys.maxunicode + 1

_LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # str.splitlines

_OF_CATEGORY = {
    **dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl"), LETTER),
    **dict.fromkeys(("Mn", "Mc", "Me"), MARK),
    "Nd": DIGIT,
    "No": NUMBER,
    "Pc": JOINER,
    "So": SYMBOL,
    "Cc": BLANK,
    "Cf": FORMAT,
}

# UAX #29, table 3: exceptions to the categories.
_OF_CHARACTERS = {
    MID_LETTER: ":·\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a",
    MID_NUMBER: ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b",
    MID_BOTH: ".\u2018\u2019\u2024\ufe52\uff07\uff0e",
    SINGLE_QUOTE: "'",
    DOUBLE_QUOTE: '"',
    DIGIT: "\u066b",  # Arabic decimal separator
    BLANK: "\u200b",
    ZWJ: "\u200d",
    KATAKANA: "\u309b\u309c",
    LETTER: "\u055a\u055b\u055c\u055e\u058a\u05f3",  # Armenian marks, Hebrew geresh
    MARK: "\uff9e\uff9f",  # voiced sound marks of half-width Katakana
}

# Letters (category L or N) in these ranges have this class instead. Scripts by block.
_LETTERS_OF_BLOCK = {
    HEBREW: ((0x0590, 0x05FF), (0xFB1D, 0xFB4F)),
    KATAKANA: (
        *((0x3031, 0x3035), (0x30A0, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D)),
        *((0x1AFF0, 0x1B000), (0x1B120, 0x1B122), (0x1B155, 0x1B155), (0x1B164, 0x1B167)),
    ),
    UNIT: (
        *((0x0E00, 0x0E7F), (0x0E80, 0x0EFF)),  # Thai, Lao
        *((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),  # Myanmar
        *((0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF)),  # Khmer, Tai Le, Tai Lue, Tai Tham
        *((0xAA80, 0xAADF), (0x11700, 0x1174F)),  # Tai Viet, Ahom
        *((0x3041, 0x309F), (0x1B001, 0x1B11F), (0x1B150, 0x1B152)),  # Hiragana
        *((0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303A)),  # ideographic marks, numerals
        *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD)),  # Han
        *((0x16FE4, 0x16FE4), (0x17000, 0x18DFF), (0x1B170, 0x1B2FF)),  # Tangut, Khitan, Nüshu
    ),
}

_FIRST_WITHOUT_NAMES = 0x20000  # above: ideographs, then tags and variation selectors of plane 14


@cache
def classes() -> NDArray[np.uint8]:
    """Return the class of each code point: uint8 (0x110000,), read-only; built once in about 30 ms."""
    table = np.full(NUM_CODE_POINTS, OTHER, np.uint8)
    planes = map(chr, range(_FIRST_WITHOUT_NAMES))
    table[:_FIRST_WITHOUT_NAMES] = [
        _OF_CATEGORY.get(category, OTHER) for category in map(unicodedata.category, planes)
    ]
    table[0x20000:0x3FFFE] = LETTER
    table[0xE0000:0xE0080] = FORMAT  # tags
    table[0xE0100:0xE01F0] = MARK  # variation selectors
    for kind, ranges in _LETTERS_OF_BLOCK.items():
        for first, last in ranges:
            block = table[first : last + 1]
            block[block == LETTER] = kind
    table[0x1F1E6:0x1F200] = REGIONAL
    table[0x1F3FB:0x1F400] = MARK  # skin tones
    for kind, characters in _OF_CHARACTERS.items():
        table[[ord(char) for char in characters]] = kind
    spaces = [point for point in range(0x3001) if chr(point).isspace()]
    table[spaces] = SPACE
    table[[ord(char) for char in _LINE_BREAKS]] = LINE
    table.flags.writeable = False
    return table


@cache
def folds() -> NDArray[np.int32]:
    """Return the simple case folding of each code point: int32 (0x20000,), read-only.

    One code point maps to one: "ß" remains, and does not become "ss". No code point above has case.
    """
    points = range(_FIRST_WITHOUT_NAMES)
    folded = [chr(point).casefold() for point in points]
    pairs = zip(points, folded, strict=True)
    table = np.array([ord(to) if len(to) == 1 else point for point, to in pairs], np.int32)
    table.flags.writeable = False
    return table
