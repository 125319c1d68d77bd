"""Word boundaries against the rules of UAX #29, applied to one boundary at a time."""

import unicodedata
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.words.uax29 import END, FLAGS, HAS_DIGIT, HAS_LETTER, START, next_segments

# Characters to which several rules apply; ordinary text rarely has them.
TRICKY = (
    "ab1 9'\"’.,:;_-#éЖשא東のก한カタｶﾞ・½²"
    "\u0301\u05b8\u0e31\u00ad\u200b\u200c\u200d\u200e\u2060\ufe0f\ufeff"
    "❤😀👩🏽🇩🇪🇫…•\n\r\t\v\x1f\x85\xa0\u2028\u2029\u202f\u3000\x00\U000e0067"
)
texts = st.text(st.sampled_from(TRICKY), max_size=24) | st.text(max_size=40)


def kind_of(char: str) -> int:
    return int(u.classes()[ord(char)])


def is_boundary(text: str, at: int) -> bool:
    before, after = kind_of(text[at - 1]), kind_of(text[at])
    if before <= u.BLANK or after <= u.BLANK:
        return True
    if after >= u.MARK:  # WB4: marks attach, and the other rules ignore them
        return False
    if before == u.ZWJ and after == u.SYMBOL:  # WB3c
        return False
    left = [None, None, *(kind for kind in map(kind_of, text[:at]) if kind < u.MARK)]
    right = [*(kind for kind in map(kind_of, text[at:]) if kind < u.MARK), None]
    return not joins(left[-2], left[-1], right[0], right[1], flags=count_last(left, u.REGIONAL))


def joins(before2, before, after, after2, *, flags: int) -> bool:
    letter = (u.LETTER, u.HEBREW)
    middle = (u.MID_LETTER, u.MID_BOTH, u.SINGLE_QUOTE)
    middle_number = (u.MID_NUMBER, u.MID_BOTH, u.SINGLE_QUOTE)
    run = (*letter, u.DIGIT, u.KATAKANA, u.JOINER)
    return (
        (before in letter and after in letter)  # WB5
        or (before in letter and after in middle and after2 in letter)  # WB6
        or (before2 in letter and before in middle and after in letter)  # WB7
        or (before == u.HEBREW and after == u.SINGLE_QUOTE)  # WB7a
        or (before == u.HEBREW and after == u.DOUBLE_QUOTE and after2 == u.HEBREW)  # WB7b
        or (before2 == u.HEBREW and before == u.DOUBLE_QUOTE and after == u.HEBREW)  # WB7c
        or (before == u.DIGIT and after == u.DIGIT)  # WB8
        or (before in letter and after == u.DIGIT)  # WB9
        or (before == u.DIGIT and after in letter)  # WB10
        or (before2 == u.DIGIT and before in middle_number and after == u.DIGIT)  # WB11
        or (before == u.DIGIT and after in middle_number and after2 == u.DIGIT)  # WB12
        or (before == u.KATAKANA and after == u.KATAKANA)  # WB13
        or (before in run and after == u.JOINER)  # WB13a
        or (before == u.JOINER and after in run)  # WB13b
        or (after == u.REGIONAL and flags % 2 == 1)  # WB15, WB16
    )


def count_last(kinds, kind) -> int:
    """How many elements at the end are of this kind."""
    others = [k for k, other in enumerate(kinds) if other != kind]
    return len(kinds) - 1 - others[-1]


def naive_segments(text: str) -> list[str]:
    cuts = [0, *(at for at in range(1, len(text)) if is_boundary(text, at)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    invisible = "".join(c for c in set(text) if kind_of(c) <= u.BLANK or kind_of(c) >= u.FORMAT)
    return [segment for piece in pieces if (segment := piece.lstrip(invisible))]


def segments(text: str, block_rows: int = 64) -> list[str]:
    data = np.frombuffer(text.encode(), np.uint8)
    block = np.empty((block_rows, 4), np.int64)
    at, pieces = 0, []
    while at < len(data):
        at, num = next_segments(data, at, len(data), u.classes(), block)
        for start, end, chars, _ in block[:num]:
            piece = data[start:end].tobytes().decode()
            assert len(piece) == chars
            pieces.append(piece)
    return pieces


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
