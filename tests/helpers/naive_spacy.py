"""spaCy's rules as regular expressions, by language."""

import re
import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np

from etl.kernels.bytes import character_classes as u
from etl.kernels.words.spacy import (
    HAS_LETTER,
    IS_WORD,
    MAX_CHARS,
    ChunkBuffers,
    new_chunk_buffers,
)
from etl.kernels.words.spacy_specials import LANGUAGES, specials
from etl.kernels.words.spacy_tables import NO_WORD, UNKNOWN, UNSPACED, tables
from tests.helpers.naive_uax29 import segments as unicode_segments

TABLES = tables()

# Pieces that the rules treat: punctuation, host names, units, specials.
PIECES = """
    . .. ... … , : ; ! ? ( ) [ ] { } < > _ # * & ' " ” “ ` ‘ ´ ’ » « - – — -- --- —— ~ + ^ / = | % ² ³ § @
    ° °C °f. $ £ € US$ C$ A$ S$ \\ \\n 's 'S ’s ’S 're n't 'll 'd 'em a b A B ab AB é É 1 12 3.14 0.0 km m²
    km² m/s km/h kg % GB T G. a. b. x.Y b.C can't don’t he's it's cannot gonna cant id id. and/or w/o e.g.
    i.e. U.S. N.Y. Ph.D. Mr. Jan. Messrs. 6pm 6p.m. 12a.m. :) :-( :))) ;) :* :/ ): <3 xD o.O ^_^ -_- ''
    <space> C++ http:// ab:// https://a.bc www.example.com foo.bar/x?y=z#q @x.org a@b.com :8080 /path ?q=1
    l'a d’ab qu'ab aujourd'hui est-il ab-t-on ab-là 3. z.B. т.д. 5км ա. ક. 3-D a/b 3/4 a--b `` a!b a(b -ce
    co.uk a-b.cd x_y -5% 1,000 a,b a:b a=b b>c 5+3 1-2 1*2 2^3 +1 +a 😀 © ™ ❤️ 🇩🇪 👩‍👧 → ß ж Ж
    ж. И. א ب ٣ ½ · ، 。 「 」 \u0301 \u200b \u200d \ufeff \xad \x00 東 京。 カ ส วั ดี 漢字 𠀀 漢.𠀀あ a.漢
""".split()


@cache
def room(language: str = UNKNOWN) -> ChunkBuffers:
    """Buffers for the rules of a language, which remember the chunks of earlier texts."""
    return new_chunk_buffers()


def category(point: int) -> str:
    return "Lo" if 0x20000 <= point < 0x3FFFE else unicodedata.category(chr(point))


def one_of(*categories: str) -> str:
    """A character class of ``re``, without brackets: all characters of some categories."""
    points = [k for k in range(0x40000) if category(k) in categories]
    ends = [0, *(k for k in range(1, len(points)) if points[k] != points[k - 1] + 1), len(points)]
    return "".join(f"\\U{points[a]:08x}-\\U{points[b - 1]:08x}" for a, b in pairwise(ends))


# The alphabets of spacy.lang.char_classes.
CASED = (
    "A-Za-zÀ-ÖØ-öø-ƿǄ-ʯΆΈ-ΊΌΎΏΑ-Ωά-ία-ωό-ώЀЁЃ-ЊЌЍА-ёѓ-њќѝҐґҖҗҢңҮүҺһӘәӨө"
    "\u1d00-\u1d25\u1d6b-\u1d77\u1d79-\u1d9aḀ-ỿ\u2c60-\u2c7b\u2c7e\u2c7f\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\ua790-\ua7b9\ua7fa\uab30-\uab5a\uab60-\uab64Ａ-Ｚａ-ｚ"
)
CASELESS = (  # match rules for small and for capital letters
    "ʔ\u0591-\u05f4\u0620-\u064a\u066e-\u06d5\u06e5-\u06ff\u0750-\u077f\u08a0-\u08bd\u0900-\u09ff"
    "\u0b80-\u0cff\u0d80-\u0dff\u1100-\u137f\u2e80-\u2fdf\u2ff0-\u30ff\u31c0-\u31ef\u3200-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\ufb1d-\ufbb1\ufbd3-\ufd3d\ufd50-\ufdc7\ufdf0-\ufdfb"
    "\ufe30-\ufe4f\ufe70-\ufefc\U0001ee00-\U0001eebb\U0001f200-\U0001f2ff\U00020000-\U0002a6df"
    "\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
)


def of_case(name: str) -> str:
    """The letters with case that are of a category, as a character class without brackets."""
    letters = (char for char in map(chr, range(0x10000)) if re.match(f"[{CASED}]", char))
    return "".join(char for char in letters if unicodedata.category(char) == name)


SMALL, CAPITAL = of_case("Ll") + CASELESS, of_case("Lu") + CASELESS
ANY, ICONS = CASED + CASELESS, one_of("So")
PUNCTUATION = re.escape("…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪")
QUOTES = re.escape("'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧")
MONEY = re.escape("$£€¥฿₽﷼₴" + "".join(map(chr, range(0x20A0, 0x20C0))))

UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
    "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ "
    "мм мм² мм³ нм кг г мг м/с км/ч кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ كم كم² كم³ م م² م³ سم سم² "
    "سم³ مم مم² مم³ غرام جرام جم كغ ملغ كوب"
).replace(" ", "|")

NUMBER_SUFFIX = rf"(?<=[0-9])(?:\+|US\$|[AC]\$|[{MONEY}]|{UNITS})"
CAPITAL_DOT = rf"(?<=[{CAPITAL}][{CAPITAL}])\.|(?<=°[FCK])\."
HYPHENS, PRONOUNS = "-–—‐‑", "ce|clés|elle|en|il|ils|je|là|moi|nous|on|t|vous"
PREFIX = rf"\.\.+|US\$|[AC]\$|\+(?![0-9])|[§%=—–{PUNCTUATION}{QUOTES}{MONEY}{ICONS}]"
SUFFIX = (
    rf"\.\.+|……|['’][sS]|[—–{PUNCTUATION}{QUOTES}{ICONS}]|{NUMBER_SUFFIX}"
    rf"|(?<=[0-9{SMALL}{PUNCTUATION}{QUOTES}%²\-+|])\.|{CAPITAL_DOT}"
)
INFIX = (
    rf"\.\.+|…|[{ICONS}]|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[{SMALL}{QUOTES}])\.(?=[{CAPITAL}{QUOTES}])"
    rf"|(?<=[{ANY}]),(?=[{ANY}])|(?<=[{ANY}])(?:-|–|—|--|---|——|~)(?=[{ANY}])|(?<=[{ANY}0-9])[:<>=/](?=[{ANY}])"
)
GERMAN_QUOTES = QUOTES.replace("'", "")
STRESSED = ANY + "\u0300-\u036f"  # a mark is part of a Russian word

RULES: dict[str, tuple[str, str, str]] = {
    "xx": (PREFIX, SUFFIX, INFIX),
    "en": (PREFIX, SUFFIX, rf"{INFIX}|(?<=[0-9])(?:-|–|—|--|---|——|~)(?=[{ANY}])"),
    "de": (
        "``|" + PREFIX,
        (
            rf"''|/|\.\.+|……|[{PUNCTUATION}{QUOTES}{ICONS}]|{NUMBER_SUFFIX}"
            rf"|(?<=[{SMALL}{PUNCTUATION}{QUOTES}%²\-+|])\.|{CAPITAL_DOT}"
        ),
        (
            rf"\.\.+|…|[{ICONS}]|(?<=[{SMALL}])\.(?=[{CAPITAL}])|(?<=[{ANY}])[,!?:<>=](?=[{ANY}])"
            rf"|(?<=[0-9{ANY}])/(?=[0-9{ANY}])|(?<=[{ANY}])[{GERMAN_QUOTES})\](\[](?=[{ANY}])"
            rf"|(?<=[{ANY}])--(?=[{ANY}])|(?<=[0-9])-(?=[0-9])"
        ),
    ),
    "fr": (
        rf"{PREFIX}|[dlnDLN]['’](?=[{ANY}])",
        (
            rf"\.\.+|……|[{PUNCTUATION}{QUOTES}]|{NUMBER_SUFFIX}|(?<=[0-9{SMALL}{QUOTES}%²\-+(?:)])\."
            rf"|{CAPITAL_DOT}|(?<=[{ANY}])[{HYPHENS}](?:{PRONOUNS}|{PRONOUNS.upper()})"
        ),
        rf"{INFIX}|(?<=[{ANY}]['’])(?=[{ANY}])",
    ),
    "ru": (
        PREFIX,
        SUFFIX.replace(ANY, STRESSED).replace(CASELESS, CASELESS + "\u0300-\u036f"),
        INFIX.replace(ANY, STRESSED).replace(CASELESS, CASELESS + "\u0300-\u036f"),
    ),
}
"""Prefixes, suffixes and infixes by language, as in ``punctuation.py`` of spacy.lang and its languages."""


@cache
def patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    prefix, suffix, infix = RULES[language]
    return re.compile(prefix), re.compile(rf"(?:{suffix})\Z"), re.compile(infix)


NAME = r"[A-Za-z0-9\u00a1-\uffff]"

HOST_NAME = re.compile(
    r"(?:[\w+\-.]{2,}://)?(?:\S+@)?"
    rf"(?:(?:{NAME}(?:{NAME}|[_-]){{0,62}})?{NAME}\.)+[{SMALL}]{{2,63}}(?::[0-9]{{2,5}})?(?:[/?#]\S*)?\Z"
)


def naive_cut(chunk: str, language: str = "en") -> list[str]:
    """The segments of a chunk."""
    front: list[str] = []
    behind: list[str] = []
    words, (prefixes, suffixes, _) = specials(language), patterns(language)
    while chunk and chunk not in words:
        prefix, suffix = prefixes.match(chunk), None
        first = prefix.end() if prefix else 0
        if chunk[first:] not in words:
            suffix = suffixes.search(chunk[first:])
        last = first + suffix.start() if suffix else len(chunk)
        if not first and not suffix:
            break
        if suffix:
            behind.insert(0, chunk[last:])
            if chunk[:last] in words:
                chunk = chunk[:last]
                break
        if first:
            front.append(chunk[:first])
        chunk = chunk[first:last]
    return joined([*front, *middle(chunk, language), *behind], language)


def middle(chunk: str, language: str) -> list[str]:
    """The segments of a chunk without prefixes and suffixes."""
    if chunk in specials(language):
        return list(specials(language)[chunk])
    if HOST_NAME.match(chunk):
        return [chunk]
    cuts = [match.span() for match in patterns(language)[2].finditer(chunk) if match.start() > 0]
    ends = [0, *(at for span in cuts for at in span), len(chunk)]
    return [chunk[a:b] for a, b in pairwise(ends) if a < b]


def joined(parts: list[str], language: str) -> list[str]:
    """Join neighbours that are a special: the longest, then the first. Specials that are not joined block
    others too."""
    spans = sorted(
        (a - b, a, b)
        for a in range(len(parts))
        for b in range(a + 2, min(a + 5, len(parts)) + 1)
        if len(specials(language).get("".join(parts[a:b]), [])) == 1
    )
    blocked: set[int] = set()
    for _, a, b in spans:
        if not blocked & {a, b - 1}:
            parts[a:b] = ["".join(parts[a:b]), *[""] * (b - a - 1)]
        blocked |= set(range(a, b))
    return [part for part in parts if part]


@cache
def flags_of(char: str) -> int:
    return int(TABLES.flags[ord(char)])


def naive_words(text: str, language: str = UNKNOWN) -> list[tuple[str, int]]:
    """The segments with their flags."""
    words: list[tuple[str, int]] = []
    for whole in text.split():
        for chunk in [whole[k : k + MAX_CHARS] for k in range(0, len(whole), MAX_CHARS)]:
            is_unspaced = language not in LANGUAGES and any(flags_of(c) & UNSPACED for c in chunk)
            if len(chunk) == MAX_CHARS or is_unspaced:
                words += [
                    (segment, flags_of_unicode(segment)) for segment in unicode_segments(chunk)
                ]
            else:
                cut = naive_cut(chunk, "en" if language == UNKNOWN else language)
                words += [(segment, naive_flags(segment)) for segment in cut]
    return words


def naive_flags(segment: str) -> int:
    letter = any(category(ord(char))[0] == "L" for char in segment)
    return letter * HAS_LETTER | (not is_punctuation(segment)) * IS_WORD


def flags_of_unicode(segment: str) -> int:
    kinds = {int(u.classes()[ord(char)]) for char in segment}
    letter = bool(kinds & {u.LETTER, u.HEBREW, u.KATAKANA, u.UNIT})
    return letter * HAS_LETTER | (letter or bool(kinds & {u.DIGIT, u.NUMBER})) * IS_WORD


def is_punctuation(segment: str) -> bool:
    return all(flags_of(char) & NO_WORD for char in segment)


def chunk_of(text: str) -> tuple[np.ndarray, int]:
    """The characters of a chunk, and the flags of any of them."""
    points = [ord(char) for char in text]
    flags = [int(TABLES.flags[point]) for point in points]
    chunk = np.array([[*points, 0], [*flags, 0], range(len(text) + 1)], np.int64).T.copy()
    return chunk, int(np.bitwise_or.reduce(flags))
