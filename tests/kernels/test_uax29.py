"""Word boundaries against the rules of UAX #29, applied to one boundary at a time."""

import unicodedata
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.words.uax29 import END, FLAGS, HAS_DIGIT, HAS_LETTER, START, next_segments
from tests.helpers.naive_uax29 import kind_of, naive_segments, segments
from tests.helpers.tricky_text import TRICKY, texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick (“brown”) fox can't jump 32.3 feet, right?",
         "The quick ( “ brown ” ) fox can't jump 32.3 feet , right ?"),
        ("e.g. 1,000.5 and 3. a_b-c don’t x:y ...", "e.g . 1,000.5 and 3 . a_b - c don’t x:y . . ."),
        ("東京タワーへ行く", "東 京 タワー へ 行 く"),
        ("한국어 문장", "한국어 문장"),
        ("สวัสดี", "ส วั ส ดี"),
        ("cafe\u0301 nai\u0308ve", "cafe\u0301 nai\u0308ve"),
        ("🇩🇪🇫🇷🇮 👩‍👩‍👧 👍🏽 ❤️", "🇩🇪 🇫🇷 🇮 👩‍👩‍👧 👍🏽 ❤️"),
        ("צה״ל צה\"ל ג'ירפה ש'", "צה״ל צה\"ל ג'ירפה ש'"),
        ("10\u202f000 a\u00a0b\u3000c", "10 000 a b c"),
        ("co\u00adop a\u200bb", "co\u00adop a b"),
        ("½ x² №5", "½ x ² № 5"),
    ],
)  # fmt: skip
def test_examples(text, expected):
    assert segments(text) == expected.split(" ")


@given(texts)
def test_segments_are_those_of_the_rules(text):
    assert segments(text) == naive_segments(text)


@pytest.mark.parametrize("first", ["", "a", "א", "1", "🇩"])
def test_every_sequence_of_three_classes(first):
    """One character of each class, after nothing, a letter, a digit or half a flag."""
    one_of_each = "".join({kind_of(char): char for char in TRICKY}.values())
    assert len(one_of_each) == u.NUM_CLASSES
    for rest in product(one_of_each, repeat=3):
        text = first + "".join(rest)
        assert segments(text) == naive_segments(text)


@given(texts, st.integers(4, 9))
def test_the_size_of_the_block_does_not_matter(text, block_rows):
    assert segments(text, block_rows) == segments(text, 1000)


@given(texts)
def test_a_word_has_a_letter_or_a_digit(text):
    categories = {char: unicodedata.category(char)[0] for char in text}
    assume("ﾞ" not in text)  # a letter for Python, a mark in UAX #29
    ideographs = [categories[char] for char in text if ord(char) >= 0x20000]
    assume("C" not in ideographs)  # assigned in a later Unicode version
    data = np.frombuffer(text.encode(), np.uint8)
    block = np.empty((1000, 4), np.int64)
    _, num = next_segments(data, 0, len(data), u.classes(), block)
    for row in block[:num]:
        piece = data[row[START] : row[END]].tobytes().decode()
        kinds = {categories[char] for char in piece}
        assert bool(row[FLAGS] & (HAS_LETTER | HAS_DIGIT)) == bool(kinds & {"L", "N"})


@given(st.binary(max_size=30), st.integers(0, 3), st.binary(max_size=4))
def test_no_byte_outside_is_read(junk, skip, rest):
    """The result is the same without compilation, where numpy checks indices, and before other bytes."""
    data, longer = np.frombuffer(junk, np.uint8), np.frombuffer(junk + rest, np.uint8)
    blocks = np.zeros((3, 64, 4), np.int64)
    skip, end = min(skip, len(data)), len(data)
    batch = next_segments(data, skip, end, u.classes(), blocks[0])
    assert batch == next_segments.py_func(data, skip, end, u.classes(), blocks[1])
    assert batch == next_segments(longer, skip, end, u.classes(), blocks[2])
    assert batch.at == end
    assert (blocks == blocks[0]).all()
    ends = blocks[0, : batch.num, END]
    assert (ends[1:] > ends[:-1]).all()
    assert (ends <= end).all()
