"""Words against spaCy's rules as regular expressions, and against the output of spaCy."""

import json
import os
import re
import subprocess
import sys
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.bytes.simd import SIZE
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals.word_counts import count
from etl.kernels.words.spacy import (
    HAS_LETTER,
    IS_WORD,
    MAX_CHARS,
    new_chunk_buffers,
    next_chunks,
    next_words,
)
from etl.kernels.words.spacy_english import ALPHA, HOST, NO_WORD, SPACE, UNSPACED, specials, tables
from etl.kernels.words.uax29 import CHARS, END, FLAGS, START
from tests.kernels.test_words import TRICKY
from tests.kernels.test_words import segments as unicode_segments

GOLDEN = json.loads(Path(__file__).with_name("spacy_words.json").read_text("utf-8"))
TOKENS = {text: tokens for of_kind in GOLDEN["tokens"].values() for text, tokens in of_kind.items()}
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
SPACES = [" ", "\n", "\r\n", "\t", "\x85", "\xa0", "\u2028", "\u3000", "\x1f"]
chunks = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
texts = (
    st.lists(chunks | st.sampled_from(SPACES), max_size=12).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


# The rules of spaCy 3.8.18: spacy.lang.punctuation, spacy.lang.char_classes.


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


# The algorithm of spaCy 3.8.18: spacy.tokenizer.


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


def words(text: str, *, by_space: bool = False) -> list[tuple[str, int]]:
    data, size, at = buffers(pa.array([text])).data, len(text.encode()), 0
    pairs: list[tuple[str, int]] = []
    while at < size:
        before = at
        if by_space:
            at, num = next_chunks(data, at, size, TABLES, ROOM)
        else:
            at, num = next_words(data, at, size, TABLES, ROOM, True)
        assert at > before
        for row in ROOM.block[:num].tolist():
            segment = data[row[START] : row[END]].tobytes().decode()
            assert len(segment) == row[CHARS]
            pairs.append((segment, row[FLAGS]))
    return pairs


def segments(text: str) -> list[str]:
    return [segment for segment, _ in words(text)]


@pytest.mark.parametrize("text", TOKENS)
def test_segments_are_those_of_spacy(text):
    assert segments(text) == TOKENS[text]


def test_the_naive_rules_are_those_of_spacy():
    cut = {text: [part for chunk in text.split() for part in naive_cut(chunk)] for text in TOKENS}
    assert cut == TOKENS


@given(texts)
@example(":):) :-))): '''' ))):-(")
@example("°C. x°C. °f.x x°K.) 25°F.")
@example("http://@a.bc a@@b.cd a@b@c@d@e@f@g.hi/j@k ab://x@ ://a.bc a://b.cd")
@example(
    "a" * 64
    + ".bc/d "
    + "a" * 65
    + ".bc/d a.b/c a.bc/d a.b"
    + "c" * 62
    + "/d a.b"
    + "c" * 63
    + "/d"
)
@example(
    "a.bc:1/d a.bc:12/d a.bc:12345/d a.bc:123456/d a.b٣/d A.BC/d a-.bc/d -a.bc/d a..bc/d x://a.bc xy://a.bc"
)
def test_segments_are_those_of_the_rules(text):
    assert words(text) == naive_words(text)


@given(chunks)
def test_every_character_of_a_chunk_is_in_one_segment(chunk):
    cut = segments(chunk)
    assert all(cut)
    if not any(flags_of(char) & (UNSPACED | SPACE) for char in chunk):
        assert "".join(cut) == chunk


@given(texts)
def test_segments_are_in_order_and_hold_no_white_space(text):
    at = 0
    for segment in segments(text):
        assert not any(char.isspace() for char in segment)
        at = text.index(segment, at) + len(segment)


@given(texts)
def test_chunks_by_space_are_those_of_split(text):
    expected = [
        (chunk, IS_WORD | any(category(ord(char))[0] == "L" for char in chunk) * HAS_LETTER)
        for chunk in text.split()
    ]
    assert words(text, by_space=True) == expected


@given(chunks, st.sampled_from(SPACES))
def test_white_space_of_any_kind_ends_a_chunk(chunk, space):
    assert segments(f"{chunk}{space}x{space}{space}{chunk}") == [
        *segments(chunk),
        "x",
        *segments(chunk),
    ]


@given(chunks.filter(bool), st.integers(0, 3))
def test_the_end_of_a_block_does_not_cut_a_segment(chunk, before):
    """A block ends after 1,024 segments, so these take two."""
    many = 1100 // max(len(segments(chunk)), 1)
    text = "x " * before + f"{chunk} " * many
    assert segments(text) == ["x"] * before + segments(chunk) * many


@pytest.mark.parametrize("size", [MAX_CHARS - 1, MAX_CHARS, MAX_CHARS + 1])
@pytest.mark.parametrize("piece", ["a", "1", "a.B", "(", "東"])
def test_very_long_chunks_are_cut_in_pieces(piece, size):
    chunk = (piece * size)[:size]
    assert words(f"x {chunk} y") == naive_words(f"x {chunk} y")


@pytest.mark.parametrize("first", range(256))
def test_every_byte_before_and_after_a_word(first):
    char = chr(first)
    text = f"{char}word {char} word{char} 5{char} a{char}b 1{char}2 A{char}B. {char}{char}"
    assert words(text) == naive_words(text)


def test_every_special_with_punctuation_around_it():
    text = " ".join(f"{s} ({s}) {s}, ?{s} x-{s} {s}-x {s}. '{s}'" for s in specials())
    assert words(text) == naive_words(text)


def test_every_unit_after_a_digit():
    text = " ".join(f"5{unit} 5{unit}. x{unit} 5x{unit} +5{unit}" for unit in UNITS.split("|"))
    assert words(text) == naive_words(text)


def test_the_flags_of_characters_are_those_of_the_rules():
    points = [point for point in range(0x40000) if category(point) != "Cs"]
    letter, name = re.compile(f"[{ANY}]"), re.compile(NAME)
    letters = {point for point in points if TABLES.flags[point] & ALPHA}
    assert letters == {point for point in points if letter.match(chr(point))}
    names = {point for point in points if TABLES.flags[point] & HOST}
    assert names == {point for point in points if name.match(chr(point))}
    spaces = {point for point in points if TABLES.flags[point] & SPACE}
    assert spaces == {point for point in points if chr(point).isspace()}


@given(st.lists(st.binary(max_size=12) | chunks.map(str.encode), max_size=6).map(b"".join))
def test_segments_of_junk_do_not_overlap(junk):
    data = np.frombuffer(junk.ljust(SIZE, b"'"), np.uint8)
    at, num = next_words(data, 0, len(junk), TABLES, ROOM, True)
    starts, ends = ROOM.block[:num, START], ROOM.block[:num, END]
    assert at == len(junk)
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
    assert num == 0 or (starts[0] >= 0 and ends[-1] <= len(data))


CHECKED = """
import sys, random
import pyarrow as pa
from etl.kernels.counts import count
from etl.kernels.utf8 import texts
lines = pa.array(sys.stdin.buffer.read().split(b"\\0")).cast(pa.large_binary())
lines = pa.Array.from_buffers(pa.large_string(), len(lines), lines.buffers())
print([column.tolist() for column in count(texts(lines), repeated=True).quality])
"""


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path):
    """The kernels compiled with numba's checks, on texts that are long, nested, truncated or junk."""
    random = np.random.default_rng(0)
    lines = ["".join(random.choice(PIECES, 5)).encode() for _ in range(3000)]
    lines += [random.bytes(20).replace(b"\0", b"x") for _ in range(3000)]
    lines += [line[: random.integers(len(line) + 1)] for line in lines]
    lines += [(piece * 9000).encode()[:9001] for piece in PIECES]
    lines = [line.replace(b"\0", b"x") for line in lines]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env=environment,
        input=b"\0".join(lines),
        capture_output=True,
        check=True,
    )
    array = pa.array(lines, pa.large_binary())
    array = pa.Array.from_buffers(pa.large_string(), len(array), array.buffers())
    counted = count(buffers(array), repeated=True).quality
    assert json.loads(run.stdout) == [column.tolist() for column in counted]
