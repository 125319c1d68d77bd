"""spaCy's rules as regular expressions."""

import re
import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np

from etl.kernels.bytes import character_classes as u
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD, MAX_CHARS, new_chunk_buffers
from etl.kernels.words.spacy_english import NO_WORD, UNSPACED, specials, tables
from tests.helpers.naive_uax29 import segments as unicode_segments

ROOM, TABLES = new_chunk_buffers(), tables()

# Pieces that the rules treat: punctuation, host names, units, specials.
PIECES = """
    . .. ... … , : ; ! ? ( ) [ ] { } < > _ # * & ' " ” “ ` ‘ ´ ’ » « - – — -- --- —— ~ + ^ / = | % ² ³ § @
    ° °C °f. $ £ € US$ C$ A$ S$ \\ \\n 's 'S ’s ’S 're n't 'll 'd 'em a b A B ab AB é É 1 12 3.14 0.0 km m²
    km² m/s km/h kg % GB T G. a. b. x.Y b.C can't don’t he's it's cannot gonna cant id id. and/or w/o e.g.
    i.e. U.S. N.Y. Ph.D. Mr. Jan. Messrs. 6pm 6p.m. 12a.m. :) :-( :))) ;) :* :/ ): <3 xD o.O ^_^ -_- ''
    <space> C++ http:// ab:// https://a.bc www.example.com foo.bar/x?y=z#q @x.org a@b.com :8080 /path ?q=1
    co.uk a-b.cd x_y -5% 1,000 a,b a:b a=b b>c 5+3 1-2 1*2 2^3 +1 +a 😀 © ™ ❤️ 🇩🇪 👩‍👧 → ß ж Ж
    ж. И. א ب ٣ ½ · ، 。 「 」 \u0301 \u200b \u200d \ufeff \xad \x00 東 京。 カ ส วั ดี
""".split()


def category(point: int) -> str:
    return "Lo" if 0x20000 <= point < 0x3FFFE else unicodedata.category(chr(point))


def one_of(*categories: str) -> str:
    """A character class of ``re``, without brackets: all characters of some categories."""
    points = [k for k in range(0x40000) if category(k) in categories]
    ends = [0, *(k for k in range(1, len(points)) if points[k] != points[k - 1] + 1), len(points)]
    return "".join(f"\\U{points[a]:08x}-\\U{points[b - 1]:08x}" for a, b in pairwise(ends))


CASELESS = one_of("Lt", "Lm", "Lo", "Mn", "Mc")  # match rules for small and for capital letters
SMALL, CAPITAL = one_of("Ll") + CASELESS, one_of("Lu") + CASELESS
ANY, ICONS = one_of("Ll", "Lu") + CASELESS, one_of("So")
PUNCTUATION = re.escape("…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪")
QUOTES = re.escape("'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧")
MONEY = re.escape("$£€¥฿₽﷼₴" + "".join(map(chr, range(0x20A0, 0x20C0))))

UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
    "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %"
).replace(" ", "|")

PREFIX = re.compile(rf"\.\.+|US\$|[AC]\$|\+(?![0-9])|[§%=—–{PUNCTUATION}{QUOTES}{MONEY}{ICONS}]")

SUFFIX = re.compile(
    rf"(?:\.\.+|……|['’][sS]|[—–{PUNCTUATION}{QUOTES}{ICONS}]"
    rf"|(?<=[0-9])(?:\+|US\$|[AC]\$|[{MONEY}]|{UNITS})"
    rf"|(?<=[0-9{SMALL}{PUNCTUATION}{QUOTES}%²\-+|])\.|(?<=[{CAPITAL}][{CAPITAL}])\.|(?<=°[FCK])\.)\Z"
)

INFIX = re.compile(
    rf"\.\.+|…|[{ICONS}]|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[{SMALL}{QUOTES}])\.(?=[{CAPITAL}{QUOTES}])"
    rf"|(?<=[{ANY}]),(?=[{ANY}])|(?<=[{ANY}0-9])(?:-|–|—|--|---|——|~|[:<>=/])(?=[{ANY}])"
)

NAME = r"[A-Za-z0-9\u00a1-\uffff]"

HOST_NAME = re.compile(
    r"(?:[\w+\-.]{2,}://)?(?:\S+@)?"
    rf"(?:(?:{NAME}(?:{NAME}|[_-]){{0,62}})?{NAME}\.)+[{SMALL}]{{2,63}}(?::[0-9]{{2,5}})?(?:[/?#]\S*)?\Z"
)


def naive_cut(chunk: str) -> list[str]:
    """The segments of a chunk."""
    front: list[str] = []
    behind: list[str] = []
    while chunk and chunk not in specials():
        prefix, suffix = PREFIX.match(chunk), None
        first = prefix.end() if prefix else 0
        if chunk[first:] not in specials():
            suffix = SUFFIX.search(chunk[first:])
        last = first + suffix.start() if suffix else len(chunk)
        if not first and not suffix:
            break
        if suffix:
            behind.insert(0, chunk[last:])
            if chunk[:last] in specials():
                chunk = chunk[:last]
                break
        if first:
            front.append(chunk[:first])
        chunk = chunk[first:last]
    return joined([*front, *middle(chunk), *behind])


def middle(chunk: str) -> list[str]:
    """The segments of a chunk without prefixes and suffixes."""
    if chunk in specials():
        return list(specials()[chunk])
    if HOST_NAME.match(chunk):
        return [chunk]
    cuts = [match.span() for match in INFIX.finditer(chunk) if match.start() > 0]
    ends = [0, *(at for span in cuts for at in span), len(chunk)]
    return [chunk[a:b] for a, b in pairwise(ends) if a < b]


def joined(parts: list[str]) -> list[str]:
    """Join neighbours that are a special: the longest, then the first. Those not joined block others too."""
    spans = sorted(
        (a - b, a, b)
        for a in range(len(parts))
        for b in range(a + 2, min(a + 5, len(parts)) + 1)
        if len(specials().get("".join(parts[a:b]), [])) == 1
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


def naive_words(text: str) -> list[tuple[str, int]]:
    """The segments with their flags."""
    words: list[tuple[str, int]] = []
    for whole in text.split():
        for chunk in [whole[k : k + MAX_CHARS] for k in range(0, len(whole), MAX_CHARS)]:
            if len(chunk) == MAX_CHARS or any(flags_of(char) & UNSPACED for char in chunk):
                words += [
                    (segment, flags_of_unicode(segment)) for segment in unicode_segments(chunk)
                ]
            else:
                words += [(segment, naive_flags(segment)) for segment in naive_cut(chunk)]
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
