"""Look-up tables of spaCy's rules, by language: character flags and special words.

The facts are from spaCy 3.8 (MIT licence; ``spacy.lang.char_classes``, ``spacy.lang.punctuation``). The
punctuation that does not form words is listed in datatrove 0.10.1 (Apache-2.0; ``datatrove.utils.text``).

English, German, French and Russian have rules of their own, other languages those that spaCy applies in any
language (``spacy.blank("xx")``). The rules of an unknown language are the English ones, as in datatrove,
except for scripts without spaces.
"""

import unicodedata
from functools import cache
from string import ascii_letters, digits
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.words.spacy_specials import LANGUAGES, specials

UNKNOWN: Final = "unknown"
"""The rules for documents of unknown language."""

OTHER: Final = "xx"
"""spaCy's name for the rules that hold in any language."""

ENGLISH, ANY_LANGUAGE, GERMAN, FRENCH = range(4)
"""Sets of rules (``etl.kernels.words.spacy_affixes``). Russian has the rules ANY_LANGUAGE."""

# Bits of a character's flags.
ALPHA: Final = 1 << 0  # in one of spaCy's alphabets
LOWER: Final = 1 << 1  # not a capital
UPPER: Final = 1 << 2  # not a small letter
QUOTE: Final = 1 << 3
PUNCT: Final = 1 << 4  # punctuation that is cut off at both ends
ICON: Final = 1 << 5  # symbols, emoji
MONEY: Final = 1 << 6
DIGIT: Final = 1 << 7  # 0 to 9
SPACE: Final = 1 << 8  # str.isspace
UNSPACED: Final = 1 << 9  # of a script without spaces, which the rules do not cut
NO_WORD: Final = 1 << 10  # punctuation that alone does not form a word
LETTER: Final = 1 << 11  # str.isalpha
PREFIX: Final = 1 << 12  # cut off at the start
SUFFIX: Final = 1 << 13  # cut off at the end
HOST: Final = 1 << 14  # at either end of a label of a host name
DOT: Final = 1 << 15  # a full stop
SENTENCE_END: Final = 1 << 16  # of SENTENCE_ENDS
PUNCTUATION: Final = 1 << 17  # Unicode's categories P
NUMBER: Final = 1 << 18  # Unicode's categories N

_PUNCT: Final = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪"
_QUOTES: Final = "'\",”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧"
_MONEY: Final = "$£€¥฿₽﷼₴" + "".join(map(chr, range(0x20A0, 0x20C0)))
_NO_WORD: Final = (
    "!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[=-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»"
    + "".join(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
)

_CASED: Final = (
    *((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BF), (0x1C4, 0x2AF)),
    *((0x386, 0x386), (0x388, 0x38A), (0x38C, 0x38C), (0x38E, 0x38F), (0x391, 0x3A9)),
    *((0x3AC, 0x3AF), (0x3B1, 0x3C9), (0x3CC, 0x3CE), (0x400, 0x401), (0x403, 0x40A)),
    *((0x40C, 0x40D), (0x410, 0x451), (0x453, 0x45A), (0x45C, 0x45D), (0x490, 0x491)),
    *((0x496, 0x497), (0x4A2, 0x4A3), (0x4AE, 0x4AF), (0x4BA, 0x4BB), (0x4D8, 0x4D9)),
    *((0x4E8, 0x4E9), (0x1D00, 0x1D25), (0x1D6B, 0x1D77), (0x1D79, 0x1D9A), (0x1E00, 0x1EFF)),
    *((0x2C60, 0x2C7B), (0x2C7E, 0x2C7F), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E)),
    *((0xA790, 0xA7B9), (0xA7FA, 0xA7FA), (0xAB30, 0xAB5A), (0xAB60, 0xAB64), (0xFF21, 0xFF3A)),
    (0xFF41, 0xFF5A),
)
"""spaCy's alphabets with case, as ranges: Latin, Greek, Cyrillic."""

_UNCASED: Final = (
    *((0x294, 0x294), (0x591, 0x5F4), (0x620, 0x64A), (0x66E, 0x6D5), (0x6E5, 0x6FF)),
    *((0x750, 0x77F), (0x8A0, 0x8BD), (0x900, 0x9FF), (0xB80, 0xCFF), (0xD80, 0xDFF)),
    *((0x1100, 0x137F), (0x2E80, 0x2FDF), (0x2FF0, 0x30FF), (0x31C0, 0x31EF), (0x3200, 0x4DBF)),
    *((0x4E00, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF), (0xFB1D, 0xFBB1), (0xFBD3, 0xFD3D)),
    *((0xFD50, 0xFDC7), (0xFDF0, 0xFDFB), (0xFE30, 0xFE4F), (0xFE70, 0xFEFC)),
    *((0x1EE00, 0x1EEBB), (0x1F200, 0x1F2FF), (0x20000, 0x2A6DF), (0x2A700, 0x2EBEF)),
    (0x2F800, 0x2FA1F),
)
"""spaCy's alphabets without case, as ranges: whole blocks, with their digits and punctuation."""

_STRESS_MARKS: Final = ((0x300, 0x36F),)
"""Combining marks, which are part of words in spaCy's rules for Russian."""

SENTENCE_ENDS: Final = (
    *((0x21, 0x21), (0x2E, 0x2E), (0x3F, 0x3F), (0x589, 0x589), (0x61D, 0x61F), (0x6D4, 0x6D4)),
    *((0x700, 0x702), (0x7F9, 0x7F9), (0x837, 0x837), (0x839, 0x839), (0x83D, 0x83E)),
    *((0x964, 0x965), (0x104A, 0x104B), (0x1362, 0x1362), (0x1367, 0x1368), (0x166E, 0x166E)),
    *((0x1735, 0x1736), (0x17D4, 0x17D6), (0x17D9, 0x17DA), (0x1803, 0x1803), (0x1809, 0x1809)),
    *((0x1944, 0x1945), (0x1AA8, 0x1AAB), (0x1B5A, 0x1B5B), (0x1B5E, 0x1B5F), (0x1B7D, 0x1B7E)),
    *((0x1C3B, 0x1C3C), (0x1C7E, 0x1C7F), (0x203C, 0x203D), (0x2047, 0x2049), (0x2E2E, 0x2E2E)),
    *((0x2E3C, 0x2E3C), (0x2E53, 0x2E54), (0x3002, 0x3002), (0xA4FF, 0xA4FF), (0xA60E, 0xA60F)),
    *((0xA6F3, 0xA6F3), (0xA6F7, 0xA6F7), (0xA876, 0xA877), (0xA8CE, 0xA8CF), (0xA92F, 0xA92F)),
    *((0xA9C8, 0xA9C9), (0xAA5D, 0xAA5F), (0xAAF0, 0xAAF1), (0xABEB, 0xABEB), (0xFE52, 0xFE52)),
    *((0xFE56, 0xFE57), (0xFF01, 0xFF01), (0xFF0E, 0xFF0E), (0xFF1F, 0xFF1F), (0xFF61, 0xFF61)),
    *((0x10A56, 0x10A57), (0x10F55, 0x10F59), (0x10F86, 0x10F89), (0x11047, 0x11048)),
    *((0x110BE, 0x110C1), (0x11141, 0x11143), (0x111C5, 0x111C6), (0x111CD, 0x111CD)),
    *((0x111DE, 0x111DF), (0x11238, 0x11239), (0x1123B, 0x1123C), (0x112A9, 0x112A9)),
    *((0x1144B, 0x1144C), (0x115C2, 0x115C3), (0x115C9, 0x115D7), (0x11641, 0x11642)),
    *((0x1173C, 0x1173E), (0x11944, 0x11944), (0x11946, 0x11946), (0x11A42, 0x11A43)),
    *((0x11A9B, 0x11A9C), (0x11C41, 0x11C42), (0x11EF7, 0x11EF8), (0x11F43, 0x11F44)),
    *((0x16A6E, 0x16A6F), (0x16AF5, 0x16AF5), (0x16B37, 0x16B38), (0x16B44, 0x16B44)),
    *((0x16E98, 0x16E98), (0x1BC9F, 0x1BC9F), (0x1DA88, 0x1DA88)),
)
"""Characters that end a sentence, as ranges: Unicode 15's ``Sentence_Terminal`` (PropList.txt) and three
Khmer signs, as in datatrove 0.10.1."""

KEY, CUTS = range(2)
"""Columns of the table of specials: FNV-1a of the bytes, 0 in an empty slot; the number of code points of
each part, one byte each, the first part lowest."""

MARKED: Final = 32
"""The bits of ``SpacyTables.plain`` for specials without a mark."""

_SEED, _PRIME = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, 64 bits
_NUM_SLOTS: Final = 1 << 13


class SpacyTables(NamedTuple):
    """Lookup tables of the kernels."""

    classes: NDArray[np.uint8]  # (0x110000,) of etl.kernels.bytes.character_classes
    flags: NDArray[np.uint32]  # (0x110000,) of each code point
    specials: NDArray[np.int64]  # (n, [KEY, CUTS]) a hash table
    # The next three hold lengths in bytes, as a mask: bit n is set for length n.
    lengths: NDArray[np.int32]  # (1 << 14,) of specials by 7 bits of the first and the last byte
    plain: NDArray[np.int64]  # (1 << 10,) of specials of letters and digits by 5 bits of each; from
    # bit MARKED on, lengths of specials with a mark at their end, counted without it
    joined: NDArray[np.int64]  # (256,) of specials of one part by the first byte
    rules: int  # ENGLISH, ...


def rules_of(language: str | None) -> str:
    """Return the language whose rules split the words of a language (None: unknown).

    >>> rules_of("de"), rules_of("es"), rules_of(None)
    ('de', 'xx', 'unknown')
    """
    if language is None:
        return UNKNOWN
    return language if language in LANGUAGES else OTHER


@cache
def tables(rules: str = UNKNOWN) -> SpacyTables:
    """Return the tables of a language of ``rules_of``, read-only; built once per process in about 0.2 s."""
    table = np.zeros((_NUM_SLOTS, 2), np.int64)
    lengths, plain = np.zeros(1 << 14, np.int32), np.zeros(1 << 10, np.int64)
    joined = np.zeros(256, np.int64)
    language = "en" if rules == UNKNOWN else rules
    for special, parts in specials(language).items():
        word = special.encode()
        # Nearly all chunks are not special. Before the hash table, small tables exclude them: by the
        # first and last byte and the length, and for chunks of letters and digits by 5 bits of each,
        # where a mark at the end is not counted.
        lengths[(word[0] & 127) << 7 | word[-1] & 127] |= 1 << len(word)
        core = special if special.isalnum() else special[:-1]
        if core.isalnum():
            ends = (word[0] & 31) << 5 | core.encode()[-1] & 31
            plain[ends] |= 1 << len(core.encode()) + (0 if core == special else MARKED)
        if len(parts) == 1 and not word.isalpha():
            joined[word[0]] |= 1 << len(word)
        key = _hash(word)
        # Open addressing: a special is in the first free slot from its own on.
        slot = key >> 32 & _NUM_SLOTS - 1
        while table[slot, KEY] != 0:
            slot = slot + 1 & _NUM_SLOTS - 1
        # The lengths of the parts, from the lowest byte on: ``do`` and ``n't`` are 0x0302.
        table[slot] = key, sum(len(part) << 8 * k for k, part in enumerate(parts))
    arrays = (character_classes.classes(), _flags(rules), table, lengths, plain, joined)
    for array in arrays:
        array.flags.writeable = False
    return SpacyTables(
        *arrays, {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}.get(language, ANY_LANGUAGE)
    )


def _hash(word: bytes) -> int:
    """Return FNV-1a as a signed 64-bit number."""
    key = _SEED
    for byte in word:
        key = (key ^ byte) * _PRIME & 0xFFFF_FFFF_FFFF_FFFF
    return key - (1 << 64) if key >> 63 else key


def _flags(rules: str) -> NDArray[np.uint32]:
    """Return the flags of each code point: uint32 (0x110000,)."""
    table = np.zeros(character_classes.NUM_CODE_POINTS, np.uint32)
    of_category: dict[str, int] = {
        **dict.fromkeys(("Ll", "Lu", "Lt", "Lm", "Lo"), LETTER),
        **dict.fromkeys(("Nd", "Nl", "No"), NUMBER),
        "So": ICON,
        **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), PUNCTUATION),
    }
    categories = [unicodedata.category(chr(point)) for point in range(0x20000)]
    table[:0x20000] = [of_category.get(category, 0) for category in categories]
    # Planes 2 and 3 have Chinese characters only.
    table[0x20000:0x3FFFE] = LETTER
    for first, last in _CASED:
        for point in range(first, last + 1):
            case = {"Ll": LOWER, "Lu": UPPER}.get(categories[point], 0)
            table[point] |= ALPHA | case
    for first, last in (*_UNCASED, *(_STRESS_MARKS if rules == "ru" else ())):
        table[first : last + 1] |= ALPHA | LOWER | UPPER
    table[0xA1:0x10000] |= HOST
    table[[ord(char) for char in digits + ascii_letters]] |= HOST
    table[ord("0") : ord("9") + 1] |= DIGIT
    for characters, flag in (
        (_PUNCT, PUNCT | PREFIX | SUFFIX),
        (_QUOTES, QUOTE | PREFIX | SUFFIX),
        (_MONEY, MONEY | PREFIX),
        ("§%=", PREFIX),
        ("—–", PREFIX | SUFFIX),
        (".", DOT),
        (_NO_WORD, NO_WORD),
    ):
        table[[ord(char) for char in characters]] |= flag
    table[(table & ICON) > 0] |= PREFIX | SUFFIX
    for first, last in SENTENCE_ENDS:
        table[first : last + 1] |= NO_WORD | SENTENCE_END
    classes = character_classes.classes()
    table[(classes == character_classes.SPACE) | (classes == character_classes.LINE)] |= SPACE
    # The rules of the four languages keep such characters in one word, as spaCy does; for other
    # languages, each is a word.
    if rules not in LANGUAGES:
        is_unspaced = (classes == character_classes.UNIT) | (classes == character_classes.KATAKANA)
        table[is_unspaced] |= UNSPACED
    return table
