"""Words against spaCy's rules as regular expressions, and against the output of spaCy."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.simd import SIZE
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals.quality_counts import count_words
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD, MAX_CHARS, next_chunks, next_words
from etl.kernels.words.spacy_specials import LANGUAGES, specials
from etl.kernels.words.spacy_tables import ALPHA, HOST, OTHER, SPACE, UNKNOWN, UNSPACED, tables
from etl.kernels.words.uax29 import CHARS, END, FLAGS, START
from tests.helpers.naive_spacy import (
    ANY,
    NAME,
    PIECES,
    TABLES,
    UNITS,
    category,
    flags_of,
    naive_cut,
    naive_words,
    room,
)
from tests.helpers.tricky_text import TRICKY

GOLDEN = json.loads(Path(__file__).with_name("spacy_words.json").read_text("utf-8"))
TOKENS = {text: tokens for of_kind in GOLDEN["tokens"].values() for text, tokens in of_kind.items()}
OF_LANGUAGE = json.loads(
    Path(__file__).with_name("spacy_words_by_language.json").read_text("utf-8")
)
EXAMPLES = [
    (language, text, tokens)
    for language, examples in OF_LANGUAGE["tokens"].items()
    for text, tokens in examples.items()
]
languages = st.sampled_from([*LANGUAGES, OTHER])

SPACES = [" ", "\n", "\r\n", "\t", "\x85", "\xa0", "\u2028", "\u3000", "\x1f"]
chunks = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
texts = (
    st.lists(chunks | st.sampled_from(SPACES), max_size=12).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


# The rules of spaCy 3.8.18: spacy.lang.punctuation, spacy.lang.char_classes.


# The algorithm of spaCy 3.8.18: spacy.tokenizer.


def words(text: str, language: str = UNKNOWN, *, by_space: bool = False) -> list[tuple[str, int]]:
    data, size, at = buffers(pa.array([text])).data, len(text.encode()), 0
    of_language, buffers_of = tables(language), room(language)
    pairs: list[tuple[str, int]] = []
    while at < size:
        before = at
        if by_space:
            at, num = next_chunks(data, at, size, of_language, buffers_of)
        else:
            at, num = next_words(data, at, size, of_language, buffers_of, True)
        assert at > before
        for row in buffers_of.block[:num].tolist():
            segment = data[row[START] : row[END]].tobytes().decode()
            assert len(segment) == row[CHARS]
            pairs.append((segment, row[FLAGS]))
    return pairs


def segments(text: str, language: str = "en") -> list[str]:
    return [segment for segment, _ in words(text, language)]


@pytest.mark.parametrize("text", TOKENS)
def test_segments_are_those_of_spacy(text):
    assert segments(text) == TOKENS[text]


def test_the_naive_rules_are_those_of_spacy():
    cut = {text: [part for chunk in text.split() for part in naive_cut(chunk)] for text in TOKENS}
    assert cut == TOKENS


@pytest.mark.parametrize(("language", "text", "tokens"), EXAMPLES)
def test_segments_of_each_language_are_those_of_spacy(language, text, tokens):
    assert segments(text, language) == tokens
    assert [part for chunk in text.split() for part in naive_cut(chunk, language)] == tokens


@given(texts, languages)
def test_segments_of_each_language_are_those_of_its_rules(text, language):
    assert words(text, language) == naive_words(text, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_special_with_punctuation_around_it(language):
    of_language = specials(language)
    text = " ".join(f"{s} ({s}) {s}, ?{s} x-{s} {s}-x {s}. '{s}'" for s in of_language)
    assert words(text, language) == naive_words(text, language)


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
    at, num = next_words(data, 0, len(junk), TABLES, room(), True)
    starts, ends = room().block[:num, START], room().block[:num, END]
    assert at == len(junk)
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
    assert num == 0 or (starts[0] >= 0 and ends[-1] <= len(data))


CHECKED = """
import sys, random
import pyarrow as pa
from etl.kernels.signals.quality_counts import count_words
from etl.kernels.bytes.utf8 import texts
lines = pa.array(sys.stdin.buffer.read().split(b"\\0")).cast(pa.large_binary())
lines = pa.Array.from_buffers(pa.large_string(), len(lines), lines.buffers())
print([column.tolist() for column in count_words(texts(lines), repeated=True).quality])
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
    counted = count_words(buffers(array), repeated=True).quality
    assert json.loads(run.stdout) == [column.tolist() for column in counted]
