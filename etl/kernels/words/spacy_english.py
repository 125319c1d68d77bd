"""Look-up tables of spaCy's rules for English: character flags, contractions, abbreviations.

The facts are those of spaCy 3.8 (MIT licence; ``spacy.lang.char_classes``, ``spacy.lang.punctuation``,
``spacy.lang.en``), with Unicode's letters instead of its list of alphabets. The punctuation that does not
form words is that of datatrove 0.10.1 (Apache-2.0; ``datatrove.utils.text``).
"""

import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import product
from string import ascii_letters, digits
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes

# Bits of a character's flags.
ALPHA: Final = 1 << 0  # a letter or a combining mark
LOWER: Final = 1 << 1  # not a capital
UPPER: Final = 1 << 2  # not a small letter
QUOTE: Final = 1 << 3
PUNCT: Final = 1 << 4  # punctuation that is cut off at both ends
ICON: Final = 1 << 5  # symbols, emoji
MONEY: Final = 1 << 6
DIGIT: Final = 1 << 7  # 0 to 9
SPACE: Final = 1 << 8  # str.isspace
UNSPACED: Final = 1 << 9  # of a script without spaces
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

# A pronoun, question word or verb, also capitalized, and the endings that it takes, with or without their
# apostrophes.
_LIKE_WILL = "'ll 'll+'ve 'd 'd+'ve"
_CONTRACTIONS: Final = (
    ("i", "'m 'm+a"),
    ("i you he she it we they", _LIKE_WILL),
    ("i you we they", "'ve"),
    ("you we they", "'re"),
    ("he she it who what when where why how there that this", "'s"),
    ("who what when where why how there that this these those", _LIKE_WILL),
    ("who what when where why how there these those", "'re 've"),
    ("ca could do does did had may might must need ought sha should wo would", "n't n't+'ve"),
    ("could might must should would not", "'ve"),
    ("ai are is was were have has dare", "n't"),
)
_OTHER_WORDS: Final = frozenset("ill its hell shell shed were well whore".split())
_PARTS: Final = (
    "y'+all y+all how+'d+'y How+'d+'y can+not Can+not gon+na Gon+na got+ta Got+ta let+'s Let+'s "
    "c'm+on C'm+on °+c+. °+f+. °+k+. °+C+. °+F+. °+K+."
).split()
_WHOLE: Final = (
    "doin' goin' nothin' nuthin' ol' somethin' Doin' Goin' Nothin' Nuthin' Ol' Somethin' lovin' Lovin' "
    "havin' Havin' 'em 'll 'nuff 's 'S ‘s ‘S 're 'd 'cause 'Cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout "
    "and/or w/o ma'am Ma'am o'clock O'clock "
    "Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. "
    "Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. "
    "Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m. p.m. Adm. Bros. co. Co. "
    "Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. Mr. Mrs. "
    "Ms. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. ä. ö. ü. "
    "C++ \\t \\n ' '' \\\") <space> — "
    ":) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; "
    ":( :-( :(( :-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p "
    ":-p :O :-O :o :-o :0 :-0 :() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD "
    "8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O 0_o o_0 0_0 o.O "
    "O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*) (¬_¬)"
).split()

SPECIAL_BYTES: Final = 20
"""The size of the longest special."""

KEY, CUTS = range(2)
"""Columns of the table of specials: FNV-1a of the bytes, 0 in an empty slot; the number of code points of
each part, one byte each, the first part lowest."""

_SEED, _PRIME = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, 64 bits
_NUM_SLOTS: Final = 1 << 13


class SpacyTables(NamedTuple):
    """Lookup tables of the kernels."""

    classes: NDArray[np.uint8]  # (0x110000,) of etl.kernels.bytes.character_classes
    flags: NDArray[np.uint32]  # (0x110000,) of each code point
    specials: NDArray[np.int64]  # (n, [KEY, CUTS]) a hash table
    # The next three hold lengths in bytes, as a mask: bit n is set for length n.
    lengths: NDArray[np.int32]  # (1 << 14,) of specials by 7 bits of the first and the last byte
    of_letters: NDArray[np.int32]  # (1 << 10,) of specials of ASCII letters by 5 bits of each
    joined: NDArray[np.int64]  # (256,) of specials of one part by the first byte


@cache
def tables() -> SpacyTables:
    """Return all tables, read-only; built once per process in about 0.2 s."""
    table = np.zeros((_NUM_SLOTS, 2), np.int64)
    lengths, of_letters = np.zeros(1 << 14, np.int32), np.zeros(1 << 10, np.int32)
    joined = np.zeros(256, np.int64)
    for special, parts in specials().items():
        word = special.encode()
        lengths[(word[0] & 127) << 7 | word[-1] & 127] |= 1 << len(word)
        if word.isalpha():
            of_letters[(word[0] & 31) << 5 | word[-1] & 31] |= 1 << len(word)
        if len(parts) == 1 and not word.isalpha():
            joined[word[0]] |= 1 << len(word)
        key = _hash(word)
        slot = key >> 32 & _NUM_SLOTS - 1
        while table[slot, KEY] != 0:
            slot = slot + 1 & _NUM_SLOTS - 1
        table[slot] = key, sum(len(part) << 8 * k for k, part in enumerate(parts))
    arrays = SpacyTables(character_classes.classes(), _flags(), table, lengths, of_letters, joined)
    for array in arrays:
        array.flags.writeable = False
    return arrays


@cache
def specials() -> dict[str, tuple[str, ...]]:
    """Return the words that no rule splits correctly, with their parts.

    >>> specials()["can't"], specials()["6pm"], specials()["e.g."]
    (('ca', "n't"), ('6', 'pm'), ('e.g.',))
    """
    words = {"".join(parts): parts for parts in _listed()}
    words |= {  # with a typographic apostrophe
        word.replace("'", "’"): tuple(part.replace("'", "’") for part in parts)
        for word, parts in words.items()
    }
    assert all(len(word.encode()) <= SPECIAL_BYTES for word in words)
    return words


def _listed() -> Iterator[tuple[str, ...]]:
    """Yield the parts of each special, with plain apostrophes."""
    for words, endings in _CONTRACTIONS:
        for word, ending in product(words.split(), endings.split()):
            for parts in (ending.split("+"), ending.replace("'", "").split("+")):
                if "".join((word, *parts)) not in _OTHER_WORDS:
                    yield (word, *parts)
                    yield (word.title(), *parts)
    for hour, half in product(range(1, 13), ("am", "a.m.", "pm", "p.m.")):
        yield (str(hour), half)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        yield (f"{letter}.",)
    for whole in _WHOLE:
        yield (whole,)
    for whole_parts in _PARTS:
        yield tuple(whole_parts.split("+"))


def _hash(word: bytes) -> int:
    """Return FNV-1a as a signed 64-bit number."""
    key = _SEED
    for byte in word:
        key = (key ^ byte) * _PRIME & 0xFFFF_FFFF_FFFF_FFFF
    return key - (1 << 64) if key >> 63 else key


def _flags() -> NDArray[np.uint32]:
    """Return the flags of each code point: uint32 (0x110000,)."""
    table = np.zeros(character_classes.NUM_CODE_POINTS, np.uint32)
    of_category: dict[str, int] = {
        "Ll": LETTER | ALPHA | LOWER,
        "Lu": LETTER | ALPHA | UPPER,
        **dict.fromkeys(("Lt", "Lm", "Lo"), LETTER | ALPHA | LOWER | UPPER),
        **dict.fromkeys(("Mn", "Mc"), ALPHA | LOWER | UPPER),
        **dict.fromkeys(("Nd", "Nl", "No"), NUMBER),
        "So": ICON,
        **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), PUNCTUATION),
    }
    planes = map(unicodedata.category, map(chr, range(0x20000)))
    table[:0x20000] = [of_category.get(category, 0) for category in planes]
    table[0x20000:0x3FFFE] = of_category["Lo"]
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
    table[(classes == character_classes.UNIT) | (classes == character_classes.KATAKANA)] |= UNSPACED
    return table
